"""torch on a CUDA device: whether it can, which arithmetic it uses, one stream a process, its memory."""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any

from robot_perf.backends.gpu import faults
from robot_perf.backends.gpu.options import DeviceOptions, check_priority
from robot_perf.errors import BackendUnavailableError, PolicyError, RobotPerfError, UsageError

LOW = {"fp16": "float16", "bf16": "bfloat16"}
QUANTISED = (
    "torch has no eager int8 or fp8 path for a float module: quantise the network and export it to ONNX "
    "(QuantizeLinear/DequantizeLinear), then run it with onnxruntime or tensorrt"
)
_streams: dict[tuple[int, int], Any] = {}
_TOO_EARLY = -1000  # no device serves anything so early: what a stream of it has is the limit


def open_device(options: DeviceOptions) -> Any:
    """The torch.device, with arithmetic set and its stream current in this thread.

    Raises BackendUnavailableError without CUDA, UsageError for a device that is not there, PolicyError for a precision that
    torch has no means for.
    """
    import torch

    if options.precision in ("int8", "fp8"):
        raise PolicyError(f"precision {options.precision} is not offered by torch", why=QUANTISED + ".")
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        raise BackendUnavailableError(
            f"torch {torch.__version__} is built without CUDA",
            do="Install a CUDA build: https://pytorch.org/get-started (on a Jetson: the vendor's wheel).",
        )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        reason = next((str(w.message).splitlines()[0] for w in said), "")
        raise BackendUnavailableError(
            "torch sees no CUDA device here", do="nvidia-smi says whether the driver does.", detail=reason
        )
    if options.index >= count:
        raise UsageError(
            f"device {options.device}: there {'is' if count == 1 else 'are'} {count} here", why="Counted from cuda:0."
        )
    device = torch.device(options.device)
    if options.precision == "bf16" and not torch.cuda.is_bf16_supported():
        raise PolicyError(f"precision bf16: {torch.cuda.get_device_name(device)} lacks it", do="Use fp16.")
    try:
        torch.cuda.set_device(device)
        set_arithmetic(options.precision)
        torch.cuda.set_stream(stream(options))
    except RuntimeError as error:
        raise device_fault(options.device, error) from error
    return device


def device_fault(device: str, error: BaseException) -> RobotPerfError:
    """The device can't be opened: memory, or a state it is in."""
    if faults.is_out_of_memory(error):
        return faults.out_of_memory(device, error)
    return BackendUnavailableError(f"{device} can't be opened", detail=faults.last_line(error))


def stream(options: DeviceOptions) -> Any:
    """The stream of this process for a device and priority: stages of a pipeline share it, so their order is the host's.

    Not the default stream: a graph can't be captured on that, and a library that synchronises it would wait for the policy.
    """
    import torch

    key = (options.index, options.priority)
    if key not in _streams:
        asked = options.priority
        # CUDA's lowest is 0. Torch clamps what is served too early in silence, to a range of its own: the stream knows.
        made = torch.cuda.Stream(options.index, priority=asked if asked <= 0 else _TOO_EARLY)
        if asked:
            check_priority(asked, 0, int(made.priority), options.device)
        _streams[key] = made
    return _streams[key]


def priority_facts(stream: Any) -> dict[str, Any]:
    """The stream's priority as the device took it."""
    return {"stream_priority": int(stream.priority)}


def set_arithmetic(precision: str) -> None:
    """TF32 off for matrix products and convolutions, except where tf32 was asked for: torch's own default mixes both."""
    import torch

    tf32 = precision == "tf32"
    with warnings.catch_warnings():
        # torch 2.9 renamed these; the old names hold from 2.4 on, and mixing both is an error there.
        warnings.simplefilter("ignore")
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32


def hold_arithmetic(precision: str) -> str:
    """Sets it again where the policy's own code has set it otherwise by now; a note of that, else ""."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            now = {bool(matmul.allow_tf32), bool(cudnn.allow_tf32)}
        except RuntimeError:  # the newer names were used: the older ones can't be read then
            now = set()
        if now == {precision == "tf32"}:
            return ""
        for part in (torch.backends, cudnn):
            if hasattr(part, "fp32_precision"):  # what convolutions take over, by the newer names
                part.fp32_precision = "none"
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    set_arithmetic(precision)
    return f"its code set TF32 otherwise as it was loaded; it was measured with precision {precision}, as asked for"


def place(module: Any, device: Any, precision: str, name: str) -> Any:
    """The module on the device, in its precision. Raises PolicyError when memory does not suffice or it refuses."""
    import torch

    try:
        module = module.to(device)
        if precision in LOW:
            module = module.to(getattr(torch, LOW[precision]))
    except (RuntimeError, NotImplementedError) as error:
        if faults.is_out_of_memory(error):
            raise faults.out_of_memory(name, error, *torch.cuda.mem_get_info(device)) from error
        raise faults.on_device(name, str(device), error, precision) or error from error
    return module


def move_export(program: Any, device: Any) -> Any:
    """A torch.export program with its constants moved too: its graph names the device that it was traced on."""
    try:
        from torch.export.passes import move_to_device_pass
    except ImportError as error:
        import torch

        raise BackendUnavailableError(
            f"torch {torch.__version__} can't move a torch.export program to another device",
            do="Use torch 2.6 or newer.",
        ) from error
    return move_to_device_pass(program, str(device))


def hand_back() -> None:
    """Memory of what nobody holds any more, cycles of objects too, back to the device: torch would keep it from other processes."""
    if "torch" in sys.modules:  # else nothing of it is there
        gc.collect()
        sys.modules["torch"].cuda.empty_cache()


def memory_facts(device: Any) -> dict[str, Any]:
    """Device memory of this process as torch's allocator holds it, and the device's name."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    return {
        "device_name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "integrated": bool(getattr(properties, "is_integrated", False)),
        "cuda": torch.version.cuda,
        "device_memory_bytes": int(torch.cuda.memory_reserved(device)),
        "device_memory_is": "what torch's allocator holds: weights, activations, workspaces, graphs; without the CUDA context",
    }
