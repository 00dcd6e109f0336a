"""What the figures of a report draw: bins, a percentile curve with its band, a thinned timeline. Arrays only.

Thinning is honest: every late step, every dropped release and the largest and smallest of each stretch are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run
from robot_perf.stats.ranks import two_sided_ranks

__all__ = ["MOST_SINGLE", "Curves", "curves_of"]

MOST_SINGLE = 200_000  # more marks than this make a page that no browser opens; then stretches are drawn, and said so
_STRETCHES = 2_000
_CURVE = 140
_BINS = 120

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curves:
    """Arrays in ns and releases. `tail` is 1 - p; the band's `high` is NaN where it lies on a skipped release."""

    edges: Floats
    counts: Ints
    tail: Floats
    value: Ints
    low: Ints
    high: Floats
    n: int
    infinite: int
    largest: int | None
    on_time_step: Ints
    on_time: Ints
    late_step: Ints
    late: Ints
    late_total: int
    lost_first: Ints
    lost_last: Ints
    lost_runs: int
    thinned: bool


def curves_of(run: Run, *, confidence: float = 0.95) -> Curves:
    """The curves of a Run's measured window."""
    measured = run.measured
    step, response = measured["step"], measured["end_ns"] - measured["release_ns"]
    reached = run.scheduled if run.conditions["state"] == "complete" else int(step[-1]) + 1 if len(step) else 0
    if run.loop.period_ns == 0:
        reached = len(step)
    infinite = max(0, reached - len(step))
    edges, counts = _bins(response)
    tail, value, low, high = _percentiles(np.sort(response), infinite, confidence)
    is_late = response > run.loop.deadline_ns if run.loop.deadline_ns else np.zeros(len(step), np.bool_)
    on_step, on, thin_on = _envelope(step[~is_late], response[~is_late], 2 * _STRETCHES)
    late_step, late, thin_late = _envelope(step[is_late], response[is_late], MOST_SINGLE)
    first, last = _lost_runs(run, reached)
    thin_lost = len(first) > MOST_SINGLE
    if thin_lost:
        keep = np.argsort(first - last, kind="stable")[:MOST_SINGLE]  # the longest runs
        first, last = first[np.sort(keep)], last[np.sort(keep)]
    return Curves(
        edges=edges,
        counts=counts,
        tail=tail,
        value=value,
        low=low,
        high=high,
        n=len(step) + infinite,
        infinite=infinite,
        largest=int(response.max()) if len(response) else None,
        on_time_step=on_step,
        on_time=on,
        late_step=late_step,
        late=late,
        late_total=int(is_late.sum()),
        lost_first=first,
        lost_last=last,
        lost_runs=len(_lost_runs(run, reached)[0]),
        thinned=thin_on or thin_late or thin_lost,
    )


def _bins(response: Ints) -> tuple[Floats, Ints]:
    """Logarithmic bins from the smallest to the largest response."""
    if not len(response):
        return np.zeros(0), np.zeros(0, np.int64)
    low, high = max(1, int(response.min())), max(2, int(response.max()))
    edges = np.geomspace(low, max(high, low * 1.01), _BINS + 1)
    edges[0], edges[-1] = min(low, int(response.min())), max(edges[-1], high)
    return edges, np.histogram(response, edges)[0].astype(np.int64)


def _percentiles(ordered: Ints, infinite: int, confidence: float) -> tuple[Floats, Ints, Ints, Floats]:
    """Ranks that are dense towards the tail; p = rank / n exactly, so that nearest rank gives that very value."""
    n = len(ordered) + infinite
    empty = np.zeros(0, np.int64)
    if n < 2 or not len(ordered):
        return np.zeros(0), empty, empty, np.zeros(0)
    ranks = n - np.unique(np.geomspace(1, n - 1, _CURVE).astype(np.int64))[::-1]
    ranks = ranks[ranks <= len(ordered)]
    low, high, keep = [], [], []
    for rank in ranks.tolist():
        band = two_sided_ranks(Fraction(rank, n), n, confidence)
        if band.lower is None or band.lower > len(ordered):
            continue
        keep.append(rank)
        low.append(int(ordered[band.lower - 1]))
        known = band.upper is not None and band.upper <= len(ordered)
        high.append(float(ordered[band.upper - 1]) if known and band.upper is not None else np.nan)
    kept = np.array(keep, np.int64)
    return 1 - kept / n, ordered[kept - 1] if len(kept) else empty, np.array(low, np.int64), np.array(high)


def _envelope(step: Ints, value: Ints, most: int) -> tuple[Ints, Ints, bool]:
    """All points, or the smallest and the largest of each stretch where there are more than `most`."""
    if len(step) <= most:
        return step, value, False
    stretches = np.array_split(np.arange(len(step)), _STRETCHES)
    keep = np.unique([i for part in stretches for i in (part[value[part].argmin()], part[value[part].argmax()])])
    return step[keep], value[keep], True


def _lost_runs(run: Run, reached: int) -> tuple[Ints, Ints]:
    """First and last release of each run of releases that never ran to their end."""
    lost = np.ones(reached, np.bool_)
    step, end = run.columns["step"], run.columns["end_ns"]
    done = step[(step >= 0) & (step < reached) & (end != NOT_MEASURED)]
    lost[done] = False
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lost, [False])).astype(np.int8)))
    return edges[::2], edges[1::2] - 1
