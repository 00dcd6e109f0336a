"""Rules that a summary can answer (profiles.md S5): short kernels, blocked calls, host ahead."""

from __future__ import annotations

import numpy as np

from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND, Finding, Fix
from robot_perf.analyze.diagnose.work import launch_calls
from robot_perf.profiles.model import KERNEL
from robot_perf.units import format_duration


def short_kernels(context: Context) -> Finding:
    """Found when rows with a mean under 10 us hold half or more of kernel time."""
    table = context.profile.kernels
    rows = table["kind"] == KERNEL
    total = table["total_ns"][rows]
    if not rows.any() or np.isnan(total).all():
        return Finding("short kernels", CANT, "the report has no kernel durations")
    mean, count = table["dur_ns"][rows], table["count"][rows]
    short = mean < context.limits.short_kernel_ns
    share, number = float(total[short].sum() / total.sum()), float(count[short].sum() / count.sum())
    order = np.argsort(-total)[:3]
    names = [table.strings[i] for i in table["name"][rows][order]]
    evidence = {"time_share": share, "kernel_share": number, "kernels": int(count.sum()), "total_ns": float(total.sum()), "mean_ns": float(total.sum() / count.sum()), "top": [{"name": n, "total_ns": float(total[i]), "count": int(count[i])} for n, i in zip(names, order, strict=True)]}  # fmt: skip
    if share >= context.limits.short_kernel_share:
        fix = Fix(
            "CUDA graph, or fused kernels",
            "the launch gaps between short kernels",
            "fixed shapes, start-up",
            "robot-perf bench POLICY --backends eager,cuda_graph",
        )
        reason = f"kernels with a mean under 10 µs hold {100 * share:.0f} % of kernel time and are {100 * number:.0f} % of the kernels"
        return Finding(
            "short kernels",
            FOUND,
            reason,
            evidence,
            None,
            tuple(names),
            (fix,),
            "a timeline: are there gaps between them?",
        )
    return Finding(
        "short kernels",
        CLEAN,
        f"kernels with a mean under 10 µs hold {100 * share:.0f} % of kernel time, below 50 %",
        evidence,
    )


def blocked_calls(context: Context) -> Finding:
    """Found when the mean of a launch call is three times its median or more: calls blocked, launches are not that expensive."""
    calls = context.profile.apis
    rows = np.flatnonzero(launch_calls(calls)) if len(calls) else np.empty(0, np.int64)
    mean, median = calls["dur_ns"][rows].astype(float), calls["med_ns"][rows]
    good = ~np.isnan(median) & (median > 0) if len(rows) else np.empty(0, bool)
    if not len(rows) or not good.any():
        return Finding("blocked calls", CANT, "the report has no launch calls with mean and median")
    ratio = np.where(good, mean / np.where(good, median, 1), 0)
    worst = int(np.argmax(ratio))
    name = calls.text("name", int(rows[worst]))
    evidence = {"calls": [{"name": calls.text("name", int(r)), "count": int(calls["count"][r]), "mean_ns": float(mean[i]), "median_ns": float(median[i]), "ratio": float(ratio[i])} for i, r in enumerate(rows)]}  # fmt: skip
    if ratio[worst] >= context.limits.blocked_ratio:
        reason = f"calls blocked: {name} has a mean of {format_duration(mean[worst])}, {ratio[worst]:.0f} times its median of {format_duration(median[worst])}; a full queue, not the cost of a launch"
        return Finding(
            "blocked calls",
            FOUND,
            reason,
            evidence,
            None,
            (name,),
            (),
            "a timeline with overhead rows: command buffer full inside launch calls",
        )
    return Finding(
        "blocked calls",
        CLEAN,
        f"mean over median of launch calls is at most {ratio[worst]:.1f}, below {context.limits.blocked_ratio:g}",
        evidence,
    )


def host_ahead(context: Context) -> Finding:
    """Found when over half of the launches lie in rows whose median queue is over 20 us."""
    calls = context.profile.apis
    if "queue_med_ns" not in calls.columns:
        return Finding("host ahead", CANT, "the report has no queue times (cuda_kern_exec_sum has)")
    count, queued, median = calls["count"], np.maximum(calls["queue_count"], 0), calls["queue_med_ns"]
    share = float(queued.sum() / count.sum())
    long = float(count[median > context.limits.short_queue_ns].sum() / count.sum())
    evidence = {"queued_share": share, "count": int(count.sum()), "queued": int(queued.sum()), "long_queue_share": long}
    if long > context.limits.host_ahead_share:
        return Finding("host ahead", FOUND, f"{100 * share:.1f} % of the launches were queued, {100 * long:.0f} % in rows with a median queue over 20 µs: launching is not the limit", evidence)  # fmt: skip
    return Finding(
        "host ahead",
        CLEAN,
        f"{100 * long:.0f} % of the launches lie in rows with a median queue over 20 µs, below 50 %",
        evidence,
    )
