"""A metric's distribution: percentiles with intervals or the words "not estimable" (measurement.md §3, §6, §8, §15)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.types import SKIPPED, Distribution, Quantile
from robot_perf.stats.ranks import Sample, not_estimable, parse_percentile, smallest_n, two_sided_ranks

__all__ = ["JITTER_PERCENTILES", "PERCENTILES", "distribution", "suppressed"]

PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")
JITTER_PERCENTILES = ("p1", "p50", "p90", "p95", "p99", "p99.9")


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
    """The distribution of `values` (ns, one per entry of `steps`) and of `infinite` skipped releases above them."""
    sample = Sample.of(values, infinite)
    if len(values):
        largest = int(np.argmax(values))
        mean, std = float(values.mean()), float(values.std())
    return Distribution(
        metric=metric,
        definition=definition,
        n=sample.n,
        infinite=infinite,
        min=int(sample.finite[0]) if len(values) else None,
        quantiles=tuple(_quantile(sample, name, confidence) for name in percentiles),
        max=int(sample.finite[-1]) if len(values) and not infinite else None,
        max_step=int(steps[largest]) if len(values) and not infinite else None,
        mean=mean if len(values) else None,
        std=std if len(values) else None,
        reason=None if sample.n else "no samples",
        confidence=confidence,
    )


def _quantile(sample: Sample, name: str, confidence: float) -> Quantile:
    """A rank on a skipped release says so even where n is small: that fact needs no interval."""
    p = parse_percentile(name)
    n = sample.n
    if n and sample.percentile(p) == math.inf:
        reason: str | None = SKIPPED
    elif n < smallest_n(p, confidence):
        reason = not_estimable(p, confidence)
    else:
        reason = None
    if n < smallest_n(p, confidence):
        return Quantile(name, None, reason, None, None, None)
    ranks = two_sided_ranks(p, n, confidence)
    low, high = (None if rank is None else _finite(sample.at(rank)) for rank in (ranks.lower, ranks.upper))
    return Quantile(name, _finite(sample.percentile(p)), reason, low, high, ranks.coverage)


def _finite(value: float) -> int | None:
    return None if value == math.inf else int(value)


def suppressed(
    metric: str, definition: str, n: int, reason: str, percentiles: tuple[str, ...] = PERCENTILES
) -> Distribution:
    """A distribution that must not be read, with the reason in every place a value would stand."""
    quantiles = tuple(Quantile(name, None, reason, None, None, None) for name in percentiles)
    return Distribution(metric, definition, n, 0, None, quantiles, None, None, None, None, reason)
