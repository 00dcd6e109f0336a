"""A metric's distribution: percentiles with intervals or the words "not estimable" (measurement.md §3, §6, §8, §15)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.types import SKIPPED, Distribution, Quantile
from robot_perf.stats.dependence import depends, series_design_effect
from robot_perf.stats.ranks import Sample, not_estimable, parse_percentile, smallest_n, two_sided_ranks

__all__ = ["JITTER_PERCENTILES", "PERCENTILES", "distribution", "point", "suppressed"]

PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")
JITTER_PERCENTILES = ("p1", "p50", "p90", "p95", "p99", "p99.9")
_INFINITE = int(np.iinfo(np.int64).max)  # a release without a finish


def distribution(
    metric: str,
    definition: str,
    values: NDArray[np.int64],
    steps: NDArray[np.int64],
    *,
    infinite: int = 0,
    percentiles: tuple[str, ...] = PERCENTILES,
    confidence: float = 0.95,
) -> Distribution:
    """The distribution of `values` (ns, one per entry of `steps`) and of `infinite` skipped releases above them.

    `values` are in order of time: where their ranks show that neighbours are alike, intervals are widened to those of as
    many independent steps as these are worth.
    """
    sample = Sample.of(values, infinite)
    in_time = _in_time(values, steps, infinite)
    series = in_time if depends(in_time) else None
    if len(values):
        largest = int(np.argmax(values))
        mean, std = float(values.mean()), float(values.std())
    return Distribution(
        metric=metric,
        definition=definition,
        n=sample.n,
        infinite=infinite,
        min=int(sample.finite[0]) if len(values) else None,
        quantiles=tuple(_quantile(sample, name, confidence, series) for name in percentiles),
        max=int(sample.finite[-1]) if len(values) and not infinite else None,
        max_step=int(steps[largest]) if len(values) and not infinite else None,
        mean=mean if len(values) else None,
        std=std if len(values) else None,
        reason=None if sample.n else "no samples",
        confidence=confidence,
    )


def _in_time(values: NDArray[np.int64], steps: NDArray[np.int64], infinite: int) -> NDArray[np.int64]:
    """One value per release, `_INFINITE` where it has no finish; those of which no place is known stand at the end."""
    series = np.full(len(values) + infinite, _INFINITE, np.int64)
    placed = infinite and len(steps) and steps[0] >= 0 and steps[-1] < len(series)
    series[steps if placed else slice(len(values))] = values
    return series


def point(sample: Sample, name: str, confidence: float = 0.95) -> tuple[int | None, str | None]:
    """(value, reason): the percentile called `name`, or why it has none.

    A rank on a skipped release says so even where n is small: that fact needs no interval.
    """
    p, n = parse_percentile(name), sample.n
    short = n < smallest_n(p, confidence)
    value = sample.percentile(p) if n else None
    reason = SKIPPED if value == math.inf else not_estimable(p, confidence) if short else None
    return (None if short or value is None else _finite(value)), reason


def _quantile(sample: Sample, name: str, confidence: float, series: NDArray[np.int64] | None) -> Quantile:
    value, reason = point(sample, name, confidence)
    p, n = parse_percentile(name), sample.n
    if n < smallest_n(p, confidence):
        return Quantile(name, None, reason, None, None, None)
    deff = 1.0 if series is None else series_design_effect(series > _limit(sample, p))
    worth = max(1, int(n / deff))
    ranks = two_sided_ranks(p, worth, confidence)
    # the l-th of `worth` independent steps stands for the steps from (l - 1) n / worth on, the u-th for those up to u n / worth
    lower = None if ranks.lower is None else (ranks.lower - 1) * n // worth + 1
    upper = None if ranks.upper is None else -(-ranks.upper * n // worth)
    low, high = (None if rank is None else _finite(sample.at(rank)) for rank in (lower, upper))
    open_ended = lower is None or upper is None
    return Quantile(name, value, reason, low, high, ranks.coverage, deff, open_ended)


def _limit(sample: Sample, p: Fraction) -> int:
    """The percentile to count beyond; where it lies on skipped releases they are what is counted."""
    value = sample.percentile(p)
    return _INFINITE - 1 if value == math.inf else int(value)


def _finite(value: float) -> int | None:
    return None if value == math.inf else int(value)


def suppressed(
    metric: str, definition: str, n: int, reason: str, percentiles: tuple[str, ...] = PERCENTILES
) -> Distribution:
    """A distribution that must not be read, with the reason in every place a value would stand."""
    quantiles = tuple(Quantile(name, None, reason, None, None, None) for name in percentiles)
    return Distribution(metric, definition, n, 0, None, quantiles, None, None, None, None, reason)
