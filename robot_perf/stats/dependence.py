"""Is a series independent and steady? Diagnostics of response times (measurement.md §10 and §12)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats as _scipy

__all__ = ["LjungBox", "RunsTest", "autocorrelation", "ljung_box", "runs_test"]


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
