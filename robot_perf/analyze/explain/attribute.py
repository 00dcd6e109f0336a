"""What late steps were caused by: the worst steps with the state around them, and one sentence (measurement.md §15.6).

A cause is named only where a column shows it. Long execution with nothing recorded beside it stays "unexplained".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.conditions import mapping
from robot_perf.analyze.timeline import Timeline, timeline
from robot_perf.analyze.types import Outlier
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Column, Run
from robot_perf.stats.binomial import chance_of
from robot_perf.units import format_count, format_duration

__all__ = ["CAUSES", "outliers", "worst_cause"]

CAUSES = (
    "backlog of an earlier late step",
    "late wake-up",
    "work between wake-up and the policy call",
    "the policy's usual execution time",
    "major page faults",
    "Python garbage collection",
    "preemption (involuntary context switches)",
    "many minor page faults",
    "a move to another processor",
    "long execution, unexplained by what was recorded",
)
_CHANCE = 0.05  # of a share of switches among slow steps that fast ones alone would show
_BACKLOG, _WAKE, _BEFORE, _USUAL, _MAJOR, _GC, _PREEMPTED, _MINOR, _MOVED, _UNEXPLAINED = range(len(CAUSES))


@dataclass(frozen=True, eq=False)
class _State:
    """Arrays over executed jobs: the timeline, the host-noise columns (-1 = not measured), the cause of each delay."""

    line: Timeline
    noise: dict[str, Column]
    cause: NDArray[np.int64]
    skipped_after: NDArray[np.int64]


def _state(run: Run) -> _State:
    line = timeline(run)
    names = ("nvcsw", "nivcsw", "minflt", "majflt", "gc_ns", "cpu")
    nothing = np.full(line.executed, NOT_MEASURED, np.int64)
    noise = {name: run.columns[name][line.rows] if name in run.columns else nothing for name in names}
    return _State(line, noise, _causes(line, noise), _following(run, line) - line.step - 1)


def _following(run: Run, line: Timeline) -> Column:
    """The next step that was started after each job, finished or not: what never started in between was dropped."""
    flying = mapping(run, "in_flight").get("step")
    started = np.append(run.columns["step"], flying if isinstance(flying, int) else line.releases)
    started = np.unique(np.append(started[started < line.releases], line.releases))
    following: Column = started[np.searchsorted(started, line.step, side="right")]
    return following


def _causes(line: Timeline, noise: dict[str, Column]) -> NDArray[np.int64]:
    """The largest part of each job's delay, and what was recorded beside it when that part is the execution."""
    if not line.executed:
        return np.zeros(0, np.int64)
    usual = int(np.median(line.execution_ns))
    backlog = line.backlog_ns
    wakeup = np.where(line.waited, line.wake - line.release, 0)
    before = line.start_latency_ns - backlog - wakeup
    excess = line.execution_ns - usual
    other = np.maximum.reduce([backlog, wakeup, before])
    minor = noise["minflt"]
    usual_minor = int(np.median(minor))
    moved = (noise["cpu"] != np.concatenate((noise["cpu"][:1], noise["cpu"][:-1]))) & (noise["cpu"] != NOT_MEASURED)
    conditions = [
        (backlog >= np.maximum.reduce([wakeup, before, excess])) & (backlog > 0),
        (wakeup >= np.maximum(before, excess)) & (wakeup > line.deadline_ns // 10),
        (before >= np.maximum(wakeup, excess)) & (before > line.deadline_ns // 10),
        (excess <= np.maximum(other, usual // 10)) | (usual > line.deadline_ns),
        noise["majflt"] > 0,
        noise["gc_ns"] >= np.maximum(excess // 2, 1),
        noise["nivcsw"] > _usual_switches(noise["nivcsw"], excess > usual // 10),
        minor > 10 * max(usual_minor, 0) + 100,
        moved,
    ]
    order = [_BACKLOG, _WAKE, _BEFORE, _USUAL, _MAJOR, _GC, _PREEMPTED, _MINOR, _MOVED]
    return np.select(conditions, order, default=_UNEXPLAINED).astype(np.int64)


def _usual_switches(switches: Column, slow: NDArray[np.bool_]) -> int:
    """Involuntary switches that explain nothing: a job with more of them is slow more often than chance allows.

    The counter runs from finish to finish, so it holds those of the idle time as well: with a spinning wait in every
    fifth job that was fast. None of the levels tried tells slow from fast: no job is called preempted.
    """
    measured = switches != NOT_MEASURED
    slow_ones, fast_ones = switches[measured & slow], switches[measured & ~slow]
    for level in (0, int(np.quantile(fast_ones, 0.99)) if len(fast_ones) else 0):
        beyond, others = int(np.count_nonzero(slow_ones > level)), int(np.count_nonzero(fast_ones > level))
        if beyond and chance_of(beyond, len(slow_ones), others / max(len(fast_ones), 1)) < _CHANCE:
            return level
    return int(np.iinfo(np.int64).max)


def worst_cause(run: Run) -> str:
    """One sentence on what most misses came from, or "" without a miss.

    A late step and the releases dropped because of it count together, and a step on time answers for those it dropped
    (under `skip`, with a deadline beyond the period); a backlog is charged to the step that began it.
    """
    state = _state(run)
    line = state.line
    cost = line.late + state.skipped_after
    costly = np.flatnonzero(cost)
    if not len(costly):
        return "a step never finished" if line.unfinished else ""
    # the last job at or before each one that is not itself late by backlog
    head = np.maximum.accumulate(np.where(state.cause != _BACKLOG, np.arange(line.executed), 0))
    cause = state.cause[head[costly]]
    charged = np.bincount(cause, weights=cost[costly], minlength=len(CAUSES))
    worst = int(np.argmax(charged))
    text = (
        f"worst cause known: {CAUSES[worst]}, {format_count(int(charged[worst]))} of"
        f" {format_count(int(line.miss.sum()))} misses in {_steps_words(line.late[costly[cause == worst]])}"
    )
    if worst == _USUAL:
        median = format_duration(float(np.median(line.execution_ns)))
        text += f" (median execution {median}, deadline {format_duration(line.deadline_ns)}"
        text += f", period {format_duration(line.period_ns)})" if line.deadline_ns > line.period_ns else ")"
    return text


def _steps_words(late: NDArray[np.bool_]) -> str:
    """`3 late steps`, `3 steps on time that dropped the next releases`, or `3 steps, 1 of them late`."""
    steps, count = len(late), int(np.count_nonzero(late))
    plural = "" if steps == 1 else "s"
    if count == steps:
        return f"{format_count(steps)} late step{plural}"
    if not count:
        return f"{format_count(steps)} step{plural} on time that dropped the next releases"
    return f"{format_count(steps)} steps, {format_count(count)} of them late"


def outliers(run: Run, most: int = 10) -> tuple[Outlier, ...]:
    """The executed steps with the longest response, worst first, each with the state around it."""
    state = _state(run)
    line = state.line
    order = np.argsort(-line.response_ns, kind="stable")[:most]
    return tuple(_outlier(state, int(i)) for i in order)


def _outlier(state: _State, i: int) -> Outlier:
    line = state.line

    def cell(name: str, at: int = i) -> int | None:
        value = int(state.noise[name][at]) if at >= 0 else NOT_MEASURED
        return None if value == NOT_MEASURED else value

    waited = bool(line.waited[i])
    return Outlier(
        step=int(line.step[i]),
        kind="late" if line.late[i] else "on time",
        response_ns=int(line.response_ns[i]),
        start_latency_ns=int(line.start_latency_ns[i]),
        execution_ns=int(line.execution_ns[i]),
        wakeup_ns=int(line.wake[i] - line.release[i]) if waited else None,
        backlog_ns=int(line.backlog_ns[i]),
        skipped_after=int(state.skipped_after[i]),
        gc_ns=cell("gc_ns"),
        nivcsw=cell("nivcsw"),
        nvcsw=cell("nvcsw"),
        minflt=cell("minflt"),
        majflt=cell("majflt"),
        cpu=cell("cpu"),
        cpu_before=cell("cpu", i - 1),
        cause=CAUSES[int(state.cause[i])],
    )
