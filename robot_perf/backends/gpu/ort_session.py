"""ONNX Runtime's session on a CUDA device: libraries, providers and their options, precision, and nodes that would run elsewhere."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf.backends.gpu import faults
from robot_perf.backends.gpu.options import OVERRIDE, DeviceOptions, tf32_overridden
from robot_perf.backends.gpu.work import WITHOUT_GRAPH
from robot_perf.backends.shared.onnx_session import refused, runtime_errors, session_settings, source_of
from robot_perf.backends.shared.text import first_line
from robot_perf.errors import BackendUnavailableError, InvalidMeasurementError, PolicyError, UsageError, install_line
from robot_perf.policies.asked import shown
from robot_perf.policies.observations import random_array
from robot_perf.policies.onnxfile import lower
from robot_perf.run.scratch import Scratch
from robot_perf.specs import PolicySpec

PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
CPU = "CPUExecutionProvider"
CONV_SEARCH = ("exhaustive", "heuristic", "default")
INSTALL = f"pip uninstall onnxruntime; {install_line('onnx-gpu')} (never both: they share one folder)"
LIBRARIES = "pip install onnxruntime-gpu[cuda,cudnn]"
_CUDA_PARTS = ("cublas", "cudart", "nvrtc", "curand", "cufft")


def preload() -> str:
    """Loads CUDA's and cuDNN's libraries from wherever pip put NVIDIA's packages; what the runtime printed about it.

    The runtime itself looks for the packages only beside its own folder. It is told each folder of libraries, cuDNN's last and
    apart: what is not in a folder it takes from the loader's path, which may hold another version.
    """
    import onnxruntime as ort

    if not hasattr(ort, "preload_dlls"):
        return ""  # before 1.21 the loader's path alone decides
    spec = importlib.util.find_spec("nvidia")
    folders = (
        [f for p in (spec.submodule_search_locations or []) for f in sorted(Path(p).glob("*/lib"))] if spec else []
    )
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for folder in folders:
            if any(_holds(folder, part) for part in _CUDA_PARTS):
                ort.preload_dlls(cudnn=False, directory=str(folder))
        for folder in folders:
            if _holds(folder, "cudnn"):
                ort.preload_dlls(cuda=False, directory=str(folder))
    return said.getvalue()


def _holds(folder: Path, library: str) -> bool:
    return any(folder.glob(f"lib{library}.so*"))


def provider_options(
    provider: str, settled: DeviceOptions, stream: int, options: Mapping[str, Any]
) -> list[tuple[str, dict[str, str]]]:
    """The providers in order, each with its options as text. Pure: nothing is loaded. Raises UsageError for a wrong option."""
    cuda = {
        "device_id": str(settled.index),
        "user_compute_stream": str(stream),
        "use_tf32": "0" if settled.precision == "fp32" else "1",
        "enable_cuda_graph": "1" if settled.cuda_graph and provider == "cuda" else "0",
    }
    if options.get("conv_search"):
        search = str(options["conv_search"]).lower()
        if search not in CONV_SEARCH:
            raise UsageError(f"conv_search {shown(search)} is unknown", why=f"Known: {', '.join(CONV_SEARCH)}.")
        cuda["cudnn_conv_algo_search"] = search.upper()
    if provider == "cuda":
        return [(PROVIDERS["cuda"], cuda)]
    low = {"fp16": "trt_fp16_enable", "bf16": "trt_bf16_enable", "int8": "trt_int8_enable"}
    tensorrt = {
        "device_id": str(settled.index),
        "user_compute_stream": str(stream),
        "trt_cuda_graph_enable": "1" if settled.cuda_graph else "0",
    }
    if settled.precision in low:
        tensorrt[low[settled.precision]] = "1"
    return [(PROVIDERS["tensorrt"], tensorrt), (PROVIDERS["cuda"], {**cuda, "enable_cuda_graph": "0"})]


def cpu_nodes(
    policy: PolicySpec, options: Mapping[str, Any], source: str | bytes, providers: list[tuple[str, dict[str, str]]]
) -> list[str]:
    """`operator node` of everything that runs on the CPU, from the runtime's own profile of one call of a second session."""
    import onnxruntime as ort

    settings = session_settings(policy, options)
    settings.log_severity_level = 4
    with Scratch("nodes-") as folder:
        settings.enable_profiling = True
        settings.profile_file_prefix = str(folder / "nodes")
        own = [
            (n, {k: v for k, v in o.items() if k not in ("user_compute_stream",) and "graph" not in k})
            for n, o in providers
        ]
        session = ort.InferenceSession(source, settings, providers=[*own, CPU], enable_fallback=0)
        rng = np.random.default_rng(policy.seed)
        session.run(None, {t.name: random_array(rng, t) for t in policy.inputs})
        return nodes_on(Path(session.end_profiling()).read_text(encoding="utf-8"), CPU)


