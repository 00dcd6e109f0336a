"""Nearest-rank percentiles and distribution-free intervals around them (measurement.md §6 and §8).

A percentile is the inverted CDF `X_(ceil(p*n))`: an observed value, monotone in p, and dual to the miss count. Ranks
are exact: p is a rational, never a binary float, so p99.9 of 1000 values is rank 999, not what 0.999*1000 rounds to.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats as _scipy

from robot_perf.errors import UsageError

__all__ = [
    "INFINITE",
    "RankInterval",
    "Sample",
    "dkw_half_width",
    "lower_rank",
    "nearest_rank",
    "not_estimable",
    "parse_percentile",
    "smallest_n",
    "two_sided_ranks",
    "upper_rank",
]

INFINITE = math.inf
_PERCENTILE = re.compile(r"^p?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)$")


def parse_percentile(text: str) -> Fraction:
    """`"p99.9"` or `"99.9"` as the rational 999/1000. Raises UsageError unless it lies strictly between 0 and 100."""
    match = _PERCENTILE.match(text.strip())
    p = Fraction(match[1]) / 100 if match else None
    if p is None or not 0 < p < 1:
        raise UsageError(
            f"{text!r} is not a percentile", why="Allowed: above p0 and below p100, such as p50, p99 or p99.9."
        )
    return p


def nearest_rank(p: Fraction, n: int) -> int:
    """The 1-based rank `ceil(p*n)` for 0 < p <= 1, n >= 1."""
    if n < 1 or not 0 < p <= 1:
        raise ValueError(f"no rank for p={p}, n={n}")
    return -((-p.numerator * n) // p.denominator)


@dataclass(frozen=True, eq=False)
class Sample:
    """Sorted finite values and a count of +infinity (skipped releases) above them. Values keep their own dtype."""

    finite: NDArray[np.int64]
    infinite: int = 0

    @classmethod
    def of(cls, values: NDArray[np.int64], infinite: int = 0) -> Sample:
        """A sample of unsorted values."""
        return cls(np.sort(values), infinite)

    @property
    def n(self) -> int:
        """How many values, the infinite ones included."""
        return len(self.finite) + self.infinite

    def at(self, rank: int) -> float:
        """The order statistic `X_(rank)`, 1-based: exact for integers below 2**53, or +infinity."""
        if not 1 <= rank <= self.n:
            raise ValueError(f"rank {rank} of {self.n} values")
        return self.finite[rank - 1].item() if rank <= len(self.finite) else INFINITE

    def percentile(self, p: Fraction) -> float:
        """The nearest-rank percentile. An empty sample has none: ValueError, not 0 and not NaN."""
        return self.at(nearest_rank(p, self.n))


@dataclass(frozen=True, slots=True)
class RankInterval:
    """Order-statistic ranks around a percentile, 1-based; None where n is too small for that side."""

    lower: int | None
    upper: int | None
    coverage: float


def upper_rank(p: Fraction, n: int, confidence: float) -> int | None:
    """One-sided: smallest u with P(B <= u-1) >= confidence, B ~ Bin(n, p); None if no u <= n has it."""
    if n < 1:
        return None
    u = int(_scipy.binom.ppf(confidence, n, float(p))) + 1
    # ppf steps on rounded values: settle on the definition itself
    while u > 1 and _cdf(u - 2, n, p) >= confidence:
        u -= 1
    while u <= n and _cdf(u - 1, n, p) < confidence:
        u += 1
    return u if u <= n else None


def lower_rank(p: Fraction, n: int, confidence: float) -> int | None:
    """One-sided: largest l with P(B >= rank) >= confidence, B ~ Bin(n, p); None if that is no rank (l < 1)."""
    if n < 1:
        return None
    rank = max(1, int(_scipy.binom.ppf(1 - confidence, n, float(p))))
    while rank <= n and _at_least(rank + 1, n, p) >= confidence:
        rank += 1
    while rank >= 1 and _at_least(rank, n, p) < confidence:
        rank -= 1
    return rank if rank >= 1 else None


@lru_cache(maxsize=512)
def two_sided_ranks(p: Fraction, n: int, confidence: float) -> RankInterval:
    """Interval [X_(l), X_(u)] with (1 - confidence)/2 at most on each side, and its coverage P(l <= B <= u-1)."""
    side = (1 + confidence) / 2
    lower, upper = lower_rank(p, n, side), upper_rank(p, n, side)
    low_tail = 0.0 if lower is None else _cdf(lower - 1, n, p)
    coverage = (1.0 if upper is None else _cdf(upper - 1, n, p)) - low_tail
    return RankInterval(lower, upper, coverage)


def _cdf(k: int, n: int, p: Fraction) -> float:
    return float(_scipy.binom.cdf(k, n, float(p)))


def _at_least(k: int, n: int, p: Fraction) -> float:
    return float(_scipy.binom.sf(k - 1, n, float(p)))


def smallest_n(p: Fraction, confidence: float, *, two_sided: bool = True) -> int:
    """Smallest n for which the interval of a percentile is finite.

    An upper bound exists iff p**n <= alpha (a sample of n may lie wholly below the percentile). Two-sided takes alpha/2
    on each side, and the lower bound's (1-p)**n as well, which binds for p < 1/2.
    """
    alpha = (1 - confidence) / 2 if two_sided else 1 - confidence
    binding = max(p, 1 - p) if two_sided else p
    n = max(1, math.ceil(math.log(alpha) / _log_of(binding)))
    while n > 1 and (n - 1) * _log_of(binding) <= math.log(alpha):
        n -= 1
    return n


def _log_of(p: Fraction) -> float:
    return math.log1p(-float(1 - p))


def not_estimable(p: Fraction, confidence: float = 0.95, *, two_sided: bool = True) -> str:
    """The words for a percentile whose interval needs more samples than there are."""
    return f"not estimable (needs n >= {smallest_n(p, confidence, two_sided=two_sided)})"


def dkw_half_width(n: int, confidence: float = 0.95) -> float:
    """Half-width of the Dvoretzky-Kiefer-Wolfowitz band around an empirical CDF: sqrt(ln(2/alpha) / (2n))."""
    if n < 1:
        raise ValueError("no band around an empty sample")
    return math.sqrt(math.log(2 / (1 - confidence)) / (2 * n))
