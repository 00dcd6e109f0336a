"""What limits one kernel: NVIDIA's Speed-Of-Light rule with our side, waves and occupancy (profiles.md section 11, C17, C18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, isnan
from typing import Any

from robot_perf.analyze.diagnose.model import KernelClass
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.profiles.model import NULL, Profile, plain
from robot_perf.profiles.names import short_name
from robot_perf.specs import DeviceSpec

LIMITERS = {
    "limit_registers": "registers",
    "limit_shared": "shared memory",
    "limit_warps": "warps",
    "limit_sm": "blocks",
    "limit_barriers": "barriers",
}
MAX_BLOCKS_PER_SM, THREADS_PER_SM = 32, 2048  # the most that any CUDA device has: they make a lower bound of waves
NUMBERS = ("sm_pct", "mem_pct", "dram_pct", "l2_pct", "l1_pct", "waves", "occ_theoretical_pct", "occ_achieved_pct", "sm_hz", "dram_bytes_s", "dram_read_bytes",
           "dram_write_bytes", "l2_hit_pct", "mem_busy_pct", "max_bw_pct", "issue_active", "tensor_pct", "fma_pct", "passes", *LIMITERS)  # fmt: skip


def classify(sm: float, mem: float, waves: float | None, limits: Thresholds) -> str:
    """The class of NVIDIA's rule; `waves` None leaves small grid and latency apart undecided."""
    if sm >= limits.sol_high_pct or mem >= limits.sol_high_pct:
        return "high throughput"
    if sm < limits.sol_low_pct and mem < limits.sol_low_pct:
        if waves is None:
            return "small grid or latency"
        return "small grid" if waves < 1 else "latency"
    if abs(sm - mem) >= limits.sol_difference:
        return "compute" if sm > mem else "memory"
    return "balanced"


def side_of(
    kind: str, sm: float, mem: float, dram: float | None, l2: float | None, l1: float | None, limits: Thresholds
) -> str | None:
    """Which part "memory" is: the one within half a point of mem, not the largest (a streaming add shows L2 90.2 beside DRAM 87.43)."""
    if kind == "compute":
        return "compute"
    if kind not in ("memory", "high throughput"):
        return None
    if kind == "high throughput" and sm >= limits.sol_high_pct:
        if mem < limits.sol_high_pct:
            return "compute"
        if dram is not None and dram < limits.dram_side_pct:
            return "compute"
    if dram is None and l2 is None:
        return "side not measured"
    parts = (("DRAM", dram), ("L2", l2), ("L1", l1))
    near = [
        (abs(value - mem), name)
        for name, value in parts
        if value is not None and abs(value - mem) <= limits.side_tolerance
    ]
    return min(near)[1] if near else "L1, shared memory or a link"


