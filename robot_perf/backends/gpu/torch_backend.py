"""Loads a torch policy onto a CUDA device for `eager`, `compile` and `cuda_graph`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from robot_perf.backends.gpu import options as device_options
from robot_perf.backends.gpu import torch_cuda
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.runner import QueuedRunner, Work
from robot_perf.backends.gpu.torch_body import Body
from robot_perf.backends.gpu.torch_queue import QueuedSteps
from robot_perf.backends.gpu.undo import Undo
from robot_perf.backends.protocol import Runner
from robot_perf.backends.torch_policy import load as torch_load
from robot_perf.backends.torch_policy import runtime
from robot_perf.backends.torch_policy import trial as torch_trial
from robot_perf.backends.torch_policy.load import Loaded
from robot_perf.backends.torch_policy.runner import NO_EVENTS, Events
from robot_perf.errors import BackendUnavailableError
from robot_perf.specs import PolicySpec

OWN = ("inter_threads",)


def open_body(
    policy: PolicySpec,
    options: Mapping[str, Any],
    settled: DeviceOptions,
    wrap: Callable[[Any], Any] | None = None,
) -> tuple[Loaded, Body]:
    """The policy on its device, with its buffers; `wrap` turns its module into what is called (torch.compile)."""
    if reason := runtime.unavailable():
        raise BackendUnavailableError("torch can't run here", why=reason)
    if policy.kind in ("torchscript", "torch_export"):
        # Trial calls in a forked child, on the CPU, before this process opens the device: a child can't use its parent's.
        policy = torch_trial.resolve(policy)
    device = torch_cuda.open_device(settled)
    runtime.set_threads(options, 1)

    def place(module: Any) -> Any:
        if policy.kind == "torch_export":
            return torch_cuda.move_export(module, device)
        return torch_cuda.place(module, device, settled.precision, policy.name)

    loaded = torch_load.open_policy(policy, device=settled.device, place=place)
    if note := torch_cuda.hold_arithmetic(settled.precision):
        noted = dataclasses.replace(loaded.policy, notes=(*loaded.policy.notes, note))
        loaded = dataclasses.replace(loaded, policy=noted)
    with contextlib.ExitStack() as undo:
        if loaded.policy.kind == "factory":
            undo.callback(loaded.reset.end)
        call = loaded.call if wrap is None else wrap(loaded.call)
        body = Body(loaded.policy, call, loaded.arguments, loaded.reset, loaded.module, settled)
        undo.pop_all()
    return loaded, body


def runner_over(
    policy: PolicySpec,
    options: Mapping[str, Any],
    settled: DeviceOptions,
    work_of: Callable[[Loaded, Body], Work],
    wrap: Callable[[Any], Any] | None = None,
) -> Runner:
    """The runner over what `work_of` makes of the loaded policy; a load that fails hands its memory back."""
    made = contextlib.ExitStack()
    made.callback(torch_cuda.hand_back)

    def make() -> Runner:
        loaded, body = open_body(policy, options, settled, wrap)
        made.callback(body.close)
        return QueuedRunner(loaded.policy, work_of(loaded, body))

    with Undo(made.close):
        return make()


def load(
    policy: PolicySpec,
    options: Mapping[str, Any],
    backend: str,
    *,
    own: tuple[str, ...] = OWN,
    wrap: Callable[[Any], Any] | None = None,
    events: Events = NO_EVENTS,
    facts: Mapping[str, Any] | None = None,
    before: Callable[[], Any] | None = None,
) -> Runner:
    """A runner that queues the policy's own operators in each step, or its compiled code."""
    settled = device_options.read(options, backend, own=own, precisions=device_options.TORCH)

    def work_of(loaded: Loaded, body: Body) -> Work:
        said = {**runtime.base_facts(backend), **loaded.facts, **(facts or {})}
        return QueuedSteps(body, torch_cuda.stream(settled), said, events, before)

    return runner_over(policy, options, settled, work_of, wrap)
