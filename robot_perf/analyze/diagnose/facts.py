"""Counts and durations that are printed whatever the verdict: devices, launches, queues, copies, kernels (profiles.md T5, T14, V6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_perf.analyze.diagnose.account import Account
from robot_perf.analyze.diagnose.intervals import Int, union
from robot_perf.analyze.diagnose.steps import Steps
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.diagnose.work import Bool, Work, launch_calls
from robot_perf.profiles.model import (
    COMMAND_BUFFER_FULL,
    COPIES,
    GRAPH,
    GRAPH_LAUNCH,
    HOST_MEMORY,
    KERNEL,
    MEMCPY,
    MEMSET,
    NULL,
    Profile,
)

TOP = 5


def profile_counts(profile: Profile, works: list[Work]) -> dict[str, Any]:
    """Kernels, copies, launches, and the busy fraction of the device with most work (T5 b); null where a summary has no timeline."""
    kernels = profile.kernels
    copies = (kernels["kind"] == MEMCPY) | (kernels["kind"] == MEMSET)
    main = works[0] if works else None
    return {
        "kernels": profile.kernel_count,
        "copies": int(kernels["count"][copies].sum()) if len(kernels) else 0,
        "graphs": int((kernels["kind"] == GRAPH).sum()),
        "launches": profile.launch_count,
        "busy_fraction": _ratio(main.unions[2].length, main.last - main.first) if main else None,
        "tool": profile.header.tool,
        "tool_version": profile.header.tool_version,
        "format": profile.header.format,
        "shape": profile.header.shape,
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None


def device_facts(profile: Profile, work: Work, steps: Steps, acc: Account) -> dict[str, Any]:
    """The three busy fractions, each with its name (T5), and the shares of a step on this device."""
    span = work.last - work.first
    kernel = (work.ops["kind"] == KERNEL) & ~work.communication
    only = union(work.start[kernel], work.end[kernel])
    known = profile.device(work.device)
    return {
        "device": work.device,
        "name": known.name if known else None,
        "sm_count": known.sm_count if known else None,
        "ops": len(work.ops),
        "span_ns": span,
        "busy_ns": work.unions[2].length,
        "kernel_busy_ns": union(work.start[work.ops["kind"] == KERNEL], work.end[work.ops["kind"] == KERNEL]).length,
        "busy_fraction_all_device_work": _ratio(work.unions[2].length, span),
        "busy_fraction_kernels_only": _ratio(only.length, span),
        "busy_fraction_compute_within_steps": _finite(acc.percent(acc.compute, steps.keep) / 100),
        "shares_pct": shares(acc, steps),
    }


def shares(acc: Account, steps: Steps) -> dict[str, float | None]:
    """Medians over the steps, percent of the window."""
    parts = {"compute": acc.compute, "copy": acc.copy, "communication": acc.communication, "idle": acc.idle,
             "host_late": acc.late, "queued": acc.queued, "unknown": acc.unknown}  # fmt: skip
    return {name: _finite(acc.percent(part, steps.keep)) for name, part in parts.items()}


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def launch_facts(profile: Profile, work: Work | None, limits: Thresholds) -> dict[str, Any]:
    """Duration of launch calls without a full queue, and how long work waited after its call (T14)."""
    calls = profile.apis
    rows = launch_calls(calls)
    if "start_ns" not in calls.columns or not rows.any():
        return {}
    start, end = calls["start_ns"][rows], calls["end_ns"][rows]
    raw = end - start
    full = profile.overhead["kind"] == COMMAND_BUFFER_FULL
    blocked = union(profile.overhead["start_ns"][full], profile.overhead["end_ns"][full])
    net = raw - _queue_full(profile, rows)
    facts: dict[str, Any] = {
        "calls": int(rows.sum()), "graph_launches": int((calls["kind"] == GRAPH_LAUNCH).sum()), "call_median_ns": float(np.median(raw)), "call_mean_ns": float(raw.mean()),
        "call_p99_ns": float(np.percentile(raw, 99)), "call_median_net_ns": float(np.median(net)), "call_mean_net_ns": float(net.mean()),
        "queue_full_ns": blocked.length, "queue_full_rows": int(full.sum()),
    }  # fmt: skip
    if work is not None and work.linked.any():
        queue = work.queue_ns
        positive = queue[queue > 0]
        facts |= {
            "queue_positive": len(positive), "queue_linked": len(queue), "queue_median_ns": float(np.median(positive)) if len(positive) else None,
            "short_queue_share": float((queue < limits.short_queue_ns).mean()), "linked_share": float(work.linked.mean()),
        }  # fmt: skip
    return facts


def _queue_full(profile: Profile, rows: Bool) -> Int:
    """Nanoseconds of each launch call in which its own thread waited because the command buffer was full (N17 type 8)."""
    calls, overhead = profile.apis, profile.overhead
    start, end, waited = calls["start_ns"][rows], calls["end_ns"][rows], np.zeros(int(rows.sum()), np.int64)
    full = np.flatnonzero(overhead["kind"] == COMMAND_BUFFER_FULL)
    for process, thread in {
        (int(p), int(t)) for p, t in zip(overhead["process"][full], overhead["thread"][full], strict=True)
    }:
        mine = full[(overhead["process"][full] == process) & (overhead["thread"][full] == thread)]
        on = (calls["process"][rows] == process) & (calls["thread"][rows] == thread)
        waited[on] += union(overhead["start_ns"][mine], overhead["end_ns"][mine]).inside(start[on], end[on])
    return waited


def step_facts(work: Work, steps: Steps, acc: Account) -> dict[str, Any]:
    """Windows, launches, gaps and slack of the steps."""
    keep = steps.keep
    window = steps.window_ns[keep]
    length = acc.gaps.length
    per_step = np.bincount(acc.gaps.step, minlength=len(steps))[keep]
    facts: dict[str, Any] = {
        "steps": len(steps), "kept": int(keep.sum()), "name": steps.name, "how": steps.how, "window_median_ns": float(np.median(window)), "window_max_ns": int(window.max()),
        "host_ahead": steps.host_ahead, "whole_capture": steps.whole, "gaps_per_step": float(np.median(per_step)), "gap_median_ns": float(np.median(length)) if len(length) else None,
        "gap_mean_ns": float(length.mean()) if len(length) else None, "gaps_over_1us": int((length >= 1000).sum()), "overhead_ns": int(acc.overhead.sum()),
        **launches_per_step(work, steps),
    }  # fmt: skip
    if len(length):
        largest = np.zeros(len(steps), np.int64)
        np.maximum.at(largest, acc.gaps.step, length)
        facts["largest_gap_share_pct"] = acc.percent(largest, keep)
    if len(steps) > 1:
        start, end = steps.window_start, steps.window_end
        facts["slack_median_ns"] = float(np.median(start[1:] - end[:-1]))
        facts["distance_median_ns"] = float(np.median(np.diff(start)))
    return facts


def launches_per_step(work: Work, steps: Steps) -> dict[str, Any]:
    """Median and extremes of launch calls that a step's own work came from; a graph launch is one call."""
    rows = np.flatnonzero((steps.owner >= 0) & work.linked & np.isin(work.ops["kind"], (KERNEL, GRAPH)))
    if not len(rows):
        return {"launches_per_step": None, "graph_launches_per_step": None}
    pairs = np.unique(np.stack((steps.owner[rows], work.call[rows]), axis=1), axis=0)
    graph = work.calls["kind"][pairs[:, 1]] == GRAPH_LAUNCH
    every = np.bincount(pairs[:, 0], minlength=len(steps))[steps.keep]
    graphs = np.bincount(pairs[graph, 0], minlength=len(steps))[steps.keep]
    return {
        "launches_per_step": float(np.median(every)), "launches_per_step_min": int(every.min()), "launches_per_step_max": int(every.max()),
        "graph_launches_per_step": float(np.median(graphs)), "graph_launches_per_step_min": int(graphs.min()), "graph_launches_per_step_max": int(graphs.max()),
        "ops_per_step": float(np.median(np.bincount(steps.owner[steps.owner >= 0], minlength=len(steps))[steps.keep])),
    }  # fmt: skip


