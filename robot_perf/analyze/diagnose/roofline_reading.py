"""What bytes and FLOP of a step say about its kernel time (profiles.md V8, section 13). A reading of a timeline, never a class."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.model import StepCost
from robot_perf.units import format_duration

EXPLAINS = 0.6  # a floor of this share of the kernel time may be what limits it; below it can't be


def roofline_reading(context: Context, cost: StepCost) -> dict[str, Any]:
    """Floors of a step's bytes and FLOP against the median kernel time; a missing peak is said, never guessed."""
    facts = context.profile.device(context.work.device)
    device = context.device
    bandwidth = (facts.bandwidth_bytes_s if facts else None) or (device.bandwidth_bytes_s if device else None)
    peak = device.peaks.get(cost.dtype) if device else None
    compute = float(np.median(context.account.compute[context.steps.keep]))
    memory_ns = cost.bytes_read / bandwidth * 1e9 if cost.bytes_read and bandwidth else None
    arithmetic_ns = cost.flop / peak * 1e9 if cost.flop and peak else None
    reading: dict[str, Any] = {
        "kernel_ns": compute,
        "memory_floor_ns": memory_ns,
        "compute_floor_ns": arithmetic_ns,
        "dtype": cost.dtype,
    }
    if memory_ns is None and arithmetic_ns is None:
        return {**reading, "says": "can't answer: no peak for the device; give --on DEVICE"}
    return {**reading, "says": _says(compute, memory_ns, arithmetic_ns)}


def _says(compute: float, memory_ns: float | None, arithmetic_ns: float | None) -> str:
    parts, possible = [], []
    for word, floor in (("bytes", memory_ns), ("FLOP", arithmetic_ns)):
        if floor is not None:
            parts.append(
                f"{word} need {format_duration(floor)} at the peak, {100 * floor / compute:.0f} % of the kernel time of {format_duration(compute)}"
                if compute
                else f"{word} need {format_duration(floor)}"
            )
            if compute and floor >= EXPLAINS * compute:
                possible.append("memory-bound" if word == "bytes" else "compute-bound")
    if possible:
        return "; ".join(parts) + f": may be {' and '.join(possible)}; counters decide"
    excluded = [w for w, floor in (("memory-bound", memory_ns), ("compute-bound", arithmetic_ns)) if floor is not None]
    return "; ".join(parts) + f": not {' and not '.join(excluded)} as a whole"
