"""Ljung-Box and the runs test against the reference values."""

from __future__ import annotations

import numpy as np
import pytest

from robot_perf.stats.dependence import autocorrelation, ljung_box, runs_test

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
