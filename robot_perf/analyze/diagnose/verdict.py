"""The primary limit of a step, the others above their threshold, and the deadline beside them (profiles.md V1 to V3, section 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_perf.analyze.diagnose import facts
from robot_perf.analyze.diagnose.account import account
from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.fallback import fallback
from robot_perf.analyze.diagnose.intervals import Int
from robot_perf.analyze.diagnose.model import CANT, GPU_UNMEASURED, CantAnswer, Diagnosis, Finding
from robot_perf.analyze.diagnose.roofline_reading import roofline_reading
from robot_perf.analyze.diagnose.rules_device import class_shares
from robot_perf.analyze.diagnose.steps import find_steps
from robot_perf.units import format_duration

CAUSE_OF_IDLE = "cause of idle"


def component_name(context: Context, component: str) -> str:
    """What a component is called in the verdict: the host part by V4, the device part by its class where counters decide."""
    if component == "host":
        return context.host_name
    if component == "GPU":
        labels, covered = class_shares(context)
        return next(iter(labels)) if labels and covered >= 0.5 else GPU_UNMEASURED
    return component


def primary_of(context: Context) -> tuple[str, str]:
    """(primary, why) by V3: the largest part from 30 % on; two within 5 points are mixed."""
    ordered = sorted(context.shares.items(), key=lambda item: -item[1])
    (first, share), (second, runner) = ordered[0], ordered[1]
    idle = context.shares["host"] + context.shares["dependency"] + context.shares["unknown"]
    if first == "unknown" or (
        idle and first in ("host", "dependency") and context.shares["unknown"] >= context.limits.unknown_idle * idle
    ):
        return CANT, f"{CAUSE_OF_IDLE}: the launch calls of the work that ends it are not in the file"
    if share < context.limits.primary_share:
        return (
            CANT,
            f"no part holds {context.limits.primary_share:g} % of the {context.unit}: {component_name(context, first)} {share:.0f} %, {component_name(context, second)} {runner:.0f} %",
        )
    name = component_name(context, first)
    also = f"next {component_name(context, second)} {runner:.1f} %"
    if share - runner <= context.limits.mixed_points and second != "unknown":
        return (
            f"mixed: {name} + {component_name(context, second)}",
            f"{name} {share:.0f} %, {component_name(context, second)} {runner:.0f} % of the {context.unit}",
        )
    return name, f"{share:.0f} % of the {context.unit}; {also}"


def conclude(context: Context, findings: list[Finding]) -> Diagnosis:
    """The Diagnosis of a timeline or a summary."""
    profile = context.profile
    counts = facts.profile_counts(profile, context.works)
    if context.reasons:
        known: dict[str, Any] = {"launch": dict(context.launch)}
        if context.works:
            known |= _timeline_facts(context)
        cant = tuple(CantAnswer("what limits the step", reason, context.capture) for reason in context.reasons)
        return Diagnosis(
            CANT, f"can't answer: {'; '.join(context.reasons)}", tuple(findings), counts, known, "", context.reasons, (), cant, (fallback(context),), profile.header.notes, profile.header.source,
        )  # fmt: skip
    primary, why = primary_of(context)
    reasons = (why,) if primary == CANT else ()
    headline = f"can't answer: {why}" if primary == CANT else f"{primary} limits the {context.unit} ({why})"
    cant = context.open_questions
    if primary == CANT:
        cant = (CantAnswer("what limits the step", why, "a capture whose launches are in the file"), *cant)
    return Diagnosis(
        primary, headline, tuple(findings), counts, _timeline_facts(context), deadline(context), reasons, context.classes, cant, (fallback(context),),
        profile.header.notes, profile.header.source,
    )  # fmt: skip


def _timeline_facts(context: Context) -> dict[str, Any]:
    """Everything counted, whatever the verdict; each device of a multi-device capture is listed."""
    devices = []
    for work in context.works:
        main = work is context.works[0]
        steps = context.steps if main else find_steps(context.profile, work, context.limits, context.pattern)
        devices.append(
            facts.device_facts(
                context.profile, work, steps, context.account if main else account(work, steps, context.limits)
            )
        )
    header = context.profile.header
    return {
        "devices": devices, "step": dict(context.step), "launch": dict(context.launch), "copies": context.copies, **dict(context.kernels), "graph_mode": header.graph_mode,
        "coverage": {**header.coverage, "linked_share": float(context.work.linked.mean())}, "closed_loop": closed_loop(context), "clock_step_ns": header.resolution_ns,
        "ops": sum(len(w.ops) for w in context.works), "roofline": roofline_reading(context, context.cost) if context.cost else None,
    }  # fmt: skip


def closed_loop(context: Context) -> bool:
    """True when steps follow each other without slack: a load generator, whose rate is throughput."""
    steps = context.steps
    if steps.whole or len(steps) < context.limits.min_steps:
        return False
    distance = float(np.median(np.diff(steps.window_start)))
    slack = float(np.median(steps.window_start[1:] - steps.window_end[:-1]))
    return steps.host_ahead or slack <= context.limits.closed_loop_slack * distance


def deadline(context: Context) -> str:
    """Slack against the control period; idle time between steps is slack, not a fault (section 1, T10)."""
    steps = context.steps
    if steps.whole:
        return "no steps: slack is not separable"
    if steps.host_ahead:
        return "host ahead: throughput windows, not latency; the deadline is not judged here"
    window, most = float(np.median(steps.window_ns[steps.keep])), int(steps.window_ns[steps.keep].max())
    text = f"step {context.duration(window)} (p50), {context.duration(most)} (max) under the profiler"
    if context.period_ns is not None:
        return _against_period(steps.window_ns[steps.keep], context.period_ns, text)
    if closed_loop(context):
        return (
            f"{text}; steps follow back to back: a closed loop, its rate is throughput and says nothing of a deadline"
        )
    if len(steps) > 1:
        return f"{text}; {format_duration(float(np.median(steps.window_start[1:] - steps.window_end[:-1])))} of slack between steps (p50)"
    return text


def _against_period(window: Int, period_ns: int, text: str) -> str:
    late = int((window > period_ns).sum())
    if late:
        return f"deadline missed by {late} of {len(window)} steps: {text}, period {format_duration(period_ns)}"
    slack = 100 * (1 - float(np.median(window)) / period_ns)
    return f"deadline met with {slack:.0f} % slack: {text}, period {format_duration(period_ns)}"
