"""Whether torch and ONNX Runtime have a CUDA device here; the marks say why a test is skipped."""

from __future__ import annotations

import importlib.util

import pytest

from robot_perf.backends.gpu import cudart


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
