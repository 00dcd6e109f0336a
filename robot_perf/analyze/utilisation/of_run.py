"""Evidence for the ladder from a Run, from the diagnosis of its trace, and from what the sampler kept beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_perf.analyze.diagnose.model import FOUND, Diagnosis
from robot_perf.analyze.timeline import timeline
from robot_perf.analyze.utilisation.model import Busy, Evidence, Inside, Load
from robot_perf.analyze.utilisation.numbers import host_time, neighbours
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run

HOST_RULES = ("sync", "host stage", "launch/CPU")
CUPTI = "torch profiler (CUPTI), a pass of its own at the same rate"
MARKS = "device_ns marks (CUDA events) of the Run: gaps between the kernels of a step count as busy"


def window_ns(run: Run) -> tuple[int, int] | None:
    """First release to last finish of the measured steps; None without a finished step."""
    steps = run.measured
    return (int(steps["release_ns"].min()), int(steps["end_ns"].max())) if len(steps["step"]) else None


def load_of(run: Run) -> Load | None:
    """Steps under way and releases that wait, averaged over time (Little's law). None without steps or a period."""
    line = timeline(run)
    if not line.executed or line.period_ns == 0 or not line.releases:
        return None
    span_ns = line.releases * line.period_ns
    wait = line.start - line.release
    return Load(
        running=min(1.0, float(line.execution_ns.sum()) / span_ns),
        waiting=float(wait.sum()) / span_ns,
        places=1,
        unit="step",
        source="the Run: execution and start latency of its steps",
        rate_hz=1e9 / line.period_ns,
        duration_s=float(line.execution_ns.mean()) / 1e9,
        skipped=line.skipped,
    )


def inside_of(diagnosis: Diagnosis | None, reason: str) -> tuple[Inside | None, str]:
    """The parts of a step from a trace's diagnosis; None and why."""
    if diagnosis is None:
        return None, reason
    devices = diagnosis.facts.get("devices") or []
    if not devices or diagnosis.profile.get("shape") != "timeline" or not devices[0].get("shares_pct"):
        return None, "; ".join(diagnosis.reasons) or "the trace holds no device work"
    shares = devices[0]["shares_pct"]
    if any(v is None for v in shares.values()):
        return None, "; ".join(diagnosis.reasons) or "the trace holds no complete step"
    found = [f for name in HOST_RULES for f in diagnosis.findings if f.rule == name and f.outcome == FOUND]
    return Inside(
        source=CUPTI,
        host_pct=shares["host_late"],
        host_name=" and ".join(f.rule for f in found) or "host",
        host_words="; ".join(f.reason for f in found),
        transfer_pct=shares["copy"],
        communication_pct=shares["communication"],
        dependency_pct=shares["queued"],
        gpu_pct=shares["compute"],
        unknown_pct=shares["unknown"],
        fixes=tuple(fix for f in found for fix in f.fixes),
    ), ""


def busy_of(diagnosis: Diagnosis | None, reason: str, run: Run | None = None, rate_hz: float | None = None) -> Busy:
    """Busy fractions from device work: of the trace, else from the Run's marks, else can't answer."""
    devices = [] if diagnosis is None else diagnosis.facts.get("devices") or []
    if devices:
        d = devices[0]
        steps = (diagnosis.facts.get("step") or {}) if diagnosis is not None else {}
        return Busy(
            CUPTI, _pct(d["busy_fraction_all_device_work"]), _pct(d["busy_fraction_kernels_only"]), _pct(d["busy_fraction_compute_within_steps"]),
            rate_hz, steps.get("steps"), "", {"kernel_median_ns": diagnosis.facts.get("kernel_median_ns") if diagnosis else None, "ops_per_step": steps.get("ops_per_step"), "window_median_ns": steps.get("window_median_ns")},
        )  # fmt: skip
    if run is not None and (values := run.measured.get("device_ns")) is not None:
        known = values[values != NOT_MEASURED]
        if len(known):
            span = timeline(run).releases * run.loop.period_ns
            return Busy(MARKS, 100 * float(known.sum()) / span if span else None, rate_hz=rate_hz, steps=len(known))
    why = reason or ("; ".join(diagnosis.reasons) if diagnosis is not None else "no trace")
    return Busy("none", reason=why)


def _pct(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def evidence_of(run: Run, kept: Mapping[str, Any], diagnosis: Diagnosis | None, trace_reason: str) -> Evidence:
    """All of it. `kept` is what the sampler kept; the processes that it followed are our own."""
    own = sorted({s["host"]["pid"] for s in kept.get("samples", ()) if s["host"].get("pid") is not None})
    window = window_ns(run)
    absent: dict[str, str] = {}
    inside, why = inside_of(diagnosis, trace_reason)
    if inside is None:
        absent["inside"] = why
    load = load_of(run)
    if load is None:
        absent["load"] = "no step finished" if window is None else "steps follow back to back: a load generator has no idle time of its own"  # fmt: skip
    others, why = (None, "no step finished") if window is None else neighbours(kept, *window, own)
    if others is None:
        absent["neighbours"] = why
    devices = [] if diagnosis is None else diagnosis.facts.get("devices") or []
    options = run.conditions["backend"].get("options", {})
    return Evidence(
        load=load,
        inside=inside,
        host=None if window is None else host_time(kept, *window),
        neighbours=others,
        gpus=len(devices) or None,
        on_cpu=str(options.get("device", "cpu")) == "cpu",
        absent=absent,
    )
