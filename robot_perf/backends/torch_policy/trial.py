"""Trial calls of torch files: what the file does not say (sizes, outputs, state) is found in a forked child."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from robot_perf.backends.shared.child import in_child
from robot_perf.backends.torch_policy import file as torch_file
from robot_perf.backends.torch_policy import state as torch_state
from robot_perf.backends.torch_policy.runner import TorchRunner, assembler, output_specs, with_outputs
from robot_perf.errors import PolicyError
from robot_perf.policies import state
from robot_perf.policies.asked import action_position, shape_text
from robot_perf.policies.observations import random_array
from robot_perf.specs import PolicySpec, StatePair, TensorSpec, from_json, to_json


def resolve(policy: PolicySpec) -> PolicySpec:
    """`policy` with inputs, outputs, action and state known, by trial calls in a forked child. Done once: a no-op after that."""
    if "torch" in policy.asked:
        return policy
    answer = in_child(str(policy.path), lambda: to_json(_try(policy)))
    return from_json(PolicySpec, answer)


def _try(policy: PolicySpec) -> PolicySpec:
    """The trial calls: find the sizes, then examine a freshly loaded module."""
    module = torch_file.open_file(policy)
    called = torch_file.signature(policy, module)
    notes: list[str] = []
    if policy.kind == "torchscript":
        tensors = torch_file.inputs(policy, module, called)
        if tensors is None:
            tensors = _accepted(policy, module, called)
            notes.append(
                f"input {tensors[0].name}: the size {shape_text(tensors[0].shape)} was found by trial: no other was accepted"
            )
            module = torch_file.open_file(policy)  # trial calls moved the state
        policy = dataclasses.replace(policy, inputs=tensors)
        notes += torch_file.sibling_notes(policy)
    policy = dataclasses.replace(policy, notes=(*policy.notes, *notes), asked={**policy.asked, "torch": {}})
    result = _one_result(policy, module, called)
    policy = _with_state(with_outputs(policy, output_specs(result)), called)
    module = torch_file.open_file(policy)
    reset = torch_state.Reset(module, module, batch(policy.inputs))
    runner = TorchRunner(policy, module, called.arguments, reset, {})
    return _examined(policy, runner, reset)


def _examined(policy: PolicySpec, runner: TorchRunner, reset: torch_state.Reset) -> PolicySpec:
    rng = np.random.default_rng(policy.seed)
    fed = [policy.inputs[i] for i in policy.fed]
    prepared = [[random_array(rng, t) for t in fed] for _ in range(5)]
    kept = [[a.copy() for a in step] for step in prepared]

    def run(k: int) -> list[Any]:
        return [np.array(a) for a in runner.step(prepared[k])]

    found = torch_state.examine(reset, run, runner.restart)
    notes = list(found["notes"])
    if any(not np.array_equal(a, b) for x, y in zip(prepared, kept, strict=True) for a, b in zip(x, y, strict=True)):
        notes.append("the policy writes into its inputs: recorded observations change as they are cycled")
    note = policy.state_note
    if found["changed"]:
        buffers = torch_state.finding(tuple(found["changed"]), reset.how)
        note = buffers if not policy.state else f"{note}; {buffers}"
    asked = {**policy.asked, "torch": {"drop_method": found["drop_method"]}}
    return dataclasses.replace(policy, state_note=note, notes=(*policy.notes, *notes), asked=asked)


def _accepted(policy: PolicySpec, module: Any, called: torch_file.Signature) -> tuple[TensorSpec, ...]:
    tried = torch_file.candidates(module)
    dtype = torch_file.parameter_dtype(module)
    accepted = [shape for shape in tried if _accepts(module, shape, dtype)]
    if len(accepted) == 1:
        return (TensorSpec(called.names[0], dtype, accepted[0]),)
    words = ", ".join(shape_text(s) for s in tried) or "none: it has no 2-D weights"
    raise torch_file.needs_shape(
        policy,
        list(called.names),
        f"Tried {words}; accepted: {', '.join(shape_text(s) for s in accepted) or 'none'}.",
    )


def _accepts(module: Any, shape: tuple[int, ...], dtype: str) -> bool:
    import torch

    try:
        with torch.no_grad():
            module(torch.zeros(shape, dtype=getattr(torch, dtype)))
    except Exception:  # noqa: BLE001 - torch.jit.Error has no base of its own; a refusal is an answer here
        return False
    return True


def _one_result(policy: PolicySpec, module: Any, called: torch_file.Signature) -> Any:
    import torch

    rng = np.random.default_rng(policy.seed)
    flat = [torch.from_numpy(random_array(rng, t)) for t in policy.inputs]
    try:
        with torch.no_grad():
            result = module(*assembler(called.arguments)(flat))
        output_specs(result)
    except Exception as error:
        raise torch_file.call_failure(policy, policy.inputs, error) from error
    return result


def _with_state(policy: PolicySpec, called: torch_file.Signature) -> PolicySpec:
    """State pairs (nested tuples, and those asked for), the action, and the line about state."""
    if policy.kind == "torch_export":
        return policy
    name = str(policy.path)
    asked = [(str(a), str(b)) for a, b in policy.asked.get("state", [])]
    pairs, _ = state.pairs(policy.inputs, policy.outputs, asked, policy=name) if asked else ((), ())
    taken = {p.target for p in pairs}
    if called.result is not None:
        for target, source in state.nested(list(called.arguments), called.result):
            given, got = policy.inputs[target], policy.outputs[source]
            if (given.dtype, given.shape) != (got.dtype, got.shape):
                raise PolicyError(
                    f"{name}: state {given.name} <- output {source} does not fit",
                    why=f"{given.name} is {given.dtype} {shape_text(given.shape)}, output {source} is {got.dtype} {shape_text(got.shape)}.",
                    do=f"Give the state's own sizes: --shape {given.name}={','.join(map(str, got.shape))}",
                )
            if target not in taken:
                pairs += (StatePair(target, source),)
    action = action_position(policy.asked.get("action"), policy.outputs, {p.source for p in pairs}, policy=name)
    return dataclasses.replace(
        policy, state=pairs, action=action, state_note=state.finding(pairs, policy.inputs, policy.outputs)
    )


def batch(inputs: tuple[TensorSpec, ...]) -> int:
    """How many environments a call has: the first axis of the first input, 1 for a rank-1 input."""
    return inputs[0].shape[0] if inputs and len(inputs[0].shape) > 1 else 1
