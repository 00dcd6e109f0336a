"""Opens whatever torch runs (files, built-in networks, factories) and readies it: device, outputs, state, reset."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.backends.torch_policy import file as torch_file
from robot_perf.backends.torch_policy import state as torch_state
from robot_perf.backends.torch_policy import trial as torch_trial
from robot_perf.backends.torch_policy.runner import output_specs
from robot_perf.policies import factory
from robot_perf.policies.observations import random_array
from robot_perf.policies.state import Tree
from robot_perf.specs import PolicyCost, PolicySpec

Place = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """A policy that can be called. `module` is None for a factory's object that is no nn.Module."""

    policy: PolicySpec
    module: Any
    call: Any
    arguments: Sequence[Tree]
    reset: torch_state.Reset
    facts: Mapping[str, Any]


def open_policy(policy: PolicySpec, *, device: str = "cpu", place: Place | None = None) -> Loaded:
    """`policy` ready to be called on `device`; `place` moves its module there (a torch.export program before it is unwrapped).

    A factory's object whose load fails here is closed.
    """
    with contextlib.ExitStack() as undo:
        loaded = _open(policy, device, place, undo)
        undo.pop_all()
    return loaded


def _open(policy: PolicySpec, device: str, place: Place | None, undo: contextlib.ExitStack) -> Loaded:
    import torch

    facts: dict[str, Any] = {}
    if policy.kind in ("torchscript", "torch_export"):
        policy = torch_trial.resolve(policy)
        target: Any = torch_file.open_file(policy, place if policy.kind == "torch_export" else None)
        arguments: Sequence[Tree] = torch_file.signature(policy, target).arguments
        target = place(target) if place is not None and policy.kind == "torchscript" else target
        module = call = target
    elif policy.kind == "builtin":
        from robot_perf.policies.builtin.torch_module import build

        module = build(policy.builtin, policy.seed)
        target = module = call = place(module) if place is not None else module
        arguments = (None,) * len(policy.inputs)
    else:
        built = factory.construct(policy)
        undo.callback(factory.end, built.policy)
        policy, target = built.spec, built.policy
        module = target.eval() if isinstance(target, torch.nn.Module) else None
        if module is not None and place is not None:
            target = module = place(module)
        call = _object_call(target, policy)
        arguments = (None,) * len(policy.inputs)
        facts = {"import_ns": built.import_ns, "construct_ns": built.construct_ns}
    if module is not None:
        policy = _with_cost(policy, module)
    reset = torch_state.Reset(module, target, torch_trial.batch(policy.inputs))
    if policy.kind == "factory":
        _first_reset(policy, reset)
        policy = _learn(policy, call, reset, device)
    if note := policy.asked.get("torch", {}).get("drop_method"):
        reset.drop_method(note)
    return Loaded(policy, module, call, arguments, reset, facts)


def _object_call(target: Any, policy: PolicySpec) -> Any:
    step = getattr(target, "step", None)
    if not callable(step):
        return target
    names = [t.name for t in policy.inputs]
    return lambda *tensors: step(dict(zip(names, tensors, strict=True)))


def _first_reset(policy: PolicySpec, reset: torch_state.Reset) -> None:
    """As a robot's program does before it starts; a reset that can't be called was noted already."""
    try:
        reset()
    except Exception as error:
        raise factory.failure(policy, error) from error


def _learn(policy: PolicySpec, call: Any, reset: torch_state.Reset, device: str) -> PolicySpec:
    """Outputs and state of a factory's object by one call in this process: its construction may own hardware, so no fork."""
    import torch

    changed: tuple[str, ...] = ()
    if reset.note:
        policy = dataclasses.replace(policy, notes=(*policy.notes, reset.note))
    if not policy.outputs:
        rng = np.random.default_rng(policy.seed)
        try:
            with torch.no_grad():
                result = call(*(torch.from_numpy(random_array(rng, t)).to(device) for t in policy.inputs))
            outputs = output_specs(result)
        except Exception as error:
            raise factory.failure(policy, error) from error
        changed = reset.changed()
        reset()
        policy = factory.with_results(policy, outputs)
        note = "its first call was made while loading, because spec() does not name its outputs"
        policy = dataclasses.replace(policy, notes=(*policy.notes, note))
    if changed and not policy.state:
        policy = dataclasses.replace(policy, state_note=torch_state.finding(changed, reset.how))
    elif not policy.state and not reset.has_method and reset.buffers:
        policy = dataclasses.replace(
            policy, state_note="state: buffers that change are put back to their loaded values before measuring"
        )
    return policy


def _with_cost(policy: PolicySpec, module: Any) -> PolicySpec:
    if policy.cost is not None:
        return policy
    sizes = [(p.numel(), p.element_size()) for p in module.parameters()]
    cost = PolicyCost(parameters=sum(n for n, _ in sizes), bytes_read=sum(n * size for n, size in sizes))
    return dataclasses.replace(policy, cost=cost)
