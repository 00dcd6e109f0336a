"""CUDA's and torch's errors as messages a person can act on. Pure text: nothing here touches a device."""

from __future__ import annotations

import re

from robot_perf.backends.shared.text import first_line
from robot_perf.errors import BackendUnavailableError, InvalidMeasurementError, PolicyError, RobotPerfError

_CAPTURE = re.compile(
    r"captur|cudaErrorStreamCapture|operation not permitted|operation would make the legacy stream depend",
    re.IGNORECASE,
)
_MEMORY = re.compile(r"out of memory|cudaErrorMemoryAllocation|OutOfMemory|failed to allocate memory", re.IGNORECASE)
_DEVICES = re.compile(
    r"expected all tensors to be on the same device|but found at least two devices|is on cpu|"
    r"input and parameter tensors are not at the same device|should be the same.*cuda|mat\d? is on|"
    r"same device.*(?:cpu|cuda)|expected.*device.*cuda",
    re.IGNORECASE | re.DOTALL,
)
_DTYPES = re.compile(
    r"expected .*(?:scalar type|dtype)|must have the same dtype|same dtype|not implemented for '?(?:Half|BFloat16)",
    re.IGNORECASE,
)
_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")


def innermost(error: BaseException) -> BaseException:
    """The exception that came first: leaving a capture after a fault raises a second one that hides it."""
    seen: set[int] = set()
    while error.__context__ is not None and id(error.__context__) not in seen:
        seen.add(id(error))
        error = error.__context__
    return error


def missing_library(text: str) -> str | None:
    """The shared library that a loader message names."""
    found = _LIBRARY.search(text)
    return found[1] if found else None


def is_out_of_memory(error: BaseException) -> bool:
    """True for any runtime's way of saying that device memory is used up."""
    return bool(_MEMORY.search(f"{type(error).__name__}: {error}"))


def out_of_memory(
    name: str, error: BaseException, free_bytes: int | None = None, total_bytes: int | None = None
) -> PolicyError:
    """Device memory is used up."""
    room = ""
    if free_bytes is not None and total_bytes is not None:
        room = f"{free_bytes / 2**30:.2f} of {total_bytes / 2**30:.2f} GiB are free."
    return PolicyError(
        f"{name}: the device has too little memory for it",
        why=room,
        do="Free memory on the device, take a smaller precision (fp16), or another device.",
        detail=first_line(error),
    )


def on_device(name: str, device: str, error: BaseException, precision: str = "fp32") -> RobotPerfError | None:
    """What a first call's exception says about the device, or None when it is the policy's own."""
    text = f"{type(error).__name__}: {error}"
    if is_out_of_memory(error):
        return out_of_memory(name, error)
    if _DEVICES.search(text):
        return wrong_device(name, device, detail=last_line(error))
    if precision in ("fp16", "bf16") and _DTYPES.search(text):
        return PolicyError(
            f"{name}: it can't compute in {precision}",
            why="Part of it is fixed to another dtype (a constant, or an operator that lacks this precision).",
            do=f"Export it in {precision}, or run it with precision tf32.",
            detail=last_line(error),
        )
    return None


def wrong_device(name: str, device: str, detail: str = "") -> PolicyError:
    """Part of a policy computes elsewhere."""
    return PolicyError(
        f"{name}: part of it is not on {device}",
        why="It makes or keeps tensors on a device of its own choice, which moving the module does not change.",
        do=f"Export it on {device}, or let its factory take the device as an option.",
        detail=detail,
    )


def not_captured(name: str, error: BaseException) -> InvalidMeasurementError:
    """A CUDA graph was asked for and capturing failed. Never answered by running without the graph."""
    first = innermost(error)
    why = "Its step raised during the capture."
    if _CAPTURE.search(f"{first}"):
        why = (
            "It waits for the device or allocates inside its step: .item(), .cpu(), a condition on a tensor, printing, "
            "or a tensor made on the host."
        )
    return InvalidMeasurementError(
        f"{name}: a CUDA graph was asked for, and its step can't be captured",
        why=why,
        do="Take that out of its step, or measure it with --backend eager.",
        detail=last_line(first),
    )


def keeps_inputs(name: str, held: str, *, graph: bool) -> RobotPerfError:
    """A policy that holds its input after the step, where every step's input lies at one place."""
    kind: type[RobotPerfError] = InvalidMeasurementError if graph else PolicyError
    return kind(
        f"{name}: it keeps its input {held} after a step, and {'a CUDA graph' if graph else 'buffers=mapped'} has one place for "
        "the inputs of all steps",
        why="Where it looks for the observation of an earlier step it would find the newest one.",
        do="Copy it into a buffer that register_buffer made (self.last.copy_(obs)), or "
        + ("use --backend eager." if graph else "use buffers=copy."),
    )


def library_missing(what: str, error: BaseException, install: str) -> BackendUnavailableError:
    """A runtime that is installed and lacks a shared library."""
    library = missing_library(str(error))
    return BackendUnavailableError(
        f"{what} can't be loaded",
        why=f"{library} is missing or not on the loader's path." if library else "",
        do=install,
        detail=first_line(error),
    )


def last_line(error: BaseException) -> str:
    """The telling line: torch puts CUDA's after the operator's, and TorchScript's last of all."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "rror:" in line or "CUDA" in line]
    advice = ("CUDA kernel errors might", "For debugging", "Compile with", "Device-side assertion", "Search for")
    told = [line for line in told if not line.startswith(advice)]
    return first_line(RuntimeError(told[-1])) if told and len(lines) > 1 else first_line(error)
