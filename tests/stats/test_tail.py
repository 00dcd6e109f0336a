"""Generalised Pareto fits on exact quantiles, to the printed digits of the reference table."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import genpareto

from robot_perf.stats.tail import decluster, fit_pareto, probability_weighted_moments, quantile_interval


def exact(xi: float, sigma: float, n: int) -> np.ndarray:
    return genpareto.ppf((np.arange(1, n + 1) - 0.5) / n, xi, scale=sigma)


@pytest.mark.parametrize(
    ("xi", "sigma", "n", "fitted_sigma", "fitted_xi", "loss"),
    [
        (0.2, 1, 200, 1.006800, 0.191118, 239.579030),
        (-0.2, 1, 200, 1.011110, -0.212546, 159.700621),
        (0, 1, 200, 1.008722, -0.010468, 199.643234),
        (0.5, 2, 500, 2.004002, 0.496959, 1096.052832),
    ],
)
def test_maximum_likelihood(xi, sigma, n, fitted_sigma, fitted_xi, loss):
    found = fit_pareto(exact(xi, sigma, n))
    assert (found.sigma, found.xi) == pytest.approx((fitted_sigma, fitted_xi), abs=1e-6)
    assert found.negative_log_likelihood == pytest.approx(loss, abs=1e-6)
    in_ns = fit_pareto(exact(xi, sigma, n) * 1e6)
    assert in_ns.xi == pytest.approx(fitted_xi, abs=1e-6)
    assert in_ns.sigma == pytest.approx(fitted_sigma * 1e6, rel=1e-6)


def test_probability_weighted_moments():
    xi, sigma = probability_weighted_moments(exact(0.2, 1, 200))
    assert (xi, sigma) == pytest.approx((0.199798, 0.993954), abs=1e-6)


def test_quantiles_are_those_of_the_fitted_tail():
    fit = fit_pareto(exact(0.2, 1000.0, 400))
    low, value, high = quantile_interval(fit, 5000.0, 0.05, 8000, 1 - 1 / 80000)
    expected = 5000 + genpareto.ppf(1 - 1 / 80000 / 0.05, fit.xi, scale=fit.sigma)
    assert value == pytest.approx(expected, rel=1e-9)
    assert low < value < high
    at_threshold = quantile_interval(fit, 5000.0, 0.05, 8000, 0.95)
    assert at_threshold[1] == pytest.approx(5000, abs=1e-6)


def test_a_vanishing_shape_is_the_exponential_limit():
    fit = fit_pareto(exact(0, 1, 200))
    near = [quantile_interval(type(fit)(xi, 1.0, 0.0, 200), 0.0, 0.1, 2000, 0.9999) for xi in (1e-7, 0.0, -1e-7)]
    assert near[0] == pytest.approx(near[1], rel=1e-4)
    assert near[2] == pytest.approx(near[1], rel=1e-4)


def test_coverage_of_xi():
    """200 seeded samples of 300: the 95 % interval holds the true shape in at least 90 % of them."""
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        low, high = fit_pareto(genpareto.rvs(0.1, size=300, random_state=rng)).xi_interval()
        hits += low <= 0.1 <= high
    assert hits >= 180


@pytest.mark.parametrize("excesses", [[], [1.0] * 30, [1.0, 2.0], [-1.0] + [2.0] * 20])
def test_no_fit(excesses):
    with pytest.raises(ValueError, match="tail fit"):
        fit_pareto(np.array(excesses))


def test_clusters_count_once_by_their_largest():
    values = np.array([0, 5, 9, 0, 0, 0, 7, 0.0])
    assert decluster(values > 4, values, 2).tolist() == [9, 7]
    assert decluster(values > 4, values, 5).tolist() == [9]
    assert decluster(values > 100, values, 2).tolist() == []
