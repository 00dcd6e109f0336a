"""The played runtimes have no function, argument or value that the real packages lack: else tests on them would prove nothing.

Each part runs where its package is, with a device or without.
"""

from __future__ import annotations

import importlib
import inspect
from enum import IntEnum
from types import MethodType
from typing import Any

import fake_cuda
import fake_nvml
import fake_ort
import fake_trt
import numpy as np
import pytest

from robot_perf.backends.gpu import ort


def test_cuda() -> None:
    """Of cuda.bindings: every function, and every constant and member of an enum with its value."""
    real = pytest.importorskip("cuda.bindings.runtime", reason="cuda-python is not installed")
    played = fake_cuda.FakeCuda()
    functions, values = [], []
    for name in dir(fake_cuda.FakeCuda):
        if name.startswith("cuda"):
            kind = inspect.getattr_static(fake_cuda.FakeCuda, name)
            (functions if inspect.isfunction(kind) else values).append(name)
    assert len(functions) > 30 and len(values) > 8
    assert [name for name in functions if not callable(getattr(real, name, None))] == []
    for name in values:
        found, ours = getattr(real, name), getattr(played, name)
        if isinstance(ours, type) and issubclass(ours, IntEnum):
            assert {m.name: int(m) for m in ours} == {m.name: int(getattr(found, m.name)) for m in ours}, name
        else:
            assert int(found) == ours, name
    assert set(fake_cuda.VALUES) <= set(functions)
    for played_name in ("Kernel", "Memcpy", "Memset", "EventRecord"):
        assert f"cudaGraphNodeType{played_name}" in real.cudaGraphNodeType.__members__


def test_what_a_played_cuda_answers_is_as_long_as_it_says() -> None:
    """`VALUES` is what a failing call is padded with; the real bindings pad with None as well."""
    fake = fake_cuda.FakeCuda()
    _, stream = fake.cudaStreamCreateWithPriority(1, 0)
    _, event = fake.cudaEventCreateWithFlags(0)
    answers = {
        "cudaGetDeviceCount": fake.cudaGetDeviceCount(),
        "cudaGetDeviceProperties": fake.cudaGetDeviceProperties(0),
        "cudaDriverGetVersion": fake.cudaDriverGetVersion(),
        "cudaMemGetInfo": fake.cudaMemGetInfo(),
        "cudaMalloc": fake.cudaMalloc(1),
        "cudaStreamGetPriority": fake.cudaStreamGetPriority(stream),
        "cudaDeviceGetStreamPriorityRange": fake.cudaDeviceGetStreamPriorityRange(),
        "cudaHostAlloc": fake.cudaHostAlloc(1, 0),
        "cudaEventElapsedTime": fake.cudaEventElapsedTime(event, event),
        "cudaGraphGetNodes": fake.cudaGraphGetNodes([], 0),
        "cudaEventRecord": fake.cudaEventRecord(event, stream),
        "cudaDeviceSynchronize": fake.cudaDeviceSynchronize(),
    }
    assert {name: len(answer) - 1 for name, answer in answers.items()} == {
        n: fake_cuda.VALUES.get(n, 0) for n in answers
    }


def test_torch() -> None:
    """The calls of `backends.gpu` bind to torch's own signatures; the graph's methods are there."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    cuda = torch.cuda
    inspect.signature(cuda.graph.__init__).bind(None, object(), stream=object(), capture_error_mode="thread_local")
    if "keep_graph" in inspect.signature(cuda.CUDAGraph.__new__).parameters:  # torch 2.8
        inspect.signature(cuda.CUDAGraph.__new__).bind(None, keep_graph=True)
        assert {"instantiate", "raw_cuda_graph"} <= set(dir(cuda.CUDAGraph))
    assert {"replay", "reset"} <= set(dir(cuda.CUDAGraph))
    for given in ({"enable_timing": True}, {"blocking": True}, {"enable_timing": True, "external": True}):
        inspect.signature(cuda.Event.__new__).bind(None, **given)
    inspect.signature(cuda.Stream.__new__).bind(None, 0, priority=-1)
    # a build without CUDA has a stub for the base, without the attribute
    assert hasattr(cuda.Stream, "priority") or torch.version.cuda is None
    for name in ("set_device", "set_stream", "current_stream", "empty_cache", "mem_get_info", "memory_reserved"):
        assert callable(getattr(cuda, name))


def test_onnxruntime() -> None:
    real = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = real.InferenceSession
    for name in ("get_inputs", "get_outputs", "get_providers", "io_binding", "run_with_iobinding"):
        assert callable(getattr(session, name)) and getattr(fake_ort.Session, name, None) is not None
    for given in ((object(), object()), (object(),)):
        inspect.signature(session.run_with_iobinding).bind(None, *given)
    for bind in (real.IOBinding.bind_input, real.IOBinding.bind_output):
        inspect.signature(bind).bind(None, "x", "cuda", 0, np.float32, (1, 2), 4096)
    options = ort._without_wait()
    assert [options.get_run_config_entry(key) for key in (fake_ort.ASYNC, fake_ort.GRAPH)] == ["1", "1"]
    assert {n for n in vars(fake_ort.RunOptions) if not n.startswith("_")} <= set(dir(options))


@pytest.mark.parametrize("edition", ["tensorrt", "tensorrt_rtx"])
def test_tensorrt(edition: str) -> None:
    pytest.importorskip(edition, reason=f"{edition} is not installed")
    real = importlib.import_module(edition)
    for ours, theirs in (
        (fake_trt.Runtime, real.Runtime),
        (fake_trt.Engine, real.ICudaEngine),
        (fake_trt.Context, real.IExecutionContext),
    ):
        names = {n for n in vars(ours) if not n.startswith("_")}
        assert names <= set(dir(theirs)), sorted(names - set(dir(theirs)))
    assert {"num_io_tensors", "get_tensor_shape"} <= set(dir(real.ICudaEngine)) and "engine" in dir(
        real.IExecutionContext
    )
    assert all(hasattr(real.ILogger, name) for name in ("INTERNAL_ERROR", "ERROR", "WARNING")) and callable(real.nptype)


def test_nvml() -> None:
    real: Any = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    played = fake_nvml.FakeNvml("GPU-1")
    names = [n for n in dir(played) if n.startswith(("nvml", "NVML"))]
    assert len(names) > 10 and [n for n in names if not hasattr(real, n)] == []
    for name in names:
        ours = getattr(played, name)
        if isinstance(ours, MethodType):
            given = [object() for p in inspect.signature(ours).parameters]
            inspect.signature(getattr(real, name)).bind(*given)
    assert issubclass(real.NVMLError_NotSupported, real.NVMLError) and issubclass(
        real.NVMLError_FunctionNotFound, real.NVMLError
    )
