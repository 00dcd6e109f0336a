"""Where the time of each window goes: shares that add up exactly, gaps and their causes (profiles.md T3, T9 to T12)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.diagnose.intervals import Int
from robot_perf.analyze.diagnose.steps import Steps
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.diagnose.work import Work
from robot_perf.profiles.model import NULL

LEAD_IN, INNER, TAIL = range(3)
PLACES = ("lead-in", "inner", "tail")


@dataclass(frozen=True, eq=False)
class Gaps:
    """Idle intervals inside windows. late + queued + unknown + overhead = length, for each."""

    step: Int
    start: Int
    end: Int
    place: Int
    op: Int  # the op that ends the gap; -1 for a tail
    late: Int  # the host had not launched the next op yet
    late_end: Int
    sync: Int  # the part of late inside synchronising calls of the launching thread
    queued: Int  # launched before: a dependency, the inside of a graph, or work that the file doesn't hold
    unknown: Int
    overhead: Int  # profiler overhead, module or lazy loading: taken out of the window

    @property
    def length(self) -> Int:
        """Length of each gap, ns."""
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class Account:
    """Per window, ns. compute + copy + communication + late + queued + unknown = window, overhead taken out."""

    window: Int
    compute: Int
    copy: Int
    communication: Int
    late: Int
    sync: Int
    queued: Int
    unknown: Int
    overhead: Int
    gaps: Gaps

    @property
    def idle(self) -> Int:
        """Idle time of each window without profiler overhead."""
        return self.late + self.queued + self.unknown

    def percent(self, part: Int, keep: NDArray[np.bool_]) -> float:
        """Median over the kept steps of a part's share of its window, in percent."""
        window = self.window[keep]
        good = window > 0
        return float(np.median(100.0 * part[keep][good] / window[good])) if good.any() else float("nan")


def account(work: Work, steps: Steps, limits: Thresholds) -> Account:
    """Shares of every window, in the order compute, communication, copies, idle; they add up to the window exactly."""
    low, high = steps.window_start, steps.window_end
    compute_union, kernel_union, all_union = work.unions
    compute = compute_union.inside(low, high)
    kernels = kernel_union.inside(low, high)
    busy = all_union.inside(low, high)
    gaps = _gaps(work, steps, limits)
    sums = [np.zeros(len(low), np.int64) for _ in range(5)]
    for total, part in zip(sums, (gaps.late, gaps.sync, gaps.queued, gaps.unknown, gaps.overhead), strict=True):
        np.add.at(total, gaps.step, part)
    late, sync, queued, unknown, overhead = sums
    window = high - low - overhead
    result = Account(window, compute, busy - kernels, kernels - compute, late, sync, queued, unknown, overhead, gaps)
    total = result.compute + result.copy + result.communication + result.idle
    if not np.array_equal(total, window):
        raise AssertionError("the shares of a window do not add up to it")  # a fault of ours, not of the file
    return result


def _gaps(work: Work, steps: Steps, limits: Thresholds) -> Gaps:
    parts = []
    for number, (low, high) in enumerate(zip(steps.window_start.tolist(), steps.window_end.tolist(), strict=True)):
        starts, ends = work.unions[2].gaps(low, high)
        places = np.full(len(starts), INNER)
        places[starts == low] = LEAD_IN
        # a gap that reaches the window's end without an op starting there is its tail
        at = np.searchsorted(work.start, ends, "left")
        begins = (at < len(work.start)) & (work.start[np.minimum(at, len(work.start) - 1)] == ends)
        places[(ends == high) & ~begins] = TAIL
        parts.append((np.full(len(starts), number), starts, ends, places, np.where(begins, at, -1)))
    step, start, end, place, op = (np.concatenate(p) for p in zip(*parts, strict=True))
    return _causes(work, steps, limits, step, start, end, place, op)


def _causes(work: Work, steps: Steps, limits: Thresholds, step: Int, start: Int, end: Int, place: Int, op: Int) -> Gaps:
    """The cause of each gap, first match of T11; the overhead inside it comes out of whichever part it lies in."""
    tail = op < 0
    at = np.maximum(op, 0)
    linked = ~tail & work.linked[at]
    call_start = np.where(linked, work.of_call("start_ns")[at], NULL)
    call_end = np.where(linked, work.of_call("end_ns")[at], NULL)
    began = call_start >= start
    running = (call_start < start) & (call_end > start) & work.first_of_call[at]
    late = linked & (began | running)
    soon = work.start[at] - call_end <= limits.short_queue_ns
    late_end = np.where(
        tail, end, np.where(late, np.where(soon, end, np.minimum(np.maximum(call_end, start), end)), start)
    )
    unknown = ~tail & ~linked
    overhead = work.overhead.inside(start, end)
    late_ns = late_end - start - work.overhead.inside(start, late_end)
    rest = end - late_end - work.overhead.inside(late_end, end)
    thread = np.where(linked, work.of_call("thread")[at], steps.thread[step] if len(steps.thread) else NULL)
    sync = np.zeros(len(start), np.int64)
    for number, calls in work.blocking.items():
        mine = thread == number
        sync[mine] = np.minimum(calls.inside(start[mine], late_end[mine]), late_ns[mine])
    zero = np.zeros(len(start), np.int64)
    return Gaps(
        step, start, end, place, op, np.where(unknown, zero, late_ns), late_end, sync, np.where(unknown, zero, rest), np.where(unknown, end - start - overhead, zero), overhead
    )  # fmt: skip
