"""What a topic's arrivals say from outside: period, gaps, misses within their uncertainty, and a verdict where they allow one.

An observer sees when commands arrive, not when they were released: a gap of g periods hides g-1 skipped releases and perhaps a
late one that ended the gap. So misses are an interval, and the verdict holds only where both its ends agree.
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

__all__ = ["ArrivalView", "estimate_period", "grid_indexes", "latency_by_order", "view"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ArrivalView:
    """n arrivals on a grid of `period_ns`. `misses_low` counts only empty releases, `misses_high` one late job more per gap.

    `status` is PASS, FAIL or INCONCLUSIVE, or "can't say" where the two ends of the interval differ. Deadline: the period. Messages that
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


def estimate_period(arrivals_ns: Ints) -> int | None:
    """The median distance of neighbours, ns; None with fewer than three arrivals."""
    return int(np.median(np.diff(arrivals_ns))) if len(arrivals_ns) >= 3 else None


def grid_indexes(arrivals_ns: Ints, period_ns: int) -> Ints:
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
    estimated = estimate_period(arrivals_ns)
    if estimated is None:
        return None
    period = period_ns or estimated
    indexes = grid_indexes(arrivals_ns, period)
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
    budget = Budget(period, miss_rate, confidence, default_burst("skip", period, period))
    low = judge_misses(miss_runs(empty), releases, budget).status
    high = judge_misses(miss_runs(with_late), releases, budget).status
    distances = np.diff(arrivals_ns)
    return ArrivalView(
        received=len(arrivals_ns),
        releases=releases,
        period_ns=period,
        period_estimated=period_ns is None,
        gaps=gaps,
        misses_low=max(0, int(empty.sum()) - lost),
        misses_high=int(with_late.sum()),
        status=low if low == high and (high == "PASS" or not lost) else "can't say",
        max_gap_ns=int(distances.max()),
        period=distribution("period", "arrival to arrival at the observer", distances, indexes[1:]),
    )


def latency_by_order(inputs_ns: Ints, outputs_ns: Ints) -> Ints:
    """Per output, ns since the newest input that arrived before it; outputs before the first input are left out."""
    newest = np.searchsorted(inputs_ns, outputs_ns, side="right") - 1
    known = newest >= 0
    result: Ints = outputs_ns[known] - inputs_ns[newest[known]]
    return result
