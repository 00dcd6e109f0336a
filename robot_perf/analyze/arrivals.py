"""What a topic's arrivals say from outside: period, gaps, misses within their uncertainty, and a verdict where they allow one.

An observer sees when commands arrive, not when they were released: a gap of g periods hides g-1 skipped releases and perhaps a
late one that ended the gap. So misses are an interval, and the verdict holds only where both its ends agree.

A period that nobody told is fitted to the arrivals. A publisher that sleeps the rest of each period has no grid: its
releases wander with its own delays, so gaps are then told by the distance of neighbours, and there is no verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.distribution import distribution
from robot_perf.analyze.types import Distribution
from robot_perf.analyze.verdict import judge_misses
from robot_perf.specs import Budget
from robot_perf.stats.burst import default_burst, miss_runs

__all__ = ["ArrivalView", "estimate_period", "fitted_period", "grid_indexes", "latency_by_order", "view"]

Ints = NDArray[np.int64]

_FIRST = 32  # arrivals of the first fit; each next one takes twice as many
_NEAR = 0.25  # periods beside the grid within which an arrival counts in a fit
_SEEN = 1.25  # periods between neighbours: a gap without such a distance in or beside it is none
_CONCENTRATED = 0.5  # length of the mean of the arrivals' phases; 1: all alike, 0: spread over the period


@dataclass(frozen=True, slots=True)
class ArrivalView:
    """n arrivals on a grid of `period_ns`. `misses_low` counts only empty releases, `misses_high` one late job more per gap.

    `status` is PASS, FAIL or INCONCLUSIVE, or "can't say" where the two ends of the interval differ or the arrivals have no
    grid (`has_grid`; not asked where the period was given). Deadline: the period. Messages that
    were `lost` on the way to the observer leave empty releases that were none: the low end is less by them, and only a PASS stands.
    """

    received: int
    releases: int
    period_ns: int
    period_estimated: bool
    gaps: int
    misses_low: int
    misses_high: int
    status: str
    max_gap_ns: int | None
    period: Distribution
    has_grid: bool = True


def estimate_period(arrivals_ns: Ints) -> int | None:
    """The median distance of neighbours, ns; None with fewer than three arrivals."""
    return int(np.median(np.diff(arrivals_ns))) if len(arrivals_ns) >= 3 else None


def fitted_period(arrivals_ns: Ints) -> float | None:
    """The period, ns, by least squares of the arrivals on their places on the grid; None with fewer than three.

    The error of the median distance adds up: 0.1 % of it is half a period after 500. So the first fit takes few arrivals
    and each next one twice as many, whose places the period found so far can tell; the last two take all.
    """
    median = estimate_period(arrivals_ns)
    if not median:
        return median
    period, count = float(median), _FIRST
    while count < len(arrivals_ns):
        period = _fit(arrivals_ns[:count], period)
        count *= 2
    return _fit(arrivals_ns, _fit(arrivals_ns, period))


def _fit(arrivals_ns: Ints, period_ns: float) -> float:
    """One fit. Late arrivals, which lie off the grid to one side, stay out of it; so does a slope that can't be one."""
    indexes = grid_indexes(arrivals_ns, period_ns)
    beside = arrivals_ns - arrivals_ns[0] - indexes * period_ns
    near = np.abs(beside - np.median(beside)) <= _NEAR * period_ns
    x = indexes[near] - indexes[near].mean()
    spread = float(x @ x)
    slope = float(x @ (beside[near] - beside[near].mean())) / spread if spread else 0.0
    return period_ns + slope if abs(slope) < _NEAR * period_ns else period_ns


def _on_a_grid(arrivals_ns: Ints, indexes: Ints, period_ns: float) -> bool:
    """Whether the arrivals keep to one phase, and no release is empty without a distance that shows it."""
    turns = (arrivals_ns - arrivals_ns[0]) / period_ns
    together = float(np.abs(np.exp(2j * np.pi * (turns % 1)).mean()))
    long = np.concatenate(([False], np.diff(turns) > _SEEN, [False]))
    shown = long[:-2] | long[1:-1] | long[2:]
    return together >= _CONCENTRATED and bool(shown[np.diff(indexes) > 1].all())


