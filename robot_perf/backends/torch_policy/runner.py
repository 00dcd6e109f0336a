"""Calls a torch policy: arrays in without a copy, one gradient-free mode for every call, arrays out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from robot_perf.backends.protocol import Array, Arrays
from robot_perf.backends.shared.closed import closed
from robot_perf.backends.torch_policy.state import Reset
from robot_perf.policies.observations import initial_state
from robot_perf.policies.state import Tree
from robot_perf.specs import PolicySpec, TensorSpec

Call = Callable[..., Any]


class Events(Protocol):
    """What must not happen inside the measured window, counted."""

    def __call__(self) -> Mapping[str, int]:
        """Counts by event since loading; empty where none can happen."""
        ...

    def reasons(self) -> Mapping[str, str]:
        """The latest reason of an event, by its name."""
        ...

    def not_captured(self) -> str:
        """Why none of the CUDA graphs that were asked for was captured; "" where one was, or none was asked for."""
        ...

    def called(self, *, compiled: bool) -> None:
        """A call is over; whether torch has compiled anything of the policy by now."""
        ...

    def close(self) -> None:
        """Ends the counting."""
        ...


class NoEvents:
    """Eager mode: nothing is compiled."""

    def __call__(self) -> Mapping[str, int]:
        """None."""
        return {}

    def reasons(self) -> Mapping[str, str]:
        """None."""
        return {}

    def not_captured(self) -> str:
        """None is asked for."""
        return ""

    def called(self, *, compiled: bool) -> None:
        """Nothing to note."""

    def close(self) -> None:
        """Nothing to end."""


NO_EVENTS: Events = NoEvents()


class TorchRunner:
    """One torch policy on the CPU. State pairs are carried as tensors; state in buffers carries itself."""

    def __init__(
        self,
        policy: PolicySpec,
        call: Call,
        arguments: Sequence[Tree],
        reset: Reset,
        facts: Mapping[str, Any],
        events: Events = NO_EVENTS,
    ) -> None:
        import torch

        self.spec = policy
        self._call, self._reset, self._facts, self._events = call, reset, dict(facts), events
        self._from_numpy, self._no_grad = torch.from_numpy, torch.no_grad
        self._assemble = None if all(a is None for a in arguments) else assembler(arguments)
        self._flat: list[Any] = [torch.zeros(t.shape, dtype=getattr(torch, t.dtype)) for t in policy.inputs]
        self._fed = policy.fed
        self._carried = [(p.target, p.source) for p in policy.state]
        self._initial = [torch.from_numpy(a) for a in initial_state(policy)]
        self.restart()

    def step(self, observation: Arrays) -> Arrays:
        """All outputs by position, on the host."""
        flat = self._flat
        for where, array in zip(self._fed, observation):  # noqa: B905 - lengths are fixed by spec.fed
            flat[where] = self._from_numpy(array)
        # Never inference_mode: mixed with no_grad it makes some stateful files fail, and robots ship no_grad.
        with self._no_grad():
            result = self._call(*flat) if self._assemble is None else self._call(*self._assemble(flat))
        outputs = flatten(result)
        for target, source in self._carried:
            flat[target] = outputs[source]
        return [to_numpy(t) for t in outputs]

    def reset(self) -> None:
        """The state as after loading: the policy's own reset or the loaded values, and carried values from the start."""
        self._reset()
        self.restart()

    def state(self) -> Mapping[str, Array]:
        """Carried values by input name, and the buffers that change."""
        carried = {self.spec.inputs[t].name: to_numpy(self._flat[t]) for t, _ in self._carried}
        return {**carried, **{k: to_numpy(v) for k, v in self._reset.state().items()}}

    def counters(self) -> Mapping[str, int]:
        """Compiles and graph breaks so far; empty in eager mode."""
        return self._events()

    def reasons(self) -> Mapping[str, str]:
        """Why an event happened, by its name."""
        return self._events.reasons()

    def facts(self) -> Mapping[str, Any]:
        """Version, threads, mode, how it is reset."""
        return {**self._facts, "reset": self._reset.how}

    def close(self) -> None:
        """The own close() of a factory's object, then the module is free."""
        if self._call is closed:
            return
        self._events.close()
        if self.spec.kind == "factory":
            self._reset.end()
        self._flat.clear()
        self._call = closed

    def restart(self) -> None:
        """Carried values from the start again; buffers stay."""
        for (target, _), value in zip(self._carried, self._initial, strict=True):
            self._flat[target] = value.clone()


def flatten(result: Any) -> list[Any]:
    """Tensors of a result in order; tuples, lists and dictionaries are opened."""
    tensor = _torch().Tensor
    if isinstance(result, (tuple, list)):
        # Each step comes here: a tensor costs no call, and none is asked whether it is a Mapping, which is slow.
        return [t for part in result for t in ((part,) if isinstance(part, tensor) else flatten(part))]
    if not isinstance(result, tensor) and isinstance(result, Mapping):
        return [t for part in result.values() for t in flatten(part)]
    return [result]


def result_names(result: Any, name: str = "out") -> list[str]:
    """Names of the flattened tensors: `out`, or `out.0`, `out.1.0`, or a dictionary's keys."""
    if isinstance(result, (tuple, list)):
        return [n for i, part in enumerate(result) for n in result_names(part, f"{name}.{i}")]
    if isinstance(result, Mapping):
        return [n for k, part in result.items() for n in result_names(part, str(k))]
    return [name]


def to_numpy(value: Any) -> Array:
    """A tensor's array without a copy where that is possible; bfloat16, which numpy lacks, as float32."""
    if not hasattr(value, "numpy"):
        return np.asarray(value)
    if value.dtype is _torch().bfloat16:
        value = value.float()
    try:
        array: Array = value.numpy()
    except (RuntimeError, TypeError):  # it wants a gradient, is a conjugate or negative view, or lies on a device
        array = value.numpy(force=True)
    return array


@functools.cache
def _torch() -> Any:
    import torch

    return torch


def output_specs(result: Any) -> tuple[TensorSpec, ...]:
    """Names, dtypes and shapes of a result."""
    arrays = [to_numpy(t) for t in flatten(result)]
    return tuple(TensorSpec(n, a.dtype.name, tuple(a.shape)) for n, a in zip(result_names(result), arrays, strict=True))


def with_outputs(policy: PolicySpec, outputs: tuple[TensorSpec, ...]) -> PolicySpec:
    """`policy` with real outputs; names that the file gave are kept."""
    if len(policy.outputs) == len(outputs):
        outputs = tuple(dataclasses.replace(o, name=p.name) for o, p in zip(outputs, policy.outputs, strict=True))
    return dataclasses.replace(policy, outputs=outputs)


def assembler(arguments: Sequence[Tree]) -> Callable[[list[Any]], list[Any]]:
    """A function from flat tensors to nested arguments."""

    def build(tree: Tree, rest: Any) -> Any:
        return next(rest) if tree is None else tuple(build(t, rest) for t in tree)

    def assemble(flat: list[Any]) -> list[Any]:
        rest = iter(flat)
        return [build(tree, rest) for tree in arguments]

    return assemble