def nodes_on(profile: str, provider: str) -> list[str]:
    """`operator node` of a profile's kernels that `provider` ran, in order, each once."""
    found = []
    for event in json.loads(profile):
        arguments = event.get("args") or {}
        if event.get("cat") == "Node" and arguments.get("provider") == provider:
            found.append(f"{arguments.get('op_name', '?')} {str(event.get('name', '')).removesuffix('_kernel_time')}")
    return list(dict.fromkeys(found))


def check_arithmetic(provider: str, precision: str) -> dict[str, Any]:
    """What keeps fp32 from being TF32, for the facts. Raises UsageError where nothing does. Pure but for the environment.

    TensorRT's builder allows TF32 unless its flag is cleared, and its provider has no option for that (up to 1.30:
    microsoft/onnxruntime#26029). The variable reaches the builder, which says so (#28177), and holds for the process.
    """
    if provider != "tensorrt" or precision != "fp32":
        return {}
    if not tf32_overridden():
        raise UsageError(
            "provider tensorrt doesn't promise fp32",
            why="TensorRT may compute in TF32 there, and onnxruntime has no option that keeps it from that.",
            do=f"Say --backend-option precision=tf32, or set {OVERRIDE}=0 before the start, or use --backend tensorrt.",
        )
    return {"tf32": f"off by {OVERRIDE}=0"}


def check_present(provider: str) -> None:
    """Raises BackendUnavailableError when the installed build lacks the provider."""
    import onnxruntime as ort

    available = ort.get_available_providers()
    if PROVIDERS["cuda"] not in available:
        raise BackendUnavailableError(
            f"onnxruntime {ort.__version__} is a build without CUDA",
            why=f"It has {', '.join(available)}; {sys.executable}.",
            do=INSTALL,
        )
    if PROVIDERS[provider] not in available:
        raise BackendUnavailableError(
            f"onnxruntime {ort.__version__} has no {PROVIDERS[provider]}",
            why=f"It has {', '.join(available)}.",
            do="Use provider cuda, or the backend tensorrt.",
        )


def in_precision(policy: PolicySpec, precision: str, provider: str) -> str | bytes:
    """The model's path or bytes. Lower precisions are written into it for CUDA's provider, which follows its types.

    TensorRT's has flags of its own. Raises PolicyError for a precision that the provider lacks.
    """
    source = source_of(policy)
    if precision in ("fp32", "tf32") or (provider == "tensorrt" and precision in ("fp16", "bf16")):
        return source
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    if precision in ("int8", "fp8"):
        if precision == "fp8" or not lower.is_quantised(data):
            why, do = "The file holds no scales; nothing is calibrated here.", "Use fp16."
            if precision == "fp8":
                why = f"Its {PROVIDERS[provider].removesuffix('ExecutionProvider')} provider has no fp8 here."
                do = "Use fp16, or the backend tensorrt (--backend tensorrt)."
            raise PolicyError(f"precision {precision} is not offered by onnxruntime for {policy.name}", why=why, do=do)
        return source
    return lower.lower(data, precision, folder=Path(str(policy.path)).parent if policy.path else None)


