"""Two samples: Fisher's reference values, bootstrap coverage, seeds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from robot_perf.stats.contrast import fisher_more, mann_whitney, median_difference, quantile, quantile_difference

P99 = Fraction(99, 100)


def test_fisher():
    assert fisher_more(3, 10000, 12, 10000) == pytest.approx(0.0175448, abs=5e-8)
    assert fisher_more(0, 10000, 5, 10000) == pytest.approx(0.0312344, abs=5e-8)
    assert fisher_more(5, 10000, 0, 10000) == 1
    assert fisher_more(0, 100, 0, 100) == 1


def test_mann_whitney():
    a = np.arange(100)
    assert mann_whitney(a, a) == pytest.approx(1)
    assert mann_whitney(a, a + 50) < 1e-6
    assert mann_whitney(np.full(5, 3), np.full(9, 3)) == 1
    with pytest.raises(ValueError, match="empty"):
        mann_whitney(a, a[:0])


def test_a_shift_is_found_with_its_sign_and_the_same_answer_each_time():
    rng = np.random.default_rng(5)
    a, b = rng.normal(100, 5, 2000), rng.normal(103, 5, 2000)
    found = median_difference(a, b)
    assert found.low <= found.value <= found.high
    assert 2 < found.low < 3 < found.high < 4.2
    assert median_difference(a, b) == found
    back = median_difference(b, a)
    assert (back.value, math.copysign(1, back.high)) == (-found.value, -1)


def test_the_drawn_bootstrap_of_a_median_is_the_resampled_one():
    """X_(ceil(nV)), V ~ Beta, has the distribution of a resample's median: compare quartiles with 20,000 resamples."""
    rng = np.random.default_rng(11)
    a = np.sort(rng.exponential(10, 41))
    resampled = np.quantile(a[rng.integers(0, 41, (20000, 41))], 0.5, axis=1, method="inverted_cdf")
    zero = np.zeros(1000)
    drawn = median_difference(zero, a, resamples=20000)
    low, high = np.quantile(resampled, [0.025, 0.975], method="inverted_cdf")
    assert drawn.low == pytest.approx(low, abs=1.0)
    assert drawn.high == pytest.approx(high, abs=1.0)


def test_block_bootstrap_of_p99():
    rng = np.random.default_rng(6)
    a, b = rng.exponential(1.0, 4000), rng.exponential(2.0, 4000)
    found = quantile_difference(a, b, P99)
    assert found.a == quantile(a, P99) == np.quantile(a, 0.99, method="inverted_cdf")
    assert found.low > 2
    assert found.low <= found.value <= found.high
    same = quantile_difference(a, rng.exponential(1.0, 4000), P99)
    assert same.low < 0 < same.high


def test_infinite_values_stay_infinite():
    a = np.concatenate((np.arange(900.0), np.full(100, math.inf)))
    found = quantile_difference(a, np.arange(1000.0), P99)
    assert found.a == math.inf
    assert found.value == -math.inf
    both = quantile_difference(a, a, P99)
    assert (both.value, both.low, both.high) == (0, 0, 0)


def test_coverage_of_the_median_interval():
    """300 seeded pairs with a true difference of 1: the 95 % interval holds it in 91 to 99 % of them."""
    rng = np.random.default_rng(7)
    hits = 0
    for i in range(300):
        found = median_difference(rng.normal(0, 3, 300), rng.normal(1, 3, 300), resamples=1000, seed=i)
        hits += found.low <= 1 <= found.high
    assert 273 <= hits <= 297
