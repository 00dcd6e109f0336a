"""ONNX Runtime on a CUDA device: I/O bound to static buffers, one stream, its CUDA graph where asked for, no node on the CPU unasked.

The session computes on our stream and is told not to wait at a step's end: copies, policy and read-back are queued together and
waited for once.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf.backends import cpu_options
from robot_perf.backends.gpu import cudart, faults
from robot_perf.backends.gpu import options as device_options
from robot_perf.backends.gpu.buffers import Buffers
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.backends.gpu.work import StreamWork
from robot_perf.backends.onnxruntime import (
    check_signature,
    known_sizes,
    refused,
    runtime_errors,
    session_settings,
    source_of,
)
from robot_perf.backends.protocol import Runner
from robot_perf.backends.text import first_line
from robot_perf.errors import BackendUnavailableError, InvalidMeasurementError, PolicyError, UsageError
from robot_perf.policies.asked import shown
from robot_perf.policies.observations import random_array
from robot_perf.policies.onnxfile import lower
from robot_perf.specs import PolicySpec

PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
CPU = "CPUExecutionProvider"
OWN = ("provider", "allow_cpu_nodes", "inter_threads", "conv_search")
INSTALL = 'pip uninstall onnxruntime; pip install "robot-perf[onnx-gpu]" (never both: they share one folder)'
# The first runs allocate and choose kernels; with a CUDA graph the runtime captures in the second or third of them.
WARM_UPS = 4


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner on a CUDA device.

    Options: those of `gpu.options`; `provider` (cuda, tensorrt), `allow_cpu_nodes` (False), `threads`, `inter_threads`,
    `conv_search` (the provider's own `cudnn_conv_algo_search`). Raises BackendUnavailableError for a missing provider or
    library, PolicyError for a model or node that it does not take.
    """
    settled = device_options.read(options, "onnxruntime", own=OWN)
    provider = str(options.get("provider") or "cuda")
    if provider not in PROVIDERS:
        raise UsageError(
            f"provider {shown(provider)} is not offered on a CUDA device", why=f"Offered: {', '.join(PROVIDERS)}."
        )
    allowed = cpu_options.flag(options, "allow_cpu_nodes", False)
    _present(provider)
    policy = known_sizes(policy, options)
    device = cudart.open_device(settled)
    preload()
    footprint = cudart.Footprint()
    stream = cudart.Stream(settled)
    # The TensorRT provider has precision flags; CUDA's follows the types in the model.
    source = _in_precision(policy, settled.precision) if provider == "cuda" else source_of(policy)
    chosen = provider_options(provider, settled, stream.address, options)
    session = _session(policy, options, source, chosen, allowed)
    check_signature(policy, session)
    binding, buffers = _bound(policy, session, settled)
    run_options = _run_options()
    raised = runtime_errors()

    def enqueue(run: Any = session.run_with_iobinding) -> None:
        try:
            run(binding, run_options)
        except raised as error:
            raise RuntimeError(f"onnxruntime: {first_line(error)}") from error

    facts = {
        "backend": "onnxruntime",
        **_versions(session),
        **device,
        "provider_options": {k: v for k, v in chosen[0][1].items() if "stream" not in k},
        "allow_cpu_nodes": allowed,
        "captured": settled.cuda_graph,
        "captured_as": "the provider's own graph, without the copies" if settled.cuda_graph else None,
        "launches_per_step": 1 if settled.cuda_graph else None,
        "build_ns": None,
        **({"cpu_nodes": cpu_nodes(policy, source, chosen)} if allowed else {}),
    }
    owned = [binding, session]
    del session  # the list and `enqueue` alone hold it: closing must end it while its stream exists
    work = StreamWork(
        policy.name, settled, stream, buffers, enqueue, lambda: facts | footprint.read(), owned.clear, capturable=False,
        countable=not settled.cuda_graph,
    )  # fmt: skip
    _warm_up(policy, work, settled)
    return QueuedRunner(policy, work)


def preload() -> str:
    """Loads CUDA's and cuDNN's libraries from wherever pip put NVIDIA's packages; what the runtime printed about it."""
    import onnxruntime as ort

    if not hasattr(ort, "preload_dlls"):
        return ""  # before 1.21 the loader's path alone decides
    spec = importlib.util.find_spec("nvidia")
    roots = [str(Path(p).parent) for p in (spec.submodule_search_locations or [])] if spec is not None else []
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for root in roots:
            ort.preload_dlls(directory=root)
    return said.getvalue()


def provider_options(
    provider: str, settled: DeviceOptions, stream: int, options: Mapping[str, Any]
) -> list[tuple[str, dict[str, str]]]:
    """The providers in order, each with its options as text. Pure: nothing is loaded."""
    cuda = {
        "device_id": str(settled.index),
        "user_compute_stream": str(stream),
        "use_tf32": "0" if settled.precision == "fp32" else "1",
        "enable_cuda_graph": "1" if settled.cuda_graph and provider == "cuda" else "0",
    }
    if options.get("conv_search"):
        cuda["cudnn_conv_algo_search"] = str(options["conv_search"]).upper()
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