def open_session(
    policy: PolicySpec,
    options: Mapping[str, Any],
    source: str | bytes,
    providers: list[tuple[str, dict[str, str]]],
    allowed: bool,
) -> Any:
    """The session, with the providers asked for and no other. Raises what `_told` makes of the runtime's refusal."""
    import onnxruntime as ort

    # Its default logger warns of a plugin for each provider that comes with the runtime, as every one here does.
    ort.set_default_logger_severity(3)
    settings = session_settings(policy, options)
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "0" if allowed else "1")
    try:
        # Else a provider that fails is answered with a session on the CPU, whose error hides the provider's own.
        session = ort.InferenceSession(source, settings, providers=providers, enable_fallback=0)
    except runtime_errors() as error:
        raise _told(policy, options, source, providers, error) from error
    session.disable_fallback()
    wanted, got = [n for n, _ in providers], session.get_providers()
    if got[: len(wanted)] != wanted:
        raise _unloadable(wanted) or BackendUnavailableError(
            f"onnxruntime fell back from {wanted[0]} to {got[0] if got else 'nothing'}",
            do="nvidia-smi says whether the driver is there.",
        )
    return session


def _told(
    policy: PolicySpec,
    options: Mapping[str, Any],
    source: str | bytes,
    providers: list[tuple[str, dict[str, str]]],
    error: BaseException,
) -> Exception:
    text, precision = str(error), str(options.get("precision") or "fp32")
    if faults.is_out_of_memory(error):
        return faults.out_of_memory(policy.name, error)
    # A provider whose libraries are missing is left out in silence: every node is then one of the CPU's.
    if (missing := _unloadable([name for name, _ in providers])) is not None:
        return missing
    if "graph capture feature" in text:
        return InvalidMeasurementError(
            f"{policy.name}: a CUDA graph was asked for, and onnxruntime can't make one of it",
            why="Part of it runs on the CPU, or it branches (If, Loop, Scan).",
            do=WITHOUT_GRAPH,
            detail=first_line(error),
        )
    if "fallback to CPU EP has been explicitly disabled" in text or "disable_cpu_ep_fallback" in text:
        try:
            named = cpu_nodes(policy, options, source, providers)
        except runtime_errors():
            named = []  # naming them is a service; the refusal stands without
        listed = ", ".join(shown(n, 60) for n in named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        return InvalidMeasurementError(
            f"{policy.name}: onnxruntime would run part of it on the CPU",
            why=f"Nodes without a kernel of {providers[0][0]}: {listed or 'not named'}.",
            do="Allow them and have them listed: --backend-option allow_cpu_nodes=true",
        )
    if precision in ("fp16", "bf16"):  # the file is sound: what is refused is what it was rewritten to
        return PolicyError(
            f"{policy.name}: onnxruntime can't compute part of it in {precision}",
            do=f"Use {'fp16, ' if precision == 'bf16' else ''}tf32 or fp32.",
            detail=first_line(error),
        )
    return refused(policy, error)


def _unloadable(providers: list[str]) -> BackendUnavailableError | None:
    """The first provider whose library can't be loaded, with what the loader says; None when all can."""
    import onnxruntime as ort

    folder = Path(ort.__file__).parent / "capi"
    for provider in providers:
        name = provider.removesuffix("ExecutionProvider").lower()
        try:
            ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
            ctypes.CDLL(str(folder / f"libonnxruntime_providers_{name}.so"))
        except OSError as error:
            return faults.library_missing(f"onnxruntime's {provider}", error, _source_of_library(str(error)))
    return None


def _source_of_library(text: str) -> str:
    library = faults.missing_library(text) or ""
    if library.startswith("libcuda.so"):
        return "Install the NVIDIA driver."
    if library.startswith(("libnvinfer", "libnvonnxparser")):
        return "Install the TensorRT that this onnxruntime was built for, or use provider cuda."
    return LIBRARIES
