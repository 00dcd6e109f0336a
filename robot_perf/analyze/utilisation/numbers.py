"""Utilisation numbers out of samples: mean, least, most, how many, over which period, and what each says and doesn't.

Window cuts are by the sample's CLOCK_MONOTONIC time. A counter that covers the time between two samples belongs to a window only
when all of that time does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.analyze.utilisation.model import HostTime, Reading

Sample = Mapping[str, Any]

_KERNEL_RAN = "share of the time in which at least one kernel ran; not how much of the GPU it used"
# field -> (label, unit, what it says)
FIELDS: dict[str, tuple[str, str, str]] = {
    "utilisation_pct": ("nvidia-smi utilisation", "%", _KERNEL_RAN),
    "driver_samples": ("the driver's own samples of it", "%", _KERNEL_RAN),
    "graphics_engine_pct": ("graphics engine active", "%", "any compute or graphics work was on the engine"),
    "sm_activity_pct": ("SM activity", "%", "SMs with at least one warp, waiting warps included; mean over all SMs"),
    "sm_occupancy_pct": ("SM occupancy", "%", "resident warps of all that fit, over all of the time"),
    "tensor_activity_pct": ("tensor pipe", "%", "cycles with a tensor operation, mean over all SMs"),
    "fp32_activity_pct": ("FP32 pipe", "%", "cycles with FP32 arithmetic, mean over all SMs"),
    "fp16_activity_pct": ("FP16 pipe", "%", "cycles with FP16 arithmetic outside the tensor pipe"),
    "dram_bandwidth_pct": ("DRAM bandwidth", "%", "bytes moved of what the memory could, over all of the time"),
    "memory_controller_pct": (
        "nvidia-smi memory utilisation",
        "%",
        "share of the time in which memory was read or written",
    ),
    "pcie_rx_mib_s": ("PCIe to the GPU", "MiB/s", "traffic"),
    "pcie_tx_mib_s": ("PCIe from the GPU", "MiB/s", "traffic"),
    "nvlink_rx_mib_s": ("NVLink in", "MiB/s", "traffic"),
    "nvlink_tx_mib_s": ("NVLink out", "MiB/s", "traffic"),
}
RATES = ("utilisation_pct", "memory_controller_pct")  # NVML's nvmlUtilization_t


def readings(kept: Mapping[str, Any], low_ns: int, high_ns: int) -> tuple[Reading, ...]:
    """Every field's Reading within [low, high]. `kept` is what the sampler keeps: samples, source, reason, gpu_reasons."""
    samples = [s["gpu"] for s in kept.get("samples", ()) if isinstance(s.get("gpu"), Mapping)]
    inside = [s for s in samples if low_ns <= s["at_ns"] <= high_ns]
    why = str(kept.get("reason") or "no sample in the window")
    return tuple(_reading(field, inside, low_ns, kept, why) for field in FIELDS)


def _reading(field: str, inside: Sequence[Sample], low_ns: int, kept: Mapping[str, Any], why: str) -> Reading:
    label, unit, says = FIELDS[field]
    source = "GPM counters" if field not in (*RATES, "driver_samples") else str(kept.get("source") or "NVML")
    if field == "driver_samples":
        return _driver(inside, kept, why)
    weights: list[float] = []
    values: list[float] = []
    for sample in inside:
        value = sample.get(field)
        covered = sample.get("gpm_ns", 0) if source == "GPM counters" else 0
        if isinstance(value, (int, float)) and sample["at_ns"] - covered >= low_ns:
            values.append(float(value))
            weights.append(float(covered) or 1.0)
    if not values:
        reason = str(kept.get("gpu_reasons", {}).get(field) or (kept.get("reason") or "no sample in the window"))
        return Reading(field, label, unit, source, says, reason=reason)
    period = float(np.median(weights)) / 1e9 if source == "GPM counters" else _period_s(inside)
    mean = float(np.average(values, weights=weights))
    return Reading(field, label, unit, source, says, mean, min(values), max(values), len(values), period)


def _period_s(inside: Sequence[Sample]) -> float | None:
    """The driver's own period where it shows one: its numbers are renewed that often, however often they are read."""
    stamps = sorted({s[0] for sample in inside for s in sample.get("driver_samples", ())})
    return float(np.median(np.diff(stamps))) / 1e6 if len(stamps) > 2 else None


