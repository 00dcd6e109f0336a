"""What ONNX Runtime and TensorRT say on a device, as messages that name the cause: libraries, operators, graphs, memory."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robot_perf import policies
from robot_perf.backends.gpu import faults, options, ort_session
from robot_perf.backends.shared.text import first_line
from robot_perf.backends.trt import api as trt_api
from robot_perf.errors import BackendUnavailableError, InvalidMeasurementError, PolicyError
from robot_perf.policies.onnxfile import encode

MISSING = "libcublasLt.so.13: cannot open shared object file: No such file or directory"
ON_CPU = (
    "[ONNXRuntimeError] : 1 : FAIL : This session contains graph nodes that are assigned to the default CPU EP, but fallback "
    "to CPU EP has been explicitly disabled by the user."
)
NO_GRAPH = (
    "[ONNXRuntimeError] : 1 : FAIL : This session cannot use the graph capture feature as requested by the user  as all "
    "compute graph nodes have not been partitioned to the CUDAExecutionProvider"
)
NO_TYPE = "[ONNXRuntimeError] : 10 : INVALID_GRAPH : Type 'tensor(bfloat16)' of input parameter (x) of operator (Elu) is invalid."


@pytest.mark.parametrize(
    ("says", "loader", "given", "error", "words"),
    [
        # A provider whose library can't be loaded is left out, and the runtime complains of nodes on the CPU instead.
        (ON_CPU, MISSING, {}, BackendUnavailableError, ("CUDAExecutionProvider can't be loaded", "libcublasLt.so.13", "pip")),
        (ON_CPU, MISSING.replace("cublasLt.so.13", "cuda.so.1"), {}, BackendUnavailableError, ("Install the NVIDIA driver",)),
        ("EP Error", MISSING.replace("cublasLt.so.13", "nvinfer.so.10"), {}, BackendUnavailableError, ("libnvinfer.so.10", "TensorRT")),
        (ON_CPU, None, {}, InvalidMeasurementError, ("on the CPU", "Nodes without a kernel", "allow_cpu_nodes=true")),
        (NO_GRAPH, None, {}, InvalidMeasurementError, ("CUDA graph was asked for", "cuda_graph=false")),
        (NO_TYPE, None, {"precision": "bf16"}, PolicyError, ("can't compute part of it in bf16", "tf32")),
        (NO_TYPE, None, {}, PolicyError, ("refuses to load it", "onnx.checker")),
        ("CUDA failure 2: out of memory", None, {}, PolicyError, ("too little memory",)),
    ],
)  # fmt: skip
def test_what_onnxruntime_refuses_on_a_device_is_told(
    says: str, loader: str | None, given: dict[str, Any], error: type[Exception], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    onnxruntime = pytest.importorskip("onnxruntime")
    asked: list[dict[str, Any]] = []

    def refuses(*_: Any, **more: Any) -> Any:
        asked.append(more)
        raise RuntimeError(says)

    def opens(name: str, **_: Any) -> None:
        if loader is not None and "_shared" not in name:
            raise OSError(loader)

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuses)
    monkeypatch.setattr(ort_session.ctypes, "CDLL", opens)
    spec = policies.describe("mlp", preset="tiny")
    chosen = ort_session.provider_options("cuda", options.DeviceOptions(), 1, {})
    with pytest.raises(error) as refused:
        ort_session.open_session(spec, given, b"", chosen, False)
    text = str(refused.value)
    assert all(w in text for w in words) and len(text.splitlines()) <= 4
    # Its own way out of a failed provider is a session on the CPU, whose error hides the provider's.
    assert all(a["enable_fallback"] == 0 for a in asked)


def test_a_session_on_another_provider_than_the_one_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nodes on the CPU are allowed nothing else would say that all of them are there."""
    onnxruntime = pytest.importorskip("onnxruntime")
    elsewhere = SimpleNamespace(disable_fallback=lambda: None, get_providers=lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: elsewhere)
    monkeypatch.setattr(ort_session.ctypes, "CDLL", lambda *_, **__: None)
    spec = policies.describe("mlp", preset="tiny")
    chosen = ort_session.provider_options("cuda", options.DeviceOptions(), 1, {})
    with pytest.raises(BackendUnavailableError, match="fell back from CUDAExecutionProvider to CPUExecutionProvider"):
        ort_session.open_session(spec, {}, b"", chosen, True)


