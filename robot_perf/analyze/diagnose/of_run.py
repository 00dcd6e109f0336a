"""What a Run alone can say about why its steps are slow: it holds no kernels, but enqueue and device times, first calls, and events."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_perf.analyze.diagnose import RULES
from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND, GPU_UNMEASURED, CantAnswer, Diagnosis, Finding, Fix
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.explain.attribute import worst_cause
from robot_perf.analyze.explain.coldstart import cold_start
from robot_perf.analyze.validity import invalid_reasons
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run
from robot_perf.units import format_duration

NO_TIMELINE = "a Run has no kernel timeline"
CAPTURE = "robot-perf profile POLICY --rate HZ, then robot-perf diagnose its trace"
_EVENTS = ("compile", "recompil", "graph break", "fallback", "capture")


def diagnose_run(run: Run, source: str, limits: Thresholds | None = None) -> Diagnosis:
    """The Diagnosis of a Run: device and enqueue shares where they were measured, first-call effects, fallbacks."""
    used = limits or Thresholds()
    timing = _timing(run)
    host, device = _host(timing, used), _device(timing, used)
    answered = {"launch/CPU": host, "GPU": device, "cold start": _cold(run, used)}
    findings = tuple(answered.get(name) or Finding(name, CANT, NO_TIMELINE) for name in RULES)
    primary, headline = _primary(timing, host, device)
    facts: dict[str, Any] = {
        "timing": timing, "worst_cause": worst_cause(run), "closed_loop": run.loop.period_ns == 0, "state": run.conditions["state"], "steps": len(run.measured["step"]),
    }  # fmt: skip
    cant = (CantAnswer("which kernels, copies and calls", NO_TIMELINE, CAPTURE),)
    label = (
        "closed loop: steps back to back, their rate is throughput and says nothing of a deadline"
        if run.loop.period_ns == 0
        else ""
    )
    profile = {
        "kernels": None,
        "launches": None,
        "busy_fraction": None,
        "format": "run",
        "shape": "run",
        "tool": "robot-perf",
    }
    invalid = next(iter(invalid_reasons(run)), "")
    return Diagnosis(
        primary, headline, findings, profile, facts, label, (), (), cant, (_fallback(run),), (), source, invalid
    )


def _timing(run: Run) -> dict[str, float | None]:
    """Medians over the measured steps, ns; None where the backend gives no device time."""
    steps = run.measured
    execution = (steps["end_ns"] - steps["start_ns"]).astype(float)
    result: dict[str, float | None] = {
        "execution_ns": float(np.median(execution)) if len(execution) else None,
        "device_ns": None,
        "enqueue_ns": None,
    }
    for name, column, start in (("device_ns", "device_ns", None), ("enqueue_ns", "enqueue_end_ns", "start_ns")):
        values = steps.get(column)
        if values is None:
            continue
        known = values != NOT_MEASURED
        if known.any():
            result[name] = float(np.median((values - (steps[start] if start else 0))[known]))
    return result


def _host(timing: dict[str, float | None], limits: Thresholds) -> Finding:
    """Enqueuing that takes longer than the device works: the device waits for the host."""
    execution, device, enqueue = timing["execution_ns"], timing["device_ns"], timing["enqueue_ns"]
    if not execution or device is None or enqueue is None:
        return Finding("launch/CPU", CANT, "this backend measured no device time; " + NO_TIMELINE, timing)
    share = 100 * max(0.0, execution - device) / execution
    evidence = {**timing, "outside_device_work_pct": share}
    if share < limits.listed_share:
        return Finding(
            "launch/CPU",
            CLEAN,
            f"{share:.1f} % of the step is outside device work, below {limits.listed_share:g} %",
            evidence,
            share,
        )
    if enqueue < device:
        return Finding(
            "launch/CPU",
            CANT,
            f"{share:.0f} % of the step is outside device work, but enqueuing is shorter than the device works: which part can't be told",
            evidence,
            share,
        )
    fix = Fix("CUDA graph: one launch a step", f"at most {format_duration(execution - device)} a step", "fixed shapes, memory, capture at start-up", "robot-perf bench POLICY --backends eager,cuda_graph")  # fmt: skip
    reason = f"enqueuing takes {format_duration(enqueue)} of a step of {format_duration(execution)}, the device works {format_duration(device)}"
    return Finding("launch/CPU", FOUND, reason, evidence, share, (), (fix,), CAPTURE)


def _device(timing: dict[str, float | None], limits: Thresholds) -> Finding:
    execution, device = timing["execution_ns"], timing["device_ns"]
    if not execution or device is None:
        return Finding("GPU", CANT, "this backend measured no device time; " + NO_TIMELINE, timing)
    share = 100 * device / execution
    if share < limits.listed_share:
        return Finding(
            "GPU", CLEAN, f"device work is {share:.1f} % of the step, below {limits.listed_share:g} %", timing, share
        )
    return Finding(
        "GPU",
        FOUND,
        f"{GPU_UNMEASURED}: device work, copies included, is {share:.0f} % of the step",
        timing,
        share,
        (),
        (),
        CAPTURE,
    )


def _cold(run: Run, limits: Thresholds) -> Finding:
    """First calls against the steady state (T13's factor)."""
    cold = cold_start(run)
    if not cold.calls or not cold.steady_execution_ns:
        return Finding("cold start", CANT, "the Run holds no warm-up calls, or they never settled")
    ratio = cold.calls[0] / cold.steady_execution_ns
    evidence = {
        "first_call_ns": cold.calls[0],
        "steady_execution_ns": cold.steady_execution_ns,
        "from_call": cold.from_call,
        "releases_missed": cold.would_have_missed,
    }
    if ratio > limits.warmup_factor:
        reason = f"the first call takes {format_duration(cold.calls[0])}, {ratio:.0f} times the steady {format_duration(cold.steady_execution_ns)}"
        missed = f"; {cold.would_have_missed} releases would have been missed" if cold.would_have_missed else ""
        fix = Fix(
            "warm up before the motors are on: the same shapes, until calls settle",
            format_duration(cold.calls[0]),
            "start-up",
        )
        return Finding(
            "cold start",
            FOUND,
            reason + missed,
            evidence,
            None,
            (),
            (fix,),
            "robot-perf deadline prints load, first and second call",
        )
    return Finding(
        "cold start",
        CLEAN,
        f"the first call is {ratio:.1f} times the steady one, below {limits.warmup_factor:g}",
        evidence,
    )


def _fallback(run: Run) -> Finding:
    """Events that must not happen inside the window; the backend counts them."""
    events = [
        str(reason) for reason in run.conditions["invalid"] if any(word in str(reason).lower() for word in _EVENTS)
    ]
    if events:
        return Finding(
            "fallback",
            FOUND,
            "; ".join(events)[:300],
            {"events": events},
            None,
            (),
            (),
            "the Run is INVALID: mend it and measure again",
        )
    return Finding("fallback", CLEAN, "no compile, capture or fallback inside the measured window")


def _primary(timing: dict[str, float | None], host: Finding, device: Finding) -> tuple[str, str]:
    found = sorted(
        (f for f in (host, device) if f.outcome == FOUND and (f.share or 0) >= 30), key=lambda f: -(f.share or 0)
    )
    if not found:
        why = (
            "this backend measured no device time"
            if timing["device_ns"] is None
            else "enqueue and device times leave the cause open"
        )
        return CANT, f"can't answer: {NO_TIMELINE}, and {why}"
    name = GPU_UNMEASURED if found[0].rule == "GPU" else found[0].rule
    return name, f"{name} limits the step ({found[0].share:.0f} % of it)"
