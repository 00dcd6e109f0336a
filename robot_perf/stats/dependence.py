"""Is a series independent and steady, and what is it worth if not? (measurement.md §10 and §12).

Response times are looked at by their ranks: one stall of a second hides, in the values themselves, everything else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats as _scipy

__all__ = [
    "SHORTEST_SERIES",
    "SURE",
    "LjungBox",
    "RunsTest",
    "autocorrelation",
    "depends",
    "ljung_box",
    "rank_ljung_box",
    "runs_test",
    "series_design_effect",
]

SURE = 1e-3  # p of the rank Ljung-Box below which steps are taken as dependent
_SHORTEST = 8  # steps in the shortest window whose counts are compared
_WINDOWS = 20  # of the longest window at least so many fit into the series
SHORTEST_SERIES = _SHORTEST * _WINDOWS


def autocorrelation(values: ArrayLike, lags: int) -> NDArray[np.float64] | None:
    """rho_1..rho_lags about the mean; None for a constant series or one no longer than `lags`."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) <= lags:
        return None
    x = x - x.mean()
    total = float(x @ x)
    if total <= 0 or np.ptp(x) == 0:
        return None
    return np.array([float(x[h:] @ x[:-h]) / total for h in range(1, lags + 1)])


@dataclass(frozen=True, slots=True)
class LjungBox:
    """Ljung-Box statistic over `lags` lags, and P(at least this) for an independent series of n values."""

    q: float
    p_value: float
    lags: int
    lag1: float
    n: int


def ljung_box(values: ArrayLike, lags: int = 10) -> LjungBox | None:
    """Q = n(n+2) sum rho_h**2/(n-h); None where there is no autocorrelation to speak of (constant or short)."""
    rho = autocorrelation(values, lags)
    if rho is None:
        return None
    n = np.size(np.asarray(values))
    q = n * (n + 2) * float(np.sum(rho**2 / (n - np.arange(1, lags + 1))))
    return LjungBox(q, float(_scipy.chi2.sf(q, lags)), lags, float(rho[0]), n)


def rank_ljung_box(values: ArrayLike, lags: int = 10) -> LjungBox | None:
    """Ljung-Box of the ranks, equal values sharing theirs: its Q and lag-1 don't change under any rising scale."""
    x = np.asarray(values)
    return ljung_box(_scipy.rankdata(x), lags) if len(x) else None


def depends(values: ArrayLike) -> bool:
    """Whether the ranks show that neighbours are alike; False where the series is too short for `series_design_effect`."""
    x = np.asarray(values)
    box = rank_ljung_box(x) if len(x) >= SHORTEST_SERIES else None
    return box is not None and box.p_value < SURE


def series_design_effect(above: NDArray[np.bool_]) -> float:
    """How many steps are worth one independent one, for the share of steps that are `above`; at least 1.

    The variance of their count in windows of 8, 16, … steps over that of independent steps. It approaches its limit as
    1/window, so the last two are also extrapolated. Windows overlap by seven eighths: nearly all their evidence, cheaply.
    """
    n, share = len(above), float(np.mean(above)) if len(above) else 0.0
    if not 0 < share < 1:
        return 1.0
    total = np.concatenate(([0], np.cumsum(above)))
    ratios = [1.0]
    window = _SHORTEST
    while window * _WINDOWS <= n:
        first, last = total[: n + 1 - window : window // 8], total[window :: window // 8]
        spread = float(np.mean((last - first - window * share) ** 2)) / (1 - window / n)
        ratios.append(spread / (window * share * (1 - share)))
        window *= 2
    return max(*ratios, 2 * ratios[-1] - ratios[-2]) if len(ratios) > 1 else 1.0


@dataclass(frozen=True, slots=True)
class RunsTest:
    """Wald-Wolfowitz runs above and below the median; values equal to it are left out."""

    runs: int
    above: int
    below: int
    mean: float
    variance: float
    z: float
    p_value: float


def runs_test(values: ArrayLike) -> RunsTest | None:
    """Two-sided; None unless both sides of the median hold a value and the variance is positive."""
    x = np.asarray(values)
    median = np.median(x) if len(x) else 0.0
    signs = (x > median)[x != median]
    n1, n2 = int(signs.sum()), int((~signs).sum())
    n = n1 + n2
    if n1 == 0 or n2 == 0 or n < 3:
        return None
    runs = 1 + int(np.count_nonzero(signs[1:] != signs[:-1]))
    mean = 1 + 2 * n1 * n2 / n
    variance = 2 * n1 * n2 * (2 * n1 * n2 - n) / (n**2 * (n - 1))
    if variance <= 0:
        return None
    z = (runs - mean) / math.sqrt(variance)
    return RunsTest(runs, n1, n2, mean, variance, z, 2 * float(_scipy.norm.sf(abs(z))))
