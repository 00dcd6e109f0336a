"""Which intervals are steps, and which window each has (profiles.md T6 to T8, T13)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.diagnose.intervals import Int
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.diagnose.work import Work, loading_in
from robot_perf.errors import UsageError
from robot_perf.profiles.model import ANNOTATION, GRAPH_LAUNCH, NVTX, Profile, Table
from robot_perf.profiles.names import collapse_digits

WHOLE = "whole capture, slack not separable"
PROFILER_STEP = "ProfilerStep#"
MAX_NAMES = 200  # a range that holds nearly all device work is among the longest


@dataclass(frozen=True, eq=False)
class Steps:
    """CPU ranges of the steps and the windows that are accounted. `owner` is the step of each op, -1 for none."""

    name: str
    how: str
    range_start: Int
    range_end: Int
    thread: Int
    window_start: Int
    window_end: Int
    owner: Int
    host_ahead: bool
    waited: bool  # the first op of most steps waited for longer than the threshold
    keep: NDArray[np.bool_]  # False for a warm-up step, which is left out of medians
    whole: bool = False

    def __len__(self) -> int:
        return len(self.window_start)

    @property
    def window_ns(self) -> Int:
        """Window lengths, ns."""
        return self.window_end - self.window_start


def find_steps(profile: Profile, work: Work, limits: Thresholds, pattern: str | None = None) -> Steps:
    """The steps by the first rule that matches; without one, the whole capture as a single window. Raises UsageError for a bad pattern."""
    ranges = profile.ranges
    for how, found in _candidates(profile, work, limits, pattern):
        name = collapse_digits(ranges.text("name", int(found[0])))
        index = found[np.argsort(ranges["start_ns"][found], kind="stable")]
        return _windows(
            profile,
            work,
            limits,
            name,
            how,
            ranges["start_ns"][index],
            ranges["end_ns"][index],
            ranges["process"][index],
            ranges["thread"][index],
        )
    launches = np.flatnonzero(profile.apis["kind"] == GRAPH_LAUNCH)
    if len(launches) >= limits.min_steps:
        calls = profile.apis
        return _windows(
            profile, work, limits, "graph launch", "repeated graph launches", calls["start_ns"][launches], calls["end_ns"][launches],
            calls["process"][launches], calls["thread"][launches],
        )  # fmt: skip
    none = np.empty(0, np.int64)
    low, high = np.array([work.first]), np.array([work.last])
    return Steps(
        "",
        WHOLE,
        none,
        none,
        none,
        low,
        high,
        np.zeros(len(work.ops), np.int64),
        False,
        False,
        np.ones(1, bool),
        whole=True,
    )


def _candidates(profile: Profile, work: Work, limits: Thresholds, pattern: str | None) -> list[tuple[str, Int]]:
    """(how, rows of the range table), best first; only the first is used."""
    ranges = profile.ranges
    marks = np.flatnonzero(np.isin(ranges["kind"], (ANNOTATION, NVTX)))
    names = [ranges.strings[i] for i in ranges["name"][marks]] if len(marks) else []
    if pattern is not None:
        return [("ranges that match the pattern", _matching(pattern, marks, names))]
    if not len(marks):
        return []
    collapsed = np.array([collapse_digits(n) for n in names])
    profiler = marks[collapsed == PROFILER_STEP]
    if len(profiler):
        inner = _inner(ranges, profiler, marks[collapsed != PROFILER_STEP], collapsed[collapsed != PROFILER_STEP])
        return [("one annotation in each ProfilerStep", inner)] if inner is not None else [("ProfilerStep", profiler)]
    return _outermost(ranges, work, limits, marks, collapsed)


def _matching(pattern: str, marks: Int, names: list[str]) -> Int:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--steps {pattern!r} is not a regular expression", detail=str(error)) from None
    found = marks[[bool(wanted.search(n)) for n in names]] if len(marks) else marks
    if not len(found):
        known = sorted({collapse_digits(n) for n in names})[:8]
        raise UsageError(
            f"no range matches --steps {pattern!r}", why=f"Ranges in the file: {', '.join(known) or 'none'}."
        )
    return found


def _inner(ranges: Table, outer: Int, others: Int, collapsed: NDArray[np.str_]) -> Int | None:
    """The inner ranges when each outer holds exactly one, all of one name, and no other (K10)."""
    order = np.argsort(ranges["start_ns"][others], kind="stable")
    others, collapsed = others[order], collapsed[order]
    start, end = ranges["start_ns"][others], ranges["end_ns"][others]
    low = np.searchsorted(start, ranges["start_ns"][outer], "left")
    high = np.searchsorted(start, ranges["end_ns"][outer], "right")
    picked = []
    for row, first, last in zip(outer, low, high, strict=True):
        inside = np.flatnonzero(end[first:last] <= ranges["end_ns"][row])
        if len(inside) != 1:
            return None
        picked.append(int(first + inside[0]))
    return others[picked] if len(set(collapsed[picked])) == 1 else None


def _outermost(
    ranges: Table, work: Work, limits: Thresholds, marks: Int, collapsed: NDArray[np.str_]
) -> list[tuple[str, Int]]:
    """The longest group of at least three ranges that holds nearly all linked work; else the longest single range that does."""
    names, inverse = np.unique(collapsed, return_inverse=True)
    totals = np.bincount(inverse.reshape(-1), weights=ranges["end_ns"][marks] - ranges["start_ns"][marks])
    single: Int | None = None
    for number in np.argsort(-totals, kind="stable")[
        :MAX_NAMES
    ]:  # the longest first: the first that fits is the outermost
        rows = marks[collapsed == names[number]]
        if 1 < len(rows) < limits.min_steps or totals[number] <= 0 or (single is not None and len(rows) == 1):
            continue
        if _held(ranges, work, rows) < limits.step_holds:
            continue
        if len(rows) >= limits.min_steps:
            return [("outermost repeated range", rows)]
        single = rows
    return [("outermost single range", single)] if single is not None else []


def _held(ranges: Table, work: Work, rows: Int) -> float:
    """Share of the linked ops whose launch call starts inside one of the ranges."""
    linked = work.linked
    if not linked.any():
        return 0.0
    order = rows[np.argsort(ranges["start_ns"][rows], kind="stable")]
    owner = _assign(work, ranges["start_ns"][order], ranges["end_ns"][order], ranges["process"][order])
    return float((owner[linked] >= 0).mean())


def _assign(work: Work, start: Int, end: Int, process: Int) -> Int:
    """The range in which each op's launch call starts, on any thread of the range's process (T7); -1 for none."""
    owner = np.full(len(work.ops), -1, np.int64)
    began, belongs = work.of_call("start_ns"), work.of_call("process")
    for number in np.unique(process):
        mine = np.flatnonzero(process == number)
        rows = np.flatnonzero(work.linked & (belongs == number))
        if not len(rows):
            continue
        at = np.searchsorted(start[mine], began[rows], "right") - 1
        inside = (at >= 0) & (began[rows] < end[mine][np.maximum(at, 0)])
        owner[rows[inside]] = mine[at[inside]]
    return owner


def _windows(
    profile: Profile,
    work: Work,
    limits: Thresholds,
    name: str,
    how: str,
    start: Int,
    end: Int,
    process: Int,
    thread: Int,
) -> Steps:
    owner = _assign(work, start, end, process)
    count = len(start)
    own = np.flatnonzero(owner >= 0)
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, owner[own], work.start[own])
    np.maximum.at(last, owner[own], work.end[own])
    has = last > np.iinfo(np.int64).min
    window_end = np.maximum(end, np.where(has, last, end))
    overlapping = float((window_end[:-1] > start[1:]).mean()) > 0.1 if count > 1 else False
    waited = _waited(work, owner, first, has, limits)
    ahead = bool(has.any()) and (overlapping or waited)
    window_start = np.where(has, first, start) if ahead else start
    window_end = np.where(has, last, end) if ahead else window_end
    chosen = has if ahead else np.ones(count, bool)
    renumber = np.where(chosen, np.cumsum(chosen) - 1, -1)
    owner = np.where(owner >= 0, renumber[np.maximum(owner, 0)], -1)
    low, high = window_start[chosen], window_end[chosen]
    keep = _without_warmup(profile, start[chosen], high, high - low, limits)
    return Steps(name, how, start[chosen], end[chosen], thread[chosen], low, high, owner, ahead, waited, keep)


def _waited(work: Work, owner: Int, first: Int, has: NDArray[np.bool_], limits: Thresholds) -> bool:
    """In most steps the first own op started long after its call had returned: the queue was not empty (T8)."""
    leading = np.flatnonzero((owner >= 0) & (work.start == first[np.maximum(owner, 0)]))
    if not len(leading):
        return False
    _, unique = np.unique(owner[leading], return_index=True)
    leading = leading[unique]
    wait = work.start[leading] - work.of_call("end_ns")[leading]
    return bool((wait > limits.short_queue_ns).sum() * 2 > int(has.sum()))


def _without_warmup(profile: Profile, start: Int, end: Int, length: Int, limits: Thresholds) -> NDArray[np.bool_]:
    """All steps but a first one that loads modules or lasts over three medians (T13)."""
    keep = np.ones(len(length), bool)
    if len(length) < limits.min_steps:
        return keep
    loads = int(loading_in(profile.overhead).inside(start[:1], end[:1])[0]) > 0
    keep[0] = not (loads or length[0] > limits.warmup_factor * float(np.median(length)))
    return keep
