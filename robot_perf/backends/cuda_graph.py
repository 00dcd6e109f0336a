"""The `cuda_graph` backend: a torch policy's whole step, copies and state included, captured once and replayed.

One launch replaces the policy's dozens: the host's part of a step no longer grows with the number of operators. What can't be
captured is INVALID here, never run without the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_perf.backends import eager
from robot_perf.backends.protocol import Runner
from robot_perf.backends.torch_policy import runtime
from robot_perf.errors import UsageError
from robot_perf.specs import PolicySpec


def unavailable() -> str | None:
    """Why it can't run here, with the install line. Imports torch."""
    reason = eager.unavailable()
    if reason is not None:
        return reason
    import torch

    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return f"torch {torch.__version__} is built without CUDA; install a CUDA build: https://pytorch.org/get-started"
    return None


def takes(policy: PolicySpec) -> str | None:
    """Why this backend can't take the policy's format; None when it can."""
    return eager.takes(policy)


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner that replays. Options: those of `gpu.options`.

    Raises InvalidMeasurementError when the step can't be captured, or answers otherwise once captured.
    """
    from robot_perf.backends.gpu import options as device_options
    from robot_perf.backends.gpu import torch_backend, torch_cuda
    from robot_perf.backends.gpu.torch_graph import GraphSteps

    settled = device_options.read(
        options, "cuda_graph", own=torch_backend.OWN, precisions=device_options.TORCH, cuda_graph=True
    )
    if not settled.cuda_graph:
        raise UsageError("backend cuda_graph without its graph is backend eager", do="Use --backend eager.")

    def work_of(loaded: Any, body: Any) -> GraphSteps:
        return GraphSteps(body, torch_cuda.stream(settled), {**runtime.base_facts("cuda_graph"), **loaded.facts})

    return torch_backend.runner_over(policy, options, settled, work_of)
