"""The `eager` backend: TorchScript, torch.export, torch modules from factories and the built-in networks.

What a TorchScript file does not say (its sizes, its state) is found by trial calls in a forked child; the measured process
loads the file once and makes no call of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from robot_perf.backends.gpu import options as gpu_options
from robot_perf.backends.protocol import Runner
from robot_perf.backends.shared import cpu_options
from robot_perf.backends.shared.formats import taken_by
from robot_perf.backends.torch_policy import load as torch_load
from robot_perf.backends.torch_policy import runtime
from robot_perf.backends.torch_policy.runner import NO_EVENTS, Events, TorchRunner
from robot_perf.policies.builtin import NETWORKS
from robot_perf.specs import PolicySpec

SMALL_PARAMETERS = 5_000_000
OPTIONS = ("inter_threads",)
Wrap = Callable[[Any], Any]


def unavailable() -> str | None:
    """Why torch can't run here, with the install line. Imports torch."""
    return runtime.unavailable()


def takes(policy: PolicySpec) -> str | None:
    """Why this backend can't take the policy's format; None when it can."""
    if policy.kind in ("torchscript", "torch_export", "factory"):
        return None
    if policy.kind == "builtin" and policy.builtin["name"] in NETWORKS:
        return None
    return f"It runs TorchScript, torch.export, torch modules from factories and the built-in networks; {taken_by(policy)}."


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner. Options on the CPU: `threads`, `inter_threads`; on a CUDA device also those of `gpu.options`.

    Raises PolicyError when the policy can't be loaded or called.
    """
    if gpu_options.on_cuda(options):
        from robot_perf.backends.gpu import torch_backend

        return torch_backend.load(policy, options, "eager")
    return build(policy, options, backend="eager")


def build(
    policy: PolicySpec,
    options: Mapping[str, Any],
    *,
    backend: str,
    own: tuple[str, ...] = OPTIONS,
    wrap: Wrap | None = None,
    events: Events = NO_EVENTS,
    facts: Mapping[str, Any] | None = None,
) -> Runner:
    """The runner of `policy`; `wrap` turns its module into what is called (torch.compile)."""
    import torch

    cpu_options.check(options, backend, own)
    before = torch.get_num_threads()
    runtime.set_threads(options, 1)
    loaded = torch_load.open_policy(policy)
    policy = loaded.policy
    if policy.cost is None or policy.cost.parameters >= SMALL_PARAMETERS:
        runtime.set_threads(options, before)
    return TorchRunner(
        policy,
        loaded.call if wrap is None else wrap(loaded.call),
        loaded.arguments,
        loaded.reset,
        {**runtime.base_facts(backend), **loaded.facts, **(facts or {})},
        events,
    )