def copy_facts(work: Work, limits: Thresholds) -> list[dict[str, Any]]:
    """Copies by direction and host memory: count, bytes, ns, achieved rate; most time first (V6)."""
    ops = work.ops
    copies = ops["kind"] == MEMCPY
    found = []
    for direction, memory in sorted(
        {(int(c), int(h)) for c, h in zip(ops["copy"][copies], ops["host_mem"][copies], strict=True)}
    ):
        rows = copies & (ops["copy"] == direction) & (ops["host_mem"] == memory)
        sizes = ops["bytes"][rows]
        known = sizes[sizes != NULL]
        spent = int((work.end[rows] - work.start[rows]).sum())
        found.append({
            "direction": COPIES[direction] if direction != NULL else None, "host_memory": HOST_MEMORY[memory] if memory != NULL else None, "count": int(rows.sum()),
            "bytes": int(known.sum()) if len(known) else None, "copy_ns": spent, "rate_bytes_s": float(known.sum() / spent * 1e9) if len(known) == int(rows.sum()) and spent else None,
            "small_copies": int((known < limits.small_copy_bytes).sum()),
        })  # fmt: skip
    return sorted(found, key=lambda c: -c["copy_ns"])


def top_kernels(work: Work, limits: Thresholds) -> dict[str, Any]:
    """The kernels with most time, and the share of kernel time in short ones (V8)."""
    kernels = work.compute & (work.ops["kind"] == KERNEL)
    duration = (work.end - work.start)[kernels]
    total = int(duration.sum())
    if not total:
        return {"kernels": [], "short_kernel_time_share": None, "kernel_median_ns": None}
    names, inverse, counts = np.unique(work.ops["name"][kernels], return_inverse=True, return_counts=True)
    spent = np.bincount(inverse, weights=duration)
    order = np.argsort(-spent)[:TOP]
    return {
        "kernels": [{"name": work.ops.strings[int(names[i])], "count": int(counts[i]), "total_ns": int(spent[i]), "share": float(spent[i] / total)} for i in order],
        "short_kernel_time_share": float(duration[duration < limits.short_kernel_ns].sum() / total),
        "kernel_median_ns": float(np.median(duration)),
    }  # fmt: skip
