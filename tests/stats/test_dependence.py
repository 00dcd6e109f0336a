"""Ljung-Box and the runs test against the reference values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from robot_perf.analyze.distribution import distribution
from robot_perf.stats.dependence import (
    autocorrelation,
    depends,
    ljung_box,
    rank_ljung_box,
    runs_test,
    series_design_effect,
)

SINE = np.sin(np.arange(100))


def test_ljung_box():
    found = ljung_box(SINE, 10)
    assert found.q == pytest.approx(479.40874, abs=5e-6)
    assert found.p_value == pytest.approx(1.105e-96, rel=5e-4)
    assert found.lag1 == pytest.approx(0.535154, abs=5e-7)
    assert found.n == 100


def test_runs_test():
    found = runs_test(SINE)
    assert (found.runs, found.above, found.below) == (33, 50, 50)
    assert found.mean == 51
    assert found.variance == pytest.approx(24.74747, abs=5e-6)
    assert found.z == pytest.approx(-3.61832, abs=5e-6)
    assert found.p_value == pytest.approx(2.965e-4, abs=5e-8)


@pytest.mark.parametrize("series", [[], [1.0], [3.0] * 50, [1.0, 2.0] * 5])
def test_series_without_an_answer(series):
    assert ljung_box(series, 10) is None
    assert autocorrelation(series, 10) is None


def test_the_runs_test_needs_both_sides_of_the_median():
    assert runs_test([]) is None
    assert runs_test([5.0] * 20) is None
    assert runs_test([1.0, 2.0]) is None
    assert runs_test([1, 2, 1, 2, 1, 2]) is not None


def test_integers_of_nanoseconds_keep_their_digits():
    offset = 4_000_000_000_000
    rng = np.random.default_rng(3)
    small = rng.integers(0, 1000, 500)
    assert ljung_box(small + offset).q == pytest.approx(ljung_box(small).q, rel=1e-6)


def test_independent_series_are_called_independent():
    """400 seeded series of 200: the nominal 5 % test rejects 2 to 9 % of them."""
    rng = np.random.default_rng(8)
    rejected = sum(ljung_box(rng.normal(size=200)).p_value < 0.05 for _ in range(400))
    assert 8 <= rejected <= 36


def chain(rng, n, rho):
    """A stationary AR(1) of n normal values."""
    noise = rng.normal(size=n) * np.sqrt(1 - rho * rho)
    noise[0] = rng.normal()
    return lfilter([1], [1, -rho], noise)


def test_ranks_see_past_one_stall():
    values = chain(np.random.default_rng(2), 2000, 0.7)
    plain = rank_ljung_box(values)
    values[1000] = 1e6
    assert abs(ljung_box(values).lag1) < 0.01
    assert ljung_box(values).p_value > 0.9
    assert rank_ljung_box(values).lag1 == pytest.approx(plain.lag1, abs=0.01)
    assert rank_ljung_box(np.exp(values / 1e5)).q == rank_ljung_box(values).q  # any rising scale
    assert rank_ljung_box([]) is None


def test_the_design_effect_of_independent_and_of_repeated_steps():
    rng = np.random.default_rng(6)
    above = rng.random(4000) < 0.5
    assert 1 <= series_design_effect(above) < 2
    assert series_design_effect(np.repeat(rng.random(400) < 0.5, 10)) == pytest.approx(10, rel=0.3)
    assert (
        series_design_effect(np.arange(1000) % 2 == 0) == 1
    )  # neighbours that differ are never worth more than a step
    assert [series_design_effect(np.zeros(n, np.bool_)) for n in (0, 5, 500)] == [1, 1, 1]
    assert not depends(np.arange(100))  # too short for a window
    assert depends(np.arange(200))


@pytest.mark.parametrize(
    ("rho", "p50", "p99"), [(0, 0.92, 0.92), (0.5, 0.92, 0.92), (0.9, 0.92, 0.92), (0.98, 0.9, 0.88)]
)
def test_the_interval_of_a_percentile_holds_what_it_says(rho, p50, p99):
    """Of 200 seeded series of 3000 steps; taken as independent, 81, 39 and 19 % of those of p50 would."""
    rng = np.random.default_rng(4)
    truth = {"p50": 1e6, "p99": 1e6 * np.exp(0.2 * 2.3263478740408408)}
    held = dict.fromkeys(truth, 0)
    for _ in range(200):
        values = (1e6 * np.exp(0.2 * chain(rng, 3000, rho))).astype(np.int64)
        found = distribution("", "", values, np.arange(3000), percentiles=tuple(truth))
        for q in found.quantiles:
            held[q.name] += q.low <= truth[q.name] <= (np.inf if q.open_ended else q.high)
    assert held["p50"] >= 200 * p50
    assert held["p99"] >= 200 * p99
