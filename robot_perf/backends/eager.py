"""The `eager` backend: TorchScript, torch.export, torch modules from factories and the built-in networks, on the CPU.

What a TorchScript file does not say (its sizes, its state) is found by trial calls in a forked child; the measured process
loads the file once and makes no call of its own.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robot_perf.backends import cpu_options, torch_file, torch_state, torch_trial
from robot_perf.backends.protocol import Runner
from robot_perf.backends.text import first_line
from robot_perf.backends.torch_runner import TorchRunner, output_specs
from robot_perf.errors import UsageError
from robot_perf.policies import factory
from robot_perf.policies.builtin import NETWORKS
from robot_perf.policies.observations import random_array
from robot_perf.specs import PolicyCost, PolicySpec

SMALL_PARAMETERS = 5_000_000
OPTIONS = ("inter_threads",)
Wrap = Callable[[Any], Any]


def unavailable() -> str | None:
    """Why torch can't run here, with the install line. Imports torch."""
    try:
        import torch  # noqa: F401 - a wheel may be there and still lack a library that it links to
    except (ImportError, OSError) as error:
        if importlib.util.find_spec("torch") is None:
            return f'torch is not installed for {sys.executable}; install it: pip install "robot-perf[torch]"'
        return f"torch is installed but can't be imported: {first_line(error)}"
    return None


def takes(policy: PolicySpec) -> str | None:
    """Why this backend can't take the policy's format; None when it can."""
    if policy.kind in ("torchscript", "torch_export", "factory"):
        return None
    if policy.kind == "builtin" and policy.builtin["name"] in NETWORKS:
        return None
    return "It runs TorchScript, torch.export, torch modules from factories and the built-in networks."


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner. Options: `threads` (intra-op), `device` (cpu). Raises PolicyError when the policy can't be loaded or called."""
    return build(policy, options, backend="eager")


def build(
    policy: PolicySpec,
    options: Mapping[str, Any],
    *,
    backend: str,
    own: tuple[str, ...] = OPTIONS,
    wrap: Wrap | None = None,
    counters: Callable[[], Mapping[str, int]] = dict,
    facts: Mapping[str, Any] | None = None,
) -> Runner:
    """The runner of `policy`; `wrap` turns its module into what is called (torch.compile)."""
    import torch

    cpu_options.check(options, backend, own)
    before = torch.get_num_threads()
    _set_threads(options, 1)
    if policy.kind in ("torchscript", "torch_export"):
        policy = torch_trial.resolve(policy)
        target = module = torch_file.open_file(policy)
        arguments = torch_file.signature(policy, module).arguments
        call: Any = module
    elif policy.kind == "builtin":
        from robot_perf.policies.builtin.torch_module import build as build_network

        target = module = call = build_network(policy.builtin, policy.seed)
        arguments = (None,) * len(policy.inputs)
    else:
        built = factory.construct(policy)
        policy, target = built.spec, built.policy
        module = target.eval() if isinstance(target, torch.nn.Module) else None
        call = _object_call(target, policy)
        arguments = (None,) * len(policy.inputs)
        facts = {**(facts or {}), "import_ns": built.import_ns, "construct_ns": built.construct_ns}
    if module is not None:
        policy = _with_cost(policy, module)
    reset = torch_state.Reset(module, target, torch_trial.batch(policy.inputs))
    if policy.kind == "factory":
        _first_reset(policy, reset)
        policy = _learn(policy, call, reset)
    found = policy.asked.get("torch", {})
    if found.get("drop_method"):
        reset.drop_method(found["drop_method"])
    if policy.cost is None or policy.cost.parameters >= SMALL_PARAMETERS:
        _set_threads(options, before)
    return TorchRunner(
        policy,
        call if wrap is None else wrap(call),
        arguments,
        reset,
        {
            "backend": backend,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "inter_threads": torch.get_num_interop_threads(),
            "mode": "no_grad",
            **(facts or {}),
        },
        counters,
    )


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


def _learn(policy: PolicySpec, call: Any, reset: torch_state.Reset) -> PolicySpec:
    """Outputs and state of a factory's object by one call in this process: its construction may own hardware, so no fork."""
    import torch

    changed: tuple[str, ...] = ()
    if reset.note:
        policy = dataclasses.replace(policy, notes=(*policy.notes, reset.note))
    if not policy.outputs:
        rng = np.random.default_rng(policy.seed)
        try:
            with torch.no_grad():
                result = call(*(torch.from_numpy(random_array(rng, t)) for t in policy.inputs))
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


def _set_threads(options: Mapping[str, Any], default: int) -> None:
    import torch

    for key, set_to, current in (
        ("threads", torch.set_num_threads, torch.get_num_threads),
        ("inter_threads", torch.set_num_interop_threads, torch.get_num_interop_threads),
    ):
        value = cpu_options.threads(options, key, least=1)
        wanted = value if value is not None else (default if key == "threads" else 1)
        if current() == wanted:
            continue
        try:
            set_to(wanted)
        except RuntimeError as error:
            # torch allows the inter-op pool to be sized once per process; a default must not fail for that.
            if value is not None:
                raise UsageError(
                    f"{key} can't be changed in this process any more", detail=first_line(error)
                ) from error
