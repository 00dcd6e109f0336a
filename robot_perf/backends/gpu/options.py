"""The options of a policy on a CUDA device, read once and refused when they are wrong; the tolerances that a precision earns.

device      cuda:N
precision   fp32 (TF32 off), tf32, fp16, bf16, int8, fp8
sync        auto (the driver's own choice), block (sleep until the device's interrupt), spin (poll from the loop)
cuda_graph  replay the whole step, copies included, as one CUDA graph
buffers     copy (pinned memory and copies), mapped (the device reads and writes the host's memory itself)
marks       CUDA events around each step (the column device_ns)
priority    of the stream, lower is served first: 0 … -5 on most devices (fewer in torch)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robot_perf.backends.shared.cpu_options import COMMON as _COMMON
from robot_perf.errors import UsageError
from robot_perf.policies.asked import shown

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8", "fp8")
SYNCS = ("auto", "block", "spin")
BUFFERS = ("copy", "mapped")
KEYS = ("device", "precision", "sync", "cuda_graph", "buffers", "marks", "priority")
TORCH = ("fp32", "tf32", "fp16", "bf16", "int8", "fp8")  # the last two are refused with a reason of torch's own

# Relative to the largest value of an output, against float32 on a CPU. Half of the unit roundoff is what one product may lose:
# 6e-8 in float32 (but sums of thousands of terms run in another order there), 5e-4 with TF32's and float16's 11 bits,
# 4e-3 with bfloat16's 8, 6e-2 with fp8's 4 (e4m3). Ten times that is allowed for depth and recurrence, twice for fp8; real
# policies of two to four layers stay below a fifth of it. Quantised files carry their scales: the CPU rounds as the device
# does, but a value on the edge may fall a step of 1/127 either way.
TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 5e-3, "bf16": 4e-2, "int8": 2e-2, "fp8": 1.2e-1}


OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # 0: no library of NVIDIA's uses TF32 in this process, whatever it is told


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Settled options. `index` counts CUDA devices as CUDA does, CUDA_VISIBLE_DEVICES obeyed."""

    index: int = 0
    precision: str = "fp32"
    sync: str = "auto"
    cuda_graph: bool = False
    mapped: bool = False
    marks: bool = False
    priority: int = 0

    @property
    def device(self) -> str:
        """`cuda:N`."""
        return f"cuda:{self.index}"

    def facts(self) -> dict[str, Any]:
        """JSON for the report."""
        return {
            "device": self.device,
            "precision": self.precision,
            "sync": self.sync,
            "cuda_graph": self.cuda_graph,
            "buffers": "mapped" if self.mapped else "copy",
            "marks": self.marks,
            "stream_priority": self.priority,
        }


def on_cuda(options: Mapping[str, Any]) -> bool:
    """True when a CUDA device was asked for. Raises UsageError for a device that is neither cpu nor cuda:N."""
    device = options.get("device")
    return device is not None and str(device) != "cpu" and device_index(str(device)) >= 0


def device_index(device: str) -> int:
    """N of `cuda:N`; 0 for `cuda`."""
    name, _, number = device.partition(":")
    if name != "cuda" or (number and not number.isdecimal()) or device.endswith(":"):
        raise UsageError(f"device {device!r} is unknown", why="Allowed: cpu, cuda:0, cuda:1, …")
    return int(number or 0)


def read(
    options: Mapping[str, Any],
    backend: str,
    *,
    own: tuple[str, ...] = (),
    precisions: tuple[str, ...] = PRECISIONS,
    cuda_graph: bool = False,
    buffers: tuple[str, ...] = BUFFERS,
) -> DeviceOptions:
    """The options of a device backend, which has those of `own` as well; `cuda_graph` is its default.

    Raises UsageError for a value that is not allowed, for an option that the backend lacks, and for `device` absent or cpu:
    nothing is moved to a device unasked.
    """
    if not on_cuda(options):
        raise UsageError(f"backend {backend} runs on a CUDA device", do="Add --device cuda:0.")
    known = (*KEYS, *own, *(k for k in _COMMON if k not in KEYS))
    if unknown := [k for k, v in options.items() if k not in known and v is not None]:
        raise UsageError(
            f"backend {backend} has no option {shown(unknown[0])} on a CUDA device",
            why=f"It has: {', '.join(k for k in known if k != 'tolerance')}.",
        )
    precision = _one_of("precision", options.get("precision") or "fp32", precisions, backend)
    if precision == "tf32" and tf32_overridden():
        raise UsageError(
            f"precision tf32 was asked for, and {OVERRIDE}=0 turns TF32 off", do="Unset it, or use precision fp32."
        )
    return DeviceOptions(
        index=device_index(str(options["device"])),
        precision=precision,
        sync=_one_of("sync", options.get("sync") or "auto", SYNCS, backend),
        cuda_graph=boolean("cuda_graph", options.get("cuda_graph", cuda_graph)),
        mapped=_one_of("buffers", options.get("buffers") or "copy", buffers, backend) == "mapped",
        marks=boolean("marks", options.get("marks", False)),
        priority=_priority(options.get("priority", 0)),
    )


def tf32_overridden() -> bool:
    """Whether TF32 is off for the whole process, by its environment."""
    return os.environ.get(OVERRIDE) == "0"


def tolerance(options: Mapping[str, Any]) -> float | None:
    """The relative tolerance against a float32 CPU reference; None on the CPU, whose own is in `backends.check`."""
    if options.get("tolerance") is not None:
        return float(options["tolerance"])
    if not on_cuda(options):
        return None
    return TOLERANCE.get(str(options.get("precision") or "fp32"))


def boolean(name: str, value: Any) -> bool:
    """True or False, from JSON or from a word on the command line."""
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if str(value).lower() not in words:
        raise UsageError(f"{name}={value!r} is neither true nor false")
    return words[str(value).lower()]


def _one_of(name: str, value: Any, allowed: tuple[str, ...], backend: str) -> str:
    if str(value) not in allowed:
        raise UsageError(f"{name} {value!r} is not offered by backend {backend}", why=f"Offered: {', '.join(allowed)}.")
    return str(value)


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"priority {value!r} is not a whole number", why="Lower is served first; 0 is the lowest.")
    return value


def check_priority(asked: int, least: int, greatest: int, device: str) -> None:
    """Raises UsageError for what the device would clamp in silence. Lower is served first: `least` is the larger number."""
    if not greatest <= asked <= least:
        raise UsageError(
            f"priority {asked} is not offered by {device}",
            why=f"It has {least} (the lowest) to {greatest} (served first).",
        )