def test_nvidias_libraries_are_loaded_from_the_folders_they_lie_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime takes a folder of libraries, not a site-packages; what is not in it it takes from the loader's path."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for name in (
        "cu13/lib/libcublas.so.13",
        "cu13/lib/libcudart.so.13",
        "cudnn/lib/libcudnn.so.9",
        "nccl/lib/libnccl.so.2",
    ):
        path = tmp_path / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found: list[tuple[str, dict[str, bool]]] = []
    monkeypatch.setattr(
        onnxruntime, "preload_dlls", lambda directory, **which: found.append((directory, which)), raising=False
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert ort_session.preload() == ""
    ours = [(str(Path(d).relative_to(tmp_path)), which) for d, which in found if d.startswith(str(tmp_path))]
    assert ours == [("nvidia/cu13/lib", {"cudnn": False}), ("nvidia/cudnn/lib", {"cuda": False})]


# As onnxruntime-gpu 1.30 says them: at the load, and in a run.
CALL = (
    "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:154 std::conditional_t<THRW, void, onnxruntime::common::Status> "
    "onnxruntime::CudaCall(ERRTYPE, const char*, const char*, SUCCTYPE, const char*, const char*, int) [with ERRTYPE = cudnnStatus_t; "
    "bool THRW = true; SUCCTYPE = cudnnStatus_t; std::conditional_t<THRW, void, common::Status> = void] "
)
PLACE = (
    " ; GPU=0 ; hostname=atlas ; file=/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_execution_provider.cc ; line=247 ; "
    "expr=cudnnCreate(&cudnn_handle_); "
)
LOADING = f"[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: {CALL}{CALL}CUDNN failure 1001: NOT_INITIALIZED{PLACE}"
RUNNING = f"Error in execution: Non-zero status code returned while running Gemm node. Status Message: CUBLAS failure 14: WORDS{PLACE}"


def test_a_cuda_error_of_onnxruntime_is_told_without_its_template_and_without_the_machine() -> None:
    assert first_line(RuntimeError(LOADING)) == "CUDNN failure 1001: NOT_INITIALIZED"
    told = first_line(RuntimeError(RUNNING))
    assert told.endswith("Gemm node. Status Message: CUBLAS failure 14: WORDS")
    assert faults.last_line(RuntimeError(f"in a run:\n{RUNNING}\n")) == told


# --- TensorRT's words -----------------------------------------------------------------------------------------------------


def _two_layers(operator: str) -> bytes:
    """A graph of Relu and then the operator, without the package onnx."""
    nodes = [encode.Node("Relu", ["x"], ["h"]), encode.Node(operator, ["h"], ["y"])]
    return encode.model(nodes, {}, [("x", "float32", (4, 4))], [("y", "float32", (4, 4))], name="two")


class ParserError86:
    """As TensorRT 8.6 has it: without operator and node name. Its words are those of an operator that it lacks."""

    def __init__(self, node: int) -> None:
        self._node = node

    def node(self) -> int:
        return self._node

    def desc(self) -> str:
        return 'Assertion failed: creator && "Plugin not found, are the plugin name, version, and namespace correct?"'


class ParserError10(ParserError86):
    def node_operator(self) -> str:
        return "Det"

    def node_name(self) -> str:
        return "det"


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (ParserError86(1), "Mish: Assertion failed"),
        (ParserError86(7), "node 7: Assertion failed"),
        (ParserError86(-1), "Assertion failed"),
        (ParserError10(1), "Det det: Assertion failed"),
    ],
)
def test_an_operator_that_tensorrt_lacks_is_named_whatever_its_version_says(error: Any, start: str) -> None:
    parser = SimpleNamespace(num_errors=1, get_error=lambda _i: error)
    (told,) = trt_api.parser_errors(parser, _two_layers("Mish"))
    assert told.startswith(start)


def test_what_tensorrt_said_is_found_after_any_number_of_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build beside others warns of hundreds of kernels that found no memory; the newest 200 lines are kept."""

    class ILogger:
        INTERNAL_ERROR, ERROR, WARNING, INFO = range(4)

    monkeypatch.setattr(
        trt_api.importlib, "import_module", lambda _name: SimpleNamespace(ILogger=ILogger, __version__="8.6.0")
    )
    api = trt_api.load("tensorrt")
    for i in range(250):
        api.logger.log(ILogger.WARNING, f"skipping kernel {i}")
    said = api.heard
    assert api.last_words(said) == ""
    api.logger.log(ILogger.INFO, "chatter")
    api.logger.log(ILogger.ERROR, "no implementation for node y")
    api.logger.log(ILogger.WARNING, "gave up")
    assert api.last_words(said) == "no implementation for node y" and len(api.log) == 200
