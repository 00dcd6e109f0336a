"""Generalised Pareto tail over a threshold: advisory extrapolation, never part of a verdict (measurement.md §11)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize as _optimize
from scipy import stats as _scipy

__all__ = ["ParetoFit", "decluster", "fit_pareto", "probability_weighted_moments", "quantile_interval"]


@dataclass(frozen=True, slots=True)
class ParetoFit:
    """Maximum-likelihood fit of excesses y: F(y) = 1 - (1 + xi y/sigma)**(-1/xi)."""

    xi: float
    sigma: float
    negative_log_likelihood: float
    n: int

    def xi_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Asymptotic interval of xi, standard error (1 + xi)/sqrt(n); regular for xi > -1/2 only."""
        z = float(_scipy.norm.ppf((1 + confidence) / 2))
        half = z * (1 + self.xi) / math.sqrt(self.n)
        return self.xi - half, self.xi + half


def probability_weighted_moments(excesses: NDArray[np.float64]) -> tuple[float, float]:
    """(xi, sigma) from moments with unbiased weights: the start of the likelihood search, and a check on it."""
    y = np.sort(excesses)
    n = len(y)
    a0, a1 = float(y.mean()), float(np.sum((n - np.arange(1, n + 1)) / (n - 1) * y) / n)
    xi = 2 - a0 / (a0 - 2 * a1)
    return xi, 2 * a0 * a1 / (a0 - 2 * a1)


def fit_pareto(excesses: NDArray[np.float64]) -> ParetoFit:
    """The maximum-likelihood fit of at least 10 positive, differing excesses. Raises ValueError for fewer."""
    y = np.asarray(excesses, dtype=np.float64)
    if len(y) < 10 or np.any(y < 0) or np.ptp(y) == 0:
        raise ValueError("a tail fit needs at least 10 differing excesses, none negative")
    scale = float(y.mean())  # the search runs on unit scale: nanoseconds would upset its tolerances
    x = y / scale

    def loss(parameters: NDArray[np.float64]) -> float:
        return float(_scipy.genpareto.nnlf((parameters[0], 0.0, math.exp(parameters[1])), x))

    xi, sigma = probability_weighted_moments(x)
    start = np.array([xi, math.log(sigma)]) if sigma > 0 and math.isfinite(xi) else np.array([0.1, 0.0])
    if not math.isfinite(loss(start)):
        start = np.array([0.1, 0.0])
    options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}
    found = _optimize.minimize(loss, start, method="Nelder-Mead", options=options)
    log_likelihood_shift = len(y) * math.log(scale)
    return ParetoFit(float(found.x[0]), math.exp(found.x[1]) * scale, float(found.fun) + log_likelihood_shift, len(y))


def quantile_interval(
    fit: ParetoFit, threshold: float, share_above: float, n: int, q: float, confidence: float = 0.95
) -> tuple[float, float, float]:
    """(low, value, high) of the quantile `u + sigma/xi (((1-q)/zeta)**(-xi) - 1)`, by the delta method.

    `share_above` is zeta = N_u/n. Variances: of zeta binomial, of (xi, sigma) the fit's asymptotic ones.
    """
    ratio = share_above / (1 - q)
    log_ratio = math.log(ratio)
    xi, sigma = fit.xi, fit.sigma
    if abs(xi) < 1e-5:  # the closed form cancels there: its series about the exponential tail
        excess, by_sigma = sigma * log_ratio * (1 + xi * log_ratio / 2), log_ratio * (1 + xi * log_ratio / 2)
        by_xi = sigma * log_ratio**2 * (1 / 2 + xi * log_ratio / 3)
    else:
        power = ratio**xi
        excess, by_sigma = sigma / xi * (power - 1), (power - 1) / xi
        by_xi = -sigma / xi**2 * (power - 1) + sigma / xi * power * log_ratio
    by_share = sigma * ratio**xi / share_above
    variance = (
        by_xi**2 * (1 + xi) ** 2 + by_sigma**2 * 2 * sigma**2 * (1 + xi) - 2 * by_xi * by_sigma * sigma * (1 + xi)
    ) / fit.n + by_share**2 * share_above * (1 - share_above) / n
    half = float(_scipy.norm.ppf((1 + confidence) / 2)) * math.sqrt(max(variance, 0.0))
    return threshold + excess - half, threshold + excess, threshold + excess + half


def decluster(exceeds: NDArray[np.bool_], values: NDArray[np.float64], gap: int) -> NDArray[np.float64]:
    """The largest value of each cluster of exceedances that lie no more than `gap` steps apart, in order."""
    at = np.flatnonzero(exceeds)
    if not len(at):
        return np.zeros(0)
    begins = np.flatnonzero(np.concatenate(([True], np.diff(at) > gap)))
    peaks: NDArray[np.float64] = np.maximum.reduceat(values[at], begins)
    return peaks