def _by_distance(arrivals_ns: Ints, period_ns: float) -> Ints:
    """Places without a grid: as many periods after the arrival before as fit best, at least one."""
    steps = np.maximum(np.rint(np.diff(arrivals_ns) / period_ns).astype(np.int64), 1)
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(steps)))


def grid_indexes(arrivals_ns: Ints, period_ns: float) -> Ints:
    """The release that each arrival belongs to, counted from the first; strictly rising.

    The grid's phase is the circular mean of the arrivals. A message can be late but not early: of several that arrive within one
    period, the newest belongs to it and the others to the releases before.
    """
    relative = arrivals_ns - arrivals_ns[0]
    angle = 2 * np.pi * ((relative % period_ns) / period_ns)
    phase = float(np.angle(np.exp(1j * angle).mean())) / (2 * np.pi) * period_ns
    order = np.arange(len(relative), dtype=np.int64)
    nearest = np.rint((relative - phase) / period_ns).astype(np.int64)
    latest = np.minimum.accumulate((nearest - order)[::-1])[::-1] + order
    result: Ints = latest - latest[0]
    return result


def view(
    arrivals_ns: Ints,
    *,
    period_ns: int | None = None,
    releases: int | None = None,
    miss_rate: float = 1e-3,
    confidence: float = 0.95,
    lost: int = 0,
) -> ArrivalView | None:
    """The view of a topic whose deadline is its period; None while there are fewer than three arrivals.

    `releases` looks at the first ones alone, counted from the first arrival. `lost` messages never reached the observer.
    """
    median = estimate_period(arrivals_ns)
    period = float(period_ns or fitted_period(arrivals_ns) or 0)
    if not median or not period:
        return None
    indexes = grid_indexes(arrivals_ns, period)
    has_grid = bool(period_ns) or _on_a_grid(arrivals_ns, indexes, period)
    if not has_grid:
        period = float(median)
        indexes = _by_distance(arrivals_ns, period)
    if releases is None:
        releases = int(indexes[-1]) + 1
    inside = indexes < releases
    indexes, arrivals_ns = indexes[inside], arrivals_ns[inside]
    releases = min(releases, int(indexes[-1]) + 1) if inside.all() else releases
    steps = np.diff(indexes)
    empty = np.ones(releases, np.bool_)
    empty[indexes] = False
    gaps = int(np.count_nonzero(steps > 1))
    with_late = empty.copy()
    with_late[indexes[1:][steps > 1] - steps[steps > 1]] = (
        True  # the release before each gap: its job may have been late
    )
    whole = round(period)
    budget = Budget(whole, miss_rate, confidence, default_burst("skip", whole, whole))
    low = judge_misses(miss_runs(empty), releases, budget).status
    high = judge_misses(miss_runs(with_late), releases, budget).status
    distances = np.diff(arrivals_ns)
    return ArrivalView(
        received=len(arrivals_ns),
        releases=releases,
        period_ns=whole,
        period_estimated=period_ns is None,
        gaps=gaps,
        misses_low=max(0, int(empty.sum()) - lost),
        misses_high=int(with_late.sum()),
        status=low if has_grid and low == high and (high == "PASS" or not lost) else "can't say",
        max_gap_ns=int(distances.max()),
        period=distribution("period", "arrival to arrival at the observer", distances, indexes[1:]),
        has_grid=has_grid,
    )


def latency_by_order(inputs_ns: Ints, outputs_ns: Ints) -> Ints:
    """Per output, ns since the newest input that arrived before it; outputs before the first input are left out."""
    newest = np.searchsorted(inputs_ns, outputs_ns, side="right") - 1
    known = newest >= 0
    result: Ints = outputs_ns[known] - inputs_ns[newest[known]]
    return result
