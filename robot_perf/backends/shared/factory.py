"""Runs a Python factory's object that computes with numpy."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.backends.protocol import Array, Arrays, Runner
from robot_perf.backends.shared.closed import closed
from robot_perf.backends.shared.own_reset import own_reset
from robot_perf.backends.shared.versions import versions
from robot_perf.errors import PolicyError, RobotPerfError
from robot_perf.policies import factory
from robot_perf.policies.observations import initial_state, random_array
from robot_perf.specs import PolicySpec, TensorSpec


def load_numpy(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """The runner of a factory. Raises PolicyError when it returns a torch module, which belongs to eager or compile."""
    built = factory.construct(policy)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(built.policy, torch.nn.Module):
        raise PolicyError(f"{policy.factory} returned a torch module", do="Run it with --backend eager (or compile).")
    with contextlib.ExitStack() as undo:
        undo.callback(factory.end, built.policy)
        runner = FactoryRunner(built)
        try:
            runner.reset()  # a published policy comes out of its constructor with the state of its own self-test
        except Exception as error:
            raise factory.failure(runner.spec, error) from error
        if not runner.spec.outputs:
            _try_once(runner)
        undo.pop_all()
    return runner


def _try_once(runner: FactoryRunner) -> None:
    """One call with random inputs, where spec() does not name the outputs: the loop must know them before it starts."""
    rng = np.random.default_rng(runner.spec.seed)
    observation = [random_array(rng, runner.spec.inputs[i]) for i in runner.spec.fed]
    try:
        runner.step(observation)
        runner.reset()
    except RobotPerfError:
        raise
    except Exception as error:
        raise factory.failure(runner.spec, error) from error
    notes = ["its first call was made while loading, because spec() does not name its outputs"]
    if not runner.has_reset:
        notes.append("it has no reset(): whatever that call changed in it stays changed")
    runner.spec = dataclasses.replace(runner.spec, notes=(*runner.spec.notes, *notes))


class FactoryRunner:
    """Calls the object's `step(inputs)` with a dictionary of its own, or the object itself with arrays in order.

    What it answers is known after the first call: `spec.outputs`, `spec.action` and a note on its dtype are then filled in.
    """

    def __init__(self, built: factory.Built) -> None:
        self.spec = built.spec
        self._policy = built.policy
        self._durations = {"import_ns": built.import_ns, "construct_ns": built.construct_ns}
        step = getattr(built.policy, "step", None)
        self._step = step if callable(step) else None
        batch = self.spec.inputs[0].shape[0] if self.spec.inputs[0].shape else 1
        name, self._reset, note = own_reset(built.policy, batch, lambda n: np.ones(n, np.bool_))
        if name and self._reset is None:
            raise PolicyError(
                f"{self.spec.factory}: its {name} takes arguments that are not known here",
                why=note.split(":")[0] + ".",
                do=f"Give the object a {name} that takes nothing, or `dones`.",
            )
        if note:
            self.spec = dataclasses.replace(self.spec, notes=(*self.spec.notes, note))
        self._inputs: dict[str, Array] = {t.name: np.zeros(t.shape, t.dtype) for t in self.spec.inputs}
        self._fed = [self.spec.inputs[i].name for i in self.spec.fed]
        self._carried = [(self.spec.inputs[p.target].name, p.source) for p in self.spec.state]
        self._initial = initial_state(self.spec)
        self._known = False
        for (name, _), value in zip(self._carried, self._initial, strict=True):
            self._inputs[name] = value

    @property
    def has_reset(self) -> bool:
        """True when the object can put itself back."""
        return self._reset is not None

    def step(self, observation: Arrays) -> Arrays:
        """The answer as a sequence of arrays. Whatever the user's code raises passes through."""
        inputs = self._inputs
        for name, array in zip(self._fed, observation):  # noqa: B905 - lengths are fixed by spec.fed
            inputs[name] = array
        answer = self._step(inputs.copy()) if self._step is not None else self._policy(*inputs.values())
        outputs = answer if type(answer) in (tuple, list) else _sequence(answer)
        if not self._known:
            self._learn(outputs, answer)
        for name, source in self._carried:
            inputs[name] = outputs[source]
        return outputs

    def _learn(self, outputs: Sequence[Any], answer: Any) -> None:
        wrong = next((i for i, o in enumerate(outputs) if not isinstance(o, np.ndarray)), None)
        if wrong is not None or not outputs:
            got = type(outputs[wrong]).__name__ if wrong is not None else "nothing"
            raise PolicyError(
                f"{self.spec.factory}: output {wrong or 0} is {got}, wanted a numpy array", do="Return numpy arrays."
            )
        names = list(answer) if isinstance(answer, Mapping) else [f"out{i}" for i in range(len(outputs))]
        tensors = [TensorSpec(str(n), o.dtype.name, tuple(o.shape)) for n, o in zip(names, outputs, strict=True)]
        self.spec = factory.with_results(self.spec, tensors)
        self._known = True

    def reset(self) -> None:
        """The object's own reset(), and carried values as at the start."""
        if self._reset is not None:
            self._reset()
        for (name, _), value in zip(self._carried, self._initial, strict=True):
            self._inputs[name] = value

    def counters(self) -> Mapping[str, int]:
        """No event can spoil the window."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Versions, and how long import and construction took."""
        return {**versions(), **self._durations}

    def close(self) -> None:
        """The object's own close(), where it has one."""
        factory.end(self._policy)
        self._policy = self._step = closed


def _sequence(answer: Any) -> Sequence[Any]:
    if isinstance(answer, np.ndarray):
        return (answer,)
    if isinstance(answer, Mapping):
        return tuple(answer.values())
    return tuple(answer) if isinstance(answer, Sequence) and not isinstance(answer, (str, bytes)) else (answer,)