def waves_of(row: Mapping[str, Any], sm_count: int | None) -> tuple[float | None, str]:
    """(waves or a bound that decides against 1, where it is from). None: neither proved below one wave nor at least one (C18)."""
    if row["waves"] is not None:
        return row["waves"], "launch section"
    grid = _product(row, "grid")
    if grid is None or not sm_count:
        return None, "no waves and no SM count: give --on"
    limit = min((row[name] for name in LIMITERS if row[name]), default=None)
    if limit:
        return grid / (sm_count * limit), f"grid / ({sm_count} SMs x {limit:.0f} blocks)"
    if grid < sm_count:
        return grid / sm_count, f"grid of {grid} < {sm_count} SMs"
    threads = _product(row, "block")
    most = min(MAX_BLOCKS_PER_SM, max(1, THREADS_PER_SM // threads)) if threads else MAX_BLOCKS_PER_SM
    lower = grid / (sm_count * most)
    return (
        (lower, f"at least {lower:.2f}: grid / ({sm_count} SMs x at most {most} blocks)")
        if lower >= 1
        else (None, "no block limits: waves unknown")
    )


def _product(row: Mapping[str, Any], shape: str) -> int | None:
    sizes = [row[f"{shape}_{axis}"] for axis in "xyz"]
    return None if any(s is None for s in sizes) else int(sizes[0] * sizes[1] * sizes[2])


def kernel_classes(
    profile: Profile, limits: Thresholds, device: DeviceSpec | None, probed_bytes_s: float | None = None
) -> list[KernelClass | None]:
    """One class per kernel row; None where the SpeedOfLight section was not collected."""
    table = profile.kernels
    names = (
        *NUMBERS,
        "dur_ns",
        "device",
        "registers",
        "shared_bytes",
        *(f"{s}_{a}" for s in ("grid", "block") for a in "xyz"),
    )
    columns = {name: table[name] for name in names}
    found: list[KernelClass | None] = []
    for i in range(len(table)):
        row = {name: plain(column[i]) for name, column in columns.items()}
        verdict = profile.tool_verdicts[i] if profile.tool_verdicts else None
        stalls = profile.stalls[i] if profile.stalls else None
        facts = profile.device(row["device"] or 0)
        sms = (facts.sm_count if facts else None) or (device.sm_count if device else None)
        found.append(
            _one(table.text("name", i), table.text("nvtx", i), row, sms, verdict, stalls, limits, probed_bytes_s)
        )
    return found


def _one(
    name: str,
    mark: str,
    row: dict[str, Any],
    sms: int | None,
    verdict: str | None,
    stalls: Mapping[str, float] | None,
    limits: Thresholds,
    probed: float | None,
) -> KernelClass | None:
    sm, mem = row["sm_pct"], row["mem_pct"]
    if sm is None or mem is None:
        return None
    waves, source = waves_of(row, sms)
    kind = classify(sm, mem, waves, limits)
    if kind == "small grid or latency" and verdict in ("small grid", "latency"):
        kind, source = verdict, "ncu's own verdict"  # C18: named as the source
    side = side_of(kind, sm, mem, row["dram_pct"], row["l2_pct"], row["l1_pct"], limits)
    done = bool(probed and row["dram_bytes_s"] and row["dram_bytes_s"] >= limits.done_fraction * probed)
    notes = [*_occupancy(row, kind, limits), *_launch_shape(row, waves, sms), *_stalls(row, stalls, kind)]
    if row["dur_ns"] is not None and row["dur_ns"] < limits.short_kernel_ns:
        notes.insert(0, "short: percentages are unstable, the launch gap matters more")
    if done and probed:
        notes.append(
            f"done: at {100 * row['dram_bytes_s'] / probed:.0f} % of the probed bandwidth, only fewer bytes help"
        )
    numbers = {k: v for k, v in row.items() if v is not None and k not in ("device",)} | {
        "sm_count": sms,
        "waves_used": waves,
    }
    return KernelClass(short_name(name), kind, side, row["dur_ns"], numbers, tuple(notes), source, verdict, done, mark)


def _occupancy(row: Mapping[str, Any], kind: str, limits: Thresholds) -> list[str]:
    """Occupancy and its limiter; low occupancy is no fault of a kernel at high throughput."""
    theoretical, achieved = row["occ_theoretical_pct"], row["occ_achieved_pct"]
    notes = []
    if theoretical is not None and theoretical < limits.occupancy_pct:
        present = {name: row[name] for name in LIMITERS if row[name] is not None}
        low = min(present.values(), default=None)
        names = " and ".join(LIMITERS[n] for n, v in present.items() if v == low)
        fine = ", no fault at this throughput" if kind in ("high throughput", "compute") else ""
        notes.append(
            f"theoretical occupancy {theoretical:.1f} %"
            + (f", limited by {names} ({low:.0f} block{'' if low == 1 else 's'} an SM)" if low is not None else "")
            + fine
        )
    if theoretical is not None and achieved is not None and theoretical - achieved > limits.occupancy_gap:
        notes.append(
            f"achieved occupancy {achieved:.1f} % against {theoretical:.1f} %: imbalance, tail, or too few blocks"
        )
    return notes


def _launch_shape(row: Mapping[str, Any], waves: float | None, sms: int | None) -> list[str]:
    notes = []
    threads, grid = _product(row, "block"), _product(row, "grid")
    if threads and threads % 32:
        notes.append(f"block of {threads} threads is no multiple of 32")
    if grid and sms and grid < sms:
        notes.append(f"{grid} block{'' if grid == 1 else 's'} for {sms} SMs: {sms - grid} SMs have none")
    elif grid and sms and grid < 2 * sms:
        notes.append(f"{grid} blocks for {sms} SMs: under two each")
    if waves is not None and waves >= 1 and waves > floor(waves) and 1 / (floor(waves) + 1) >= 0.2:
        notes.append(
            f"tail: the last of {waves:.2f} waves can take up to {100 / (floor(waves) + 1):.0f} % of the duration"
        )
    return notes


def _stalls(row: Mapping[str, Any], stalls: Mapping[str, float] | None, kind: str) -> list[str]:
    """The stall reason that holds over 30 % of the cycles between issues, where the class is latency."""
    if (
        not stalls
        or kind not in ("latency", "small grid", "small grid or latency")
        or (row["issue_active"] or 0) >= 0.8
    ):
        return []
    total = sum(v for v in stalls.values() if not isnan(v))
    reason, value = max(stalls.items(), key=lambda s: s[1])
    return (
        [f"stalled on {reason.replace('_', ' ')} for {100 * value / total:.0f} % of the cycles between issues"]
        if total and value > 0.3 * total
        else []
    )


def matching(timeline: Sequence[tuple[str, tuple[int, ...]]], counters: Sequence[KernelClass]) -> dict[int, int]:
    """Which counter row speaks for which kernel of a timeline: same function name and launch shape, the first of equal ones.

    ncu drops namespaces from the middle of a name, so only the last part of both is compared.
    """
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    for i, c in enumerate(counters):
        shape = tuple(int(c.numbers.get(f"{s}_{a}", NULL)) for s in ("grid", "block") for a in "xyz")
        known.setdefault((c.name.rsplit("::", 1)[-1], shape), i)
    found = {i: known.get((short_name(name).rsplit("::", 1)[-1], shape)) for i, (name, shape) in enumerate(timeline)}
    return {i: at for i, at in found.items() if at is not None}