def _driver(inside: Sequence[Sample], kept: Mapping[str, Any], why: str) -> Reading:
    label, unit, says = FIELDS["driver_samples"]
    # the first look brings the driver's memory of the time before the window
    values = [float(s[1]) for sample in inside[1:] for s in sample.get("driver_samples", ())]
    if not values:
        reason = str(kept.get("gpu_reasons", {}).get("driver_samples") or kept.get("reason") or why)
        return Reading("driver_samples", label, unit, "NVML", says, reason=reason)
    return Reading("driver_samples", label, unit, "NVML", says, float(np.mean(values)), min(values), max(values), len(values), _period_s(inside))  # fmt: skip


def cost_of_sampling(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What asking cost: median and longest time of one look at the GPU, ns, and how often it was taken."""
    took = [int(s["gpu"]["took_ns"]) for s in kept.get("samples", ()) if isinstance(s.get("gpu"), Mapping)]
    return {"looks": len(took), "every_s": kept.get("every_s"), "median_ns": float(np.median(took)) if took else None, "longest_ns": max(took, default=None)}  # fmt: skip


def host_time(kept: Mapping[str, Any], low_ns: int, high_ns: int, pid: int | None = None) -> HostTime:
    """Differences of the host's counters between the first and the last sample of a process inside the window."""
    samples = [s["host"] for s in kept.get("samples", ()) if low_ns <= s["host"]["at_ns"] <= high_ns]
    mine = [s for s in samples if s.get("pid") is not None and (pid is None or s["pid"] == pid)]
    mine = [s for s in mine if s["pid"] == mine[0]["pid"]] if mine else []
    given = kept.get("host_reasons", {})
    names = {"quota_share": "throttled", "queue_share": "queue", "steal_share": "ticks", "clock_share": "clock"}
    reasons = {share: str(given[key]) for share, key in names.items() if key in given}
    window_ns = samples[-1]["at_ns"] - samples[0]["at_ns"] if len(samples) > 1 else 0
    stopped, elapsed = _difference(mine, "throttled_ns"), _difference(mine, "at_ns", "throttled_ns")
    stops = _difference(mine, "throttled_periods")
    run, wait = _difference(mine, "run_ns"), _difference(mine, "wait_ns")
    steal, ticks = _difference(samples, "steal_ticks"), _difference(samples, "all_ticks")
    clocks = [s["cpu_hz"] / s["cpu_max_hz"] for s in mine if s.get("cpu_hz") and s.get("cpu_max_hz")]
    return HostTime(
        window_s=window_ns / 1e9,
        quota_share=_percent(stopped, elapsed),
        quota_stops=None if stops is None else int(stops),
        queue_share=_percent(wait, None if run is None or wait is None else run + wait),
        steal_share=_percent(steal, ticks),
        clock_share=100 * float(np.median(clocks)) if clocks else None,
        reasons=reasons,
    )


def _difference(samples: Sequence[Sample], key: str, where: str | None = None) -> float | None:
    """Last minus first of `key`, over the samples that have `where` (`key` itself by default)."""
    known = [s for s in samples if s.get(where or key) is not None]
    return float(known[-1][key] - known[0][key]) if len(known) > 1 else None


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole


def neighbours(
    kept: Mapping[str, Any], low_ns: int, high_ns: int, own: Sequence[int], *, on_it: bool = True
) -> tuple[int | None, str]:
    """Other processes with a context on the GPU, the most seen at once; None and why where that can't be told.

    In a container NVML may give the numbers that the host has for them: a list without our own is not compared with it, but
    where ours is known to be on the GPU (`on_it`) a single process is ours.
    """
    lists = [
        s["gpu"]["processes"]
        for s in kept.get("samples", ())
        if isinstance(s.get("gpu"), Mapping) and "processes" in s["gpu"] and low_ns <= s["gpu"]["at_ns"] <= high_ns
    ]
    if not lists:
        given = kept.get("gpu_reasons", {}).get("processes")
        return None, str(given or kept.get("reason") or "no sample in the window")
    ours = set(own)
    if any(ours & set(found) for found in lists):
        return max(len(set(found) - ours) for found in lists), ""
    if max(map(len, lists)) == 0:
        return None, "NVML lists no process at all, not even ours (a container)"
    if max(map(len, lists)) == 1 and on_it:
        return 0, ""  # one process, by another number than ours: a container's
    count = max(map(len, lists))
    return None, f"NVML lists {count} {'process' if count == 1 else 'processes'}, none by a number that is known here"
