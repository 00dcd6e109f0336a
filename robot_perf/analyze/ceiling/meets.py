"""A measurement meets its ceiling: achieved bytes/s and FLOP/s, share of the bound, and what an odd share may mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robot_perf.analyze.ceiling.bound import RESIDENT_SHARE
from robot_perf.analyze.ceiling.check import LOW
from robot_perf.analyze.ceiling.roofline import DTYPE_BYTES
from robot_perf.analyze.validity import invalid_reasons
from robot_perf.devices import bandwidth_of, normalise, peak_of
from robot_perf.errors import UsageError
from robot_perf.run.bench_report import OK, TIGHT, BenchReport
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run
from robot_perf.specs.device import DeviceSpec, PowerMode, ProbeReport
from robot_perf.specs.policy import PolicyCost

_ABOVE = (
    "cache: part of the bytes stayed in L2 or a CPU cache",
    "wrong bytes or FLOP: pruned, fused or early-exit work, or a lower precision than assumed",
    "sparsity: a 2:4-sparse path does half the arithmetic",
    "wrong device or power mode",
)
_LOW = (
    "wrong path: part of the policy ran on the CPU or fell back to another provider",
    "launch overhead: many small kernels, the GPU waits for the host (robot-perf launch overhead)",
    "host time inside the step: copies, synchronising calls, Python",
    "a call too small to fill the device: few rows, short vectors",
)


@dataclass(frozen=True, slots=True)
class CeilingShare:
    """Share of the bound that one measurement reached. Rates in bytes/s and FLOP/s; None: bytes or FLOP unknown.

    `measured` says which clock the time is from. `share` is bound / measured: 1 is the bound itself. `flag` is
    "above", "low", "ok" or "not checkable"; `reasons` are the likely ones for a flag, most likely first.
    """

    name: str
    device: str
    power_mode: str | None
    measured: str
    measured_ns: float
    bound_ns: float | None
    share: float | None
    limited_by: str
    achieved_bytes_s: float | None
    achieved_flop_s: float | None
    bandwidth_share: float | None
    peak_share: float | None
    probe_share: float | None
    flag: str
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def meets_ceiling(
    name: str,
    measured_ns: float,
    cost: PolicyCost,
    device: DeviceSpec,
    mode: PowerMode | None = None,
    *,
    measured: str = "execution",
    dtype: str = "fp32",
    probe: ProbeReport | None = None,
    emc_percent: float | None = None,
) -> CeilingShare:
    """The share of `device`'s bound that one call of `measured_ns` reached. `dtype` is the precision of the arithmetic.

    Bytes that fit in L2 have no DRAM bound: then arithmetic alone is compared. Raises UsageError for a time that isn't
    above 0.
    """
    if not measured_ns > 0:
        raise UsageError(f"{name}: the measured time must be above 0", why=f"Got {measured_ns} ns.")
    notes: list[str] = []
    seconds = measured_ns / 1e9
    moved, flop = cost.bytes_read, cost.flop
    memory_ns = _memory_ns(moved, device, mode, notes)
    compute_ns = _compute_ns(flop, device, mode, dtype, notes)
    known = {k: v for k, v in (("DRAM", memory_ns), ("compute", compute_ns)) if v is not None}
    limit = max(known, key=lambda k: known[k]) if known else "unknown"
    bound = known.get(limit)
    share = None if bound is None else bound / measured_ns
    flag, reasons = _flag(share, memory_ns is None)
    if emc_percent is not None:
        notes.append(f"EMC {emc_percent:g} % busy, all clients together (CPU, cameras, ISP share this memory)")
    elif device.unified_memory:
        notes.append("integrated GPU: CPU, cameras and ISP share this bandwidth; read EMC % beside it (tegrastats)")
    best = probe_bandwidth(probe) if probe else None
    return CeilingShare(
        name=name,
        device=device.name,
        power_mode=mode.name if mode else None,
        measured=measured,
        measured_ns=measured_ns,
        bound_ns=bound,
        share=share,
        limited_by=limit,
        achieved_bytes_s=None if moved is None else moved / seconds,
        achieved_flop_s=None if flop is None else flop / seconds,
        bandwidth_share=None if memory_ns is None else memory_ns / measured_ns,
        peak_share=None if compute_ns is None else compute_ns / measured_ns,
        probe_share=None if best is None or moved is None or memory_ns is None else moved / seconds / best[1],
        flag=flag,
        reasons=reasons,
        notes=tuple(notes),
    )


def run_meets_ceiling(
    run: Run,
    device: DeviceSpec,
    mode: PowerMode | None = None,
    *,
    dtype: str = "fp32",
    probe: ProbeReport | None = None,
) -> CeilingShare:
    """A Run's median step against the device: device time where it was measured, else the call on the host.

    Raises UsageError where the Run is INVALID, holds no finished step, or the policy's cost is unknown.
    """
    if reasons := invalid_reasons(run):
        raise UsageError(
            f"no share of a ceiling: the Run of {run.policy.name} is INVALID", why=reasons[0], do="Measure it again."
        )
    cost = run.policy.cost
    if cost is None:
        raise UsageError(
            f"{run.policy.name}: bytes and FLOP of a call are unknown",
            do="Only policies with a counted graph can be compared.",
        )
    times, measured = step_times_ns(run)
    if times.size == 0:
        raise UsageError(f"{run.policy.name}: the Run holds no finished step of the measured window")
    median = float(np.percentile(times, 50, method="inverted_cdf"))
    share = meets_ceiling(run.policy.name, median, cost, device, mode, measured=measured, dtype=dtype, probe=probe)
    return replace(share, notes=(*_elsewhere(ran_on(run), device), *share.notes))


def ran_on(run: Run) -> tuple[str, ...]:
    """The names of the device that a Run was measured on, as it recorded them; empty where it recorded none."""
    facts, host = run.conditions.get("backend_facts") or {}, run.conditions.get("host") or {}
    options = (run.conditions.get("backend") or {}).get("options") or {}
    known = [facts.get("device_name"), host.get("device_tree_model")]
    if str(options.get("device", "cpu")) == "cpu":
        known.append(host.get("cpu_model"))
    return tuple(str(name) for name in known if name)


def _elsewhere(ran: Sequence[str], device: DeviceSpec) -> tuple[str, ...]:
    """A note where the measurement came from another device than the bound; none where its device is not known."""
    names = {normalise(n) for n in (device.name, *device.aliases, *device.runtime_names, *device.device_tree_models)}
    if not ran or not device.device_class or names & {normalise(name) for name in ran}:
        return ()
    return (
        f"measured on {ran[0]}, but this is the ceiling of {device.name}: the share compares two devices; "
        "name the measured one with --on, or measure on this one",
    )


def bench_meets_ceiling(
    report: BenchReport,
    device: DeviceSpec,
    mode: PowerMode | None = None,
    *,
    dtype: str = "fp32",
    probe: ProbeReport | None = None,
) -> tuple[CeilingShare, ...]:
    """Every valid point of a bench report against the device, in the report's order.

    A report keeps the parameter count alone, so a call is taken to read each parameter once at `dtype` and to do 2 FLOP
    with it: right for one row through linear layers, too low for convolutions and recurrences over several steps.
    Raises UsageError where no point can be compared.
    """
    parameters = {p.name: p.parameters for p in report.policies}
    shares = []
    for row in report.rows:
        count = parameters.get(row.policy)
        for point in row.points:
            measured_ns = point.device_p50_ns or point.p("p50")
            if point.status != OK or not count or not measured_ns:
                continue
            cost = PolicyCost(count, bytes_read=round(count * DTYPE_BYTES[dtype]), flop=2 * count)
            which = "device time, median" if point.device_p50_ns else "execution, median"
            rate = point.rate if point.rate == TIGHT else f"{point.rate} Hz"
            name = f"{row.policy}, {row.backend}, {rate}"
            share = meets_ceiling(name, measured_ns, cost, device, mode, measured=which, dtype=dtype, probe=probe)
            note = "bytes and FLOP from the parameter count: each read once, 2 FLOP each"
            elsewhere = _elsewhere((report.machine.device,), device)
            shares.append(replace(share, notes=(*elsewhere, *share.notes, note)))
    if not shares:
        raise UsageError("the bench report holds no valid point of a policy with parameters")
    return tuple(shares)


def step_times_ns(run: Run) -> tuple[np.ndarray, str]:
    """Each measured step's device time where all have one, else its execution (start to usable action), and its
    name.
    """
    rows = run.measured
    device = rows.get("device_ns")
    if device is not None and device.size and bool((device != NOT_MEASURED).all()):
        return device, "device time, median"
    return rows["end_ns"] - rows["start_ns"], "execution, median"


def probe_bandwidth(probe: ProbeReport) -> tuple[str, float] | None:
    """Kind and bytes/s of the reading that weights compare with: weight streaming, else read, else copy."""
    for kind in ("gemv", "read", "copy"):
        for reading in probe.readings:
            if reading.kind == kind and reading.unit == "bytes/s":
                return kind, reading.median
    return None


def _memory_ns(moved: int | None, device: DeviceSpec, mode: PowerMode | None, notes: list[str]) -> float | None:
    if moved is None:
        notes.append("bytes of a call unknown")
        return None
    if device.l2_bytes is not None and moved < RESIDENT_SHARE * device.l2_bytes:
        notes.append("DRAM bound not applicable (L2-resident)")
        return None
    if device.l2_bytes is None:
        notes.append("L2 size unknown: whether the bytes stay in cache could not be checked")
    try:
        return moved / bandwidth_of(device, mode) * 1e9
    except UsageError as error:
        notes.append(error.what)
        return None


def _compute_ns(
    flop: int | None, device: DeviceSpec, mode: PowerMode | None, dtype: str, notes: list[str]
) -> float | None:
    if flop is None:
        notes.append("FLOP of a call unknown")
        return None
    try:
        return flop / peak_of(device, dtype, mode) * 1e9
    except UsageError as error:
        notes.append(error.what)
        return None


def _flag(share: float | None, no_dram: bool) -> tuple[str, tuple[str, ...]]:
    if share is None:
        return "not checkable", ()
    if share > 1:
        return "above", _ABOVE
    if share < LOW:
        # a call whose weights sit in cache is bound by launches and host time before anything else
        return "low", (*_LOW[1:], _LOW[0]) if no_dram else _LOW
    return "ok", ()
