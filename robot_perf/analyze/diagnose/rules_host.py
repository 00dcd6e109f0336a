"""Rules about the host's part of a step: launch/CPU, sync, host stage, host ahead, cold start."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_perf.analyze.diagnose import fixes
from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND, Finding
from robot_perf.analyze.diagnose.rules_sync import drains
from robot_perf.units import format_duration


def launch_cpu(context: Context) -> Finding:
    """V4, V5: the host part that is neither waiting in calls nor one stage."""
    step, launch = context.step, context.launch
    share = context.shares["host"]
    named = context.host_name
    if named == "host stage" and context.stage is not None:
        share = max(0.0, share - context.stage.share)
    elif named == "sync":
        share = 0.0
    evidence: dict[str, Any] = {
        k: step.get(k)
        for k in (
            "launches_per_step",
            "graph_launches_per_step",
            "gaps_per_step",
            "gap_median_ns",
            "largest_gap_share_pct",
            "window_median_ns",
        )
    }
    evidence |= {
        k: launch.get(k)
        for k in ("call_median_ns", "call_p99_ns", "short_queue_share", "queue_positive", "queue_linked")
    }
    evidence |= {"compute_share_pct": context.shares["GPU"], "host_share_pct": context.shares["host"]}
    if share < context.limits.listed_share:
        why = (
            context.below(share, "host late")
            if named == "launch/CPU"
            else f"the host part is {named}; the rest of it is {share:.1f} % of the {context.unit}"
        )
        return Finding("launch/CPU", CLEAN, why, evidence, share)
    drained = drains(context)
    if drained["calls"]:
        evidence["drained_by"] = drained
    one_graph = bool(step.get("graph_launches_per_step")) and (step.get("launches_per_step") or 0) <= 1
    count, median = step.get("launches_per_step"), launch.get("call_median_ns")
    launched = (
        "one graph launch a step already"
        if one_graph
        else f"{count:.0f} launches a {context.unit}"
        if count
        else "launches unknown"
    )
    reason = (
        f"{launched}"
        + (f", median call {context.duration(median)}" if median else "")
        + f"; the device waits for the host for {share:.0f} % of the {context.unit}"
    )
    confirm = (
        "the same policy as a CUDA graph, unprofiled: the step shortens by the host part"
        if not one_graph
        else "time the host work before and after the launch"
    )
    return Finding(
        "launch/CPU",
        FOUND,
        reason,
        evidence,
        share,
        (),
        fixes.launch(context, share),
        f"{confirm} ({fixes.CONFIRM_STEP})",
    )


def host_stage(context: Context) -> Finding:
    """V4: one gap with half of the idle time or more, named by the shortest range that covers it."""
    stage = context.stage
    if stage is None or context.host_name != "host stage":
        return Finding(
            "host stage",
            CLEAN,
            f"no single gap has {100 * context.limits.stage_share:.0f} % of the idle time in most steps",
        )
    evidence = {
        "gap_ns": stage.length_ns,
        "share_of_idle": stage.idle_share,
        "name": stage.name,
        "range_ns": stage.range_ns,
    }
    if stage.share < context.limits.listed_share:
        return Finding("host stage", CLEAN, context.below(stage.share, "the longest gap is"), evidence, stage.share)
    named = (
        f"{stage.name} ({format_duration(stage.range_ns or 0)})"
        if stage.name
        else "no range covers it: mark the stages (NVTX, record_function)"
    )
    reason = f"one gap of {format_duration(stage.length_ns)} a {context.unit} holds {100 * stage.idle_share:.0f} % of the idle time: {named}"
    concerned = (stage.name,) if stage.name else ()
    return Finding(
        "host stage",
        FOUND,
        reason,
        evidence,
        stage.share,
        concerned,
        fixes.stage(context, stage.share),
        "time that stage alone on the host, unprofiled",
    )


def host_ahead(context: Context) -> Finding:
    """T8: whether the queue holds work before a step starts; then windows are throughput, not latency."""
    queued = context.launch.get("queue_linked") or 0
    share = 1 - float(context.launch.get("short_queue_share") or 0) if queued else 0.0
    evidence = {
        "queued_share": share,
        "queue_median_ns": context.launch.get("queue_median_ns"),
        "first_op_waits": context.steps.waited,
    }
    if context.steps.host_ahead:
        why = "the first work of most steps waits in the queue" if context.steps.waited else "steps overlap"
        return Finding(
            "host ahead",
            FOUND,
            f"{why}: throughput windows, not latency",
            evidence,
            None,
            (),
            (),
            "an unprofiled run at the control rate measures latency",
        )
    if not queued:
        return Finding("host ahead", CANT, "no device work is linked to its call", evidence)
    if context.steps.whole and share > context.limits.host_ahead_share:
        return Finding(
            "host ahead", FOUND, f"{100 * share:.0f} % of the work waits in the queue for over 20 µs", evidence
        )
    return Finding(
        "host ahead",
        CLEAN,
        f"{100 * share:.0f} % of the work waits in the queue for over 20 µs; steps start with an empty queue",
        evidence,
    )


def cold_start(context: Context) -> Finding:
    """V2, T13: loading that fills the capture, or a first step that is no steady state."""
    if not context.works:
        return Finding("cold start", CANT, context.reasons[0])
    share, steps = context.cold_share, context.steps
    warm = not bool(steps.keep.all())
    evidence = {"overhead_share_of_capture": share, "first_step_left_out": warm, "first_step_ns": int(steps.window_ns[0]), "median_step_ns": float(np.median(steps.window_ns[steps.keep]))}  # fmt: skip
    if share >= context.limits.cold_share:
        reason = f"{100 * share:.0f} % of the capture is profiler overhead, module or lazy loading"
        return Finding(
            "cold start", FOUND, reason, evidence, None, (), (), "capture after warm-up: skip the first steps"
        )
    if warm:
        ratio = evidence["first_step_ns"] / evidence["median_step_ns"]
        return Finding("cold start", FOUND, f"the first step takes {ratio:.1f} times the median: first-call effects, left out of medians", evidence, None, (), (), "robot-perf deadline prints load, first and second call")  # fmt: skip
    if context.reasons:
        return Finding("cold start", CANT, context.reasons[0], evidence)
    return Finding(
        "cold start",
        CLEAN,
        f"{100 * share:.0f} % of the capture is overhead or loading, below {100 * context.limits.cold_share:.0f} %",
        evidence,
    )
