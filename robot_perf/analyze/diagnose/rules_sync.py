"""The rule about synchronising calls: they count only where the device idles (profiles.md V4, V7, K9)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from robot_perf.analyze.diagnose import fixes
from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.model import CLEAN, FOUND, Finding
from robot_perf.profiles.model import COPY, CPU_OP, MEMCPY, SYNC

_READS = (
    "aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::equal", "aten::cpu", "aten::to", "aten::copy_", "aten::_to_copy",
)  # fmt: skip
_D2H = 1
MAX_NAMED = 500  # reads whose operator is looked up; the rest follow their shares


def sync(context: Context) -> Finding:
    """V4, V7: synchronising calls count only where the device idles; reads of a value in mid-step that drain the queue are named."""
    inside = context.account.percent(context.account.sync, context.steps.keep)
    inside = 0.0 if np.isnan(inside) else inside
    drained = drains(context)
    share = context.shares["host"] if context.host_name == "sync" else drained["idle_share_pct"]
    evidence = {
        "inside_calls_share_pct": inside,
        "mid_step_reads": drained,
        "calls_per_step": _sync_calls_per_step(context),
    }
    if context.host_name == "sync" and share >= context.limits.listed_share:
        reason = f"{inside:.0f} % of the {context.unit} is idle inside synchronising calls"
        return Finding(
            "sync",
            FOUND,
            reason,
            evidence,
            share,
            tuple(_sync_names(context)),
            fixes.sync(context, share),
            fixes.CONFIRM_STEP,
        )
    if drained["calls"] and share >= context.limits.listed_share:
        names = ", ".join(f"{c['name']} ({c['per_step']:.1f} a step)" for c in drained["calls"][:3])
        reason = f"values are read back in mid-step and the device idles after each: {names}; {share:.0f} % of the {context.unit}"
        return Finding(
            "sync",
            FOUND,
            reason,
            evidence,
            share,
            tuple(c["name"] for c in drained["calls"]),
            fixes.sync(context, share),
            fixes.CONFIRM_STEP,
        )
    return Finding(
        "sync",
        CLEAN,
        context.below(max(inside, share), "idle inside or right after synchronising calls:"),
        evidence,
        inside,
    )


def drains(context: Context) -> dict[str, Any]:
    """Reads of a device value in mid-step (a d2h copy with own work after it) and the host-late idle time that follows each."""
    work, steps, gaps = context.work, context.steps, context.account.gaps
    copies = np.flatnonzero(
        (work.ops["kind"] == MEMCPY) & (work.ops["copy"] == _D2H) & (steps.owner >= 0) & work.linked
    )
    if steps.whole or not len(copies) or not len(gaps.start):
        return {"calls": [], "idle_share_pct": 0.0, "per_step": 0.0}
    last = np.full(len(steps), np.iinfo(np.int64).min)
    np.maximum.at(last, steps.owner[steps.owner >= 0], work.start[steps.owner >= 0])
    mid = copies[work.start[copies] < last[steps.owner[copies]]]
    names: Counter[str] = Counter()
    reads = 0
    idle = np.zeros(len(steps), np.int64)
    stage = (
        context.limits.stage_share * context.account.idle
        if context.host_name == "host stage"
        else np.full(len(steps), np.inf)
    )
    by_start = {int(s): i for i, s in enumerate(gaps.start.tolist())}
    for row in mid:
        gap = by_start.get(int(work.end[row]))
        if (
            gap is None or gaps.late[gap] <= 0 or gaps.late[gap] >= stage[gaps.step[gap]]
        ):  # a host stage has its own rule
            continue
        idle[gaps.step[gap]] += gaps.late[gap]
        reads += 1
        if reads <= MAX_NAMED:
            names[_reader(context, int(work.call[row]))] += 1
    kept = max(1, int(steps.keep.sum()))
    share = context.account.percent(idle, steps.keep)
    scale = reads / max(1, min(reads, MAX_NAMED))
    calls = [{"name": n, "per_step": c * scale / kept} for n, c in names.most_common(5)]
    return {"calls": calls, "idle_share_pct": 0.0 if np.isnan(share) else share, "per_step": reads / kept}


def _reader(context: Context, call: int) -> str:
    """The operator that made the copy call: the outermost known reading op around it, else the call itself."""
    ranges, calls = context.profile.ranges, context.profile.apis
    at = int(calls["start_ns"][call])
    around = np.flatnonzero((ranges["kind"] == CPU_OP) & (ranges["start_ns"] <= at) & (ranges["end_ns"] > at))
    names = [ranges.text("name", int(i)) for i in around[np.argsort(-ranges["dur_ns"][around], kind="stable")]]
    known = next((r for r in _READS if r in names), None)
    return known or (names[-1] if names else calls.text("name", call))


def _sync_names(context: Context) -> list[str]:
    calls = context.profile.apis
    blocking = (calls["kind"] == SYNC) | (calls["kind"] == COPY)
    names = Counter(calls.strings[i] for i in calls["name"][blocking] if "Async" not in calls.strings[i])
    return [n for n, _ in names.most_common(3)]


def _sync_calls_per_step(context: Context) -> float | None:
    """Synchronising calls that start inside a step's range, median over steps."""
    steps, calls = context.steps, context.profile.apis
    if steps.whole or not len(calls):
        return None
    at = np.sort(calls["start_ns"][calls["kind"] == SYNC])
    count = np.searchsorted(at, steps.range_end) - np.searchsorted(at, steps.range_start)
    return float(np.median(count[steps.keep]))
