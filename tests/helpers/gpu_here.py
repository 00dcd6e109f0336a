"""Whether torch and ONNX Runtime have a CUDA device here, the marks that say why a test is skipped, and a measurement on it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from robot_perf.backends.gpu import cudart
from robot_perf.measure.conductor import Plan, measure
from robot_perf.measure.order import WorkOrder
from robot_perf.run.model import Run
from robot_perf.specs import Budget, LoopSpec, PolicySpec, to_json

DEVICE = {"device": "cuda:0"}


def _torch() -> str:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "torch sees no CUDA device here"


def _ort() -> str:
    if importlib.util.find_spec("onnxruntime") is None:
        return "onnxruntime is not installed"
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return f"onnxruntime {onnxruntime.__version__} is a build without CUDA"
    if reason := cudart.unavailable():
        return reason
    try:
        cudart.check("cudaGetDeviceCount", cudart.runtime().cudaGetDeviceCount())
    except RuntimeError as error:
        return f"CUDA sees no device here: {error}"
    return ""


NO_TORCH, NO_ORT = _torch(), _ort()
need_torch = pytest.mark.skipif(bool(NO_TORCH), reason=NO_TORCH)
need_ort = pytest.mark.skipif(bool(NO_ORT), reason=NO_ORT)


def measured(
    name: str, spec: PolicySpec, given: dict[str, Any], reference: str | None, *, steps: int = 100, ended: str = ""
) -> Run:
    """A Run at 200 Hz in a worker of its own; one that is not complete must have `ended` by these words."""
    loop = LoopSpec(period_ns=5_000_000, deadline_ns=5_000_000, steps=steps, warmup_max=60)
    order = WorkOrder(map_path="", policy=spec, backend=name, loop=loop, options=DEVICE | given, reference=reference)
    conditions = {"backend": {"name": name}, "budget": to_json(Budget(deadline_ns=loop.deadline_ns))}
    run = measure(Plan(order=order, conditions=conditions))
    Path(run.conditions["step_map"]).unlink()
    # A process that dies as it closes has measured all the same; without its last report nothing here would say so.
    state = run.conditions["state"]
    assert ended in state if ended else state == "complete", (state, run.conditions["printed"])
    return run
