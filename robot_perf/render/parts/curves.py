"""What the figures of a report draw: bins, a percentile curve with its band, a thinned timeline. Arrays only.

Thinning is honest: steps on time become the band from the smallest to the largest of each stretch; every late step, every
run of dropped releases and the largest step of all stay as they are, up to a number that no screen could show.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from robot_perf.render.parts.checked import check_conditions
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run
from robot_perf.stats.ranks import two_sided_ranks

__all__ = ["MOST_SINGLE", "Curves", "curves_of"]

MOST_SINGLE = 200_000  # more marks than this make a page that no browser opens; then stretches are drawn, and said so
_MOST_POINTS = 6_000
_STRETCHES = 1_500
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
    largest_step: int | None
    on_time_step: Ints
    on_time_low: Ints
    on_time_high: Ints
    on_time_thinned: bool  # low and high differ: a band over stretches, not points
    late_step: Ints
    late: Ints
    late_total: int
    lost_first: Ints
    lost_last: Ints
    lost_runs: int
    undrawable: int  # responses of zero or less, drawn at 1 ns


def curves_of(run: Run, *, confidence: float = 0.95) -> Curves:
    """The curves of a Run's measured window."""
    check_conditions(run)
    measured = run.measured
    step, response = measured["step"], measured["end_ns"] - measured["release_ns"]
    # negative durations make a Run INVALID and are reported there; a logarithmic axis has no place for them
    undrawable = int((response < 1).sum())
    response = np.maximum(response, 1)
    reached = run.scheduled if run.conditions["state"] == "complete" else int(step[-1]) + 1 if len(step) else 0
    if run.loop.period_ns == 0:
        reached = len(step)
    infinite = max(0, reached - len(step))
    edges, counts = _bins(response)
    tail, value, low, high = _percentiles(np.sort(response), infinite, confidence)
    is_late = response > run.loop.deadline_ns if run.loop.deadline_ns else np.zeros(len(step), np.bool_)
    on_step, on_low, on_high = _stretches(step[~is_late], response[~is_late])
    late_step, late = step[is_late], response[is_late]
    if len(late) > MOST_SINGLE:
        late_step, late = _extremes(late_step, late)
    first, last = _lost_runs(run, reached)
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
        largest_step=int(step[np.argmax(response)]) if len(response) else None,
        on_time_step=on_step,
        on_time_low=on_low,
        on_time_high=on_high,
        on_time_thinned=on_low is not on_high,
        late_step=late_step,
        late=late,
        late_total=int(is_late.sum()),
        lost_first=_joined(first, last, reached)[0],
        lost_last=_joined(first, last, reached)[1],
        lost_runs=len(first),
        undrawable=undrawable,
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


def _stretches(step: Ints, value: Ints) -> tuple[Ints, Ints, Ints]:
    """All points (low is high), or the middle, smallest and largest of each stretch where there are many."""
    if len(step) <= _MOST_POINTS:
        return step, value, value
    bounds = np.linspace(0, len(step), _STRETCHES, endpoint=False).astype(np.int64)
    middle = step[(bounds + np.append(bounds[1:], len(step)) - 1) // 2]
    return middle, np.minimum.reduceat(value, bounds), np.maximum.reduceat(value, bounds)


def _extremes(step: Ints, value: Ints) -> tuple[Ints, Ints]:
    """The smallest and the largest of each stretch, at the steps where they were."""
    parts = np.array_split(np.arange(len(step)), MOST_SINGLE // 2)
    keep = np.unique([i for part in parts for i in (part[value[part].argmin()], part[value[part].argmax()])])
    return step[keep], value[keep]


def _joined(first: Ints, last: Ints, reached: int) -> tuple[Ints, Ints]:
    """The runs as they are, or those of one stretch joined where there are more than can be drawn."""
    if len(first) <= MOST_SINGLE:
        return first, last
    stretch = first * _STRETCHES // reached
    begins = np.flatnonzero(np.diff(stretch, prepend=-1))
    return first[begins], np.maximum.reduceat(last, begins)


def _lost_runs(run: Run, reached: int) -> tuple[Ints, Ints]:
    """First and last release of each run of releases that never ran to their end."""
    step, end = run.columns["step"], run.columns["end_ns"]
    done = np.unique(step[(step >= 0) & (step < reached) & (end != NOT_MEASURED)])
    edges = np.concatenate(([-1], done, [reached]))
    gaps = np.flatnonzero(np.diff(edges) > 1)
    return edges[gaps] + 1, edges[gaps + 1] - 1