def cpu_nodes(policy: PolicySpec, source: str | bytes, providers: list[tuple[str, dict[str, str]]]) -> list[str]:
    """`operator node` of everything that runs on the CPU, from the runtime's own profile of one call of a second session."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    with tempfile.TemporaryDirectory(prefix="robot-perf-") as folder:
        settings.enable_profiling = True
        settings.profile_file_prefix = str(Path(folder) / "nodes")
        own = [
            (n, {k: v for k, v in o.items() if k not in ("user_compute_stream",) and "graph" not in k})
            for n, o in providers
        ]
        session = ort.InferenceSession(source, settings, providers=[*own, CPU])
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


def _present(provider: str) -> None:
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


def _in_precision(policy: PolicySpec, precision: str) -> str | bytes:
    """The model's path or bytes. Lower precisions are written into the model: the provider follows its types."""
    source = source_of(policy)
    if precision in ("fp32", "tf32"):
        return source
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    if precision in ("int8", "fp8"):
        if precision == "fp8" or not lower.is_quantised(data):
            why = (
                "Its CUDA provider has no fp8 kernels."
                if precision == "fp8"
                else "The file holds no scales; nothing is calibrated here."
            )
            raise PolicyError(
                f"precision {precision} is not offered by onnxruntime for {policy.name}", why=why, do="Use fp16."
            )
        return source
    return lower.lower(data, precision, folder=Path(str(policy.path)).parent if policy.path else None)


def _session(
    policy: PolicySpec,
    options: Mapping[str, Any],
    source: str | bytes,
    providers: list[tuple[str, dict[str, str]]],
    allowed: bool,
) -> Any:
    import onnxruntime as ort

    settings = session_settings(policy, options)
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "0" if allowed else "1")
    try:
        session = ort.InferenceSession(source, settings, providers=providers)
    except runtime_errors() as error:
        raise _told(policy, source, providers, error) from error
    session.disable_fallback()
    wanted, got = [n for n, _ in providers], session.get_providers()
    if got[: len(wanted)] != wanted:
        raise _not_loaded(wanted, got)
    return session


def _told(
    policy: PolicySpec, source: str | bytes, providers: list[tuple[str, dict[str, str]]], error: BaseException
) -> Exception:
    text = str(error)
    if faults.is_out_of_memory(error):
        return faults.out_of_memory(policy.name, error)
    if faults.missing_library(text):
        return faults.library_missing(
            "onnxruntime's CUDA provider",
            error,
            "Install CUDA's and cuDNN's libraries: pip install onnxruntime-gpu[cuda,cudnn]",
        )
    if "fallback to CPU EP has been explicitly disabled" in text or "disable_cpu_ep_fallback" in text:
        try:
            named = cpu_nodes(policy, source, providers)
        except runtime_errors():
            named = []  # naming them is a service; the refusal stands without
        listed = ", ".join(shown(n, 60) for n in named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        return InvalidMeasurementError(
            f"{policy.name}: onnxruntime would run part of it on the CPU",
            why=f"Nodes without a kernel of {providers[0][0]}: {listed or 'not named'}.",
            do="Allow them and have them listed: --backend-option allow_cpu_nodes=true",
        )
    return refused(policy, error)


def _not_loaded(wanted: list[str], got: list[str]) -> BackendUnavailableError:
    """The runtime answers a provider that can't be loaded with the next one; why is what its loader says."""
    import onnxruntime as ort

    folder = Path(ort.__file__).parent / "capi"
    name = wanted[0].removesuffix("ExecutionProvider").lower()
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / f"libonnxruntime_providers_{name}.so"))
    except OSError as error:
        return faults.library_missing(f"onnxruntime's {wanted[0]}", error, "pip install onnxruntime-gpu[cuda,cudnn]")
    return BackendUnavailableError(
        f"onnxruntime fell back from {wanted[0]} to {got[0] if got else 'nothing'}",
        do="nvidia-smi says whether the driver is there.",
    )


def _bound(policy: PolicySpec, session: Any, settled: DeviceOptions) -> tuple[Any, Buffers]:
    try:
        buffers = Buffers(policy, settled)
    except cudart.CudaError as error:
        if faults.is_out_of_memory(error):
            raise faults.out_of_memory(policy.name, error) from error
        raise
    binding = session.io_binding()
    for tensor in policy.inputs:
        kind = np.dtype(tensor.dtype).type
        binding.bind_input(tensor.name, "cuda", settled.index, kind, tensor.shape, buffers.inputs[tensor.name])
    for name, address in buffers.outputs.items():
        tensor = next(t for t in policy.outputs if t.name == name)
        binding.bind_output(name, "cuda", settled.index, np.dtype(tensor.dtype).type, tensor.shape, address)
    return binding, buffers


def _run_options() -> Any:
    import onnxruntime as ort

    found = ort.RunOptions()
    # Without it every run ends in a wait of the runtime's own, before the answers are copied.
    found.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return found


def _warm_up(policy: PolicySpec, work: StreamWork, settled: DeviceOptions) -> None:
    """Only for a graph, which the runtime captures in its first runs: without one the loop shall see the first call."""
    if not settled.cuda_graph:
        return
    try:
        for _ in range(WARM_UPS):
            work.rehearse()
    except RuntimeError as error:
        if faults.is_out_of_memory(error):
            raise faults.out_of_memory(policy.name, error) from error
        raise faults.not_captured(policy.name, error) from error
    work.reset()


def _versions(session: Any) -> dict[str, Any]:
    import onnxruntime as ort

    return {"onnxruntime": ort.__version__, "providers": session.get_providers(), "execution": "sequential"}
