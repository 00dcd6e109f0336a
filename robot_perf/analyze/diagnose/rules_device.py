"""Rules about the device's part of a step: transfer, communication, dependency, GPU."""

from __future__ import annotations

from typing import Any

from robot_perf.analyze.diagnose import fixes
from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND, GPU_UNMEASURED, Finding
from robot_perf.profiles.model import COPY
from robot_perf.profiles.names import is_communication
from robot_perf.units import format_bytes


def transfer(context: Context) -> Finding:
    """V6: copies that nothing hides, with direction, bytes, rate and host memory."""
    share = context.shares["transfer"]
    evidence: dict[str, Any] = {"copies": context.copies[:4]}
    if share < context.limits.listed_share:
        return Finding("transfer", CLEAN, context.below(share, "exposed copies are"), evidence, share)
    top = context.copies[0] if context.copies else None
    reason = f"copies that nothing hides take {share:.0f} % of the {context.unit}"
    if top:
        reason += f": {top['count']} {top['direction'] or 'copies'}"
        if top["bytes"]:
            reason += f" of {format_bytes(top['bytes'] / top['count'])} each"
        if top["host_memory"]:
            reason += f", {top['host_memory']} host memory"
        if top["rate_bytes_s"]:
            reason += f", {top['rate_bytes_s'] / 1e9:.1f} GB/s"
        if top["small_copies"] * 2 > top["count"]:
            reason += "; most are under 64 KB, where latency and not bandwidth counts"
    calls = sorted(
        {context.profile.apis.strings[i] for i in context.profile.apis["name"][context.profile.apis["kind"] == COPY]}
    )
    return Finding("transfer", FOUND, reason, evidence, share, tuple(calls[:4]), fixes.transfer(context, share), "the same step with pinned buffers, or with the input already on the device")  # fmt: skip


def communication(context: Context) -> Finding:
    """T2: collectives that no computation hides."""
    share = context.shares["communication"]
    names = tuple(s for s in context.work.ops.strings if is_communication(s))[:4]
    if share < context.limits.listed_share:
        return Finding("communication", CLEAN, context.below(share, "exposed communication is"), {}, share)
    return Finding("communication", FOUND, f"collectives that nothing hides take {share:.0f} % of the {context.unit}", {"devices": len(context.works)}, share, names, fixes.communication(context, share), "the same policy on one device")  # fmt: skip


def dependency(context: Context) -> Finding:
    """T11: idle time before work that was launched long before."""
    share = context.shares["dependency"]
    idle = context.shares["host"] + share + context.shares["unknown"]
    evidence = {
        "gaps_per_step": context.step["gaps_per_step"],
        "gap_mean_ns": context.step["gap_mean_ns"],
        "gap_median_ns": context.step["gap_median_ns"],
    }
    if idle and context.shares["unknown"] >= context.limits.unknown_idle * idle and idle >= context.limits.listed_share:
        return Finding(
            "dependency",
            CANT,
            "cause of idle: half of it or more precedes work whose launch call is not in the file",
            evidence,
            share,
        )
    if share < context.limits.listed_share:
        return Finding("dependency", CLEAN, context.below(share, "idle time before queued work is"), evidence, share)
    gap = context.step["gap_mean_ns"]
    reason = f"{share:.0f} % of the {context.unit} is idle although the work was launched before: {context.step['gaps_per_step']:.0f} gaps a {context.unit}, mean {context.duration(gap or 0)}"
    return Finding(
        "dependency",
        FOUND,
        reason,
        evidence,
        share,
        (),
        fixes.dependency(context, share),
        "a fused version: fewer boundaries, less idle time",
    )


def gpu(context: Context) -> Finding:
    """V8: the device's own work; its class needs counters of kernels with half of the time or more."""
    share = context.shares["GPU"]
    kernels = context.kernels
    evidence: dict[str, Any] = dict(kernels)
    labels, covered = class_shares(context)
    if labels:
        evidence["classes"] = labels
        evidence["counters_cover"] = covered
    if share < context.limits.listed_share:
        return Finding("GPU", CLEAN, context.below(share, "kernels are"), evidence, share)
    names = tuple(k["name"] for k in kernels["kernels"][:3])
    if labels and covered >= 0.5:
        label, part = next(iter(labels.items()))
        reason = f"kernels take {share:.0f} % of the {context.unit}; {label} for {100 * part:.0f} % of the measured kernel time"
        return Finding("GPU", FOUND, reason, evidence, share, names, fixes.gpu(context, list(labels)), "compare with a prediction: --predict PATTERN@linear=ROWSxINNERxOUTER,dtype=bf16")  # fmt: skip
    short = kernels["short_kernel_time_share"]
    reason = f"{GPU_UNMEASURED}: kernels take {share:.0f} % of the {context.unit}"
    if short is not None:
        reason += f"; {100 * short:.0f} % of the kernel time is in kernels under 10 µs"
    return Finding(
        "GPU", FOUND, reason, evidence, share, names, fixes.gpu(context, []), "counters of the longest kernels"
    )


def class_shares(context: Context) -> tuple[dict[str, float], float]:
    """Classes by share of measured kernel time, and the share of the timeline's kernel time that counters cover."""
    from robot_perf.analyze.diagnose.kernel_class import matching

    if not context.classes:
        return {}, 0.0
    listed = context.kernel_totals
    matched = matching([(name, shape) for name, shape, _ in listed], context.classes)
    total = sum(ns for _, _, ns in listed)
    by_label: dict[str, float] = {}
    for row, number in matched.items():
        by_label[context.classes[number].label] = by_label.get(context.classes[number].label, 0.0) + listed[row][2]
    measured = sum(by_label.values())
    ordered = dict(sorted(((k, v / measured) for k, v in by_label.items()), key=lambda i: -i[1])) if measured else {}
    return ordered, measured / total if total else 0.0
