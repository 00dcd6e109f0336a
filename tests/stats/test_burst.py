"""Runs and windows of misses, and how likely they are if misses are independent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.stats.burst import (
    default_burst,
    design_effect,
    miss_runs,
    probability_of_run,
    probability_of_window,
    worst_window,
)


def flags(text: str) -> np.ndarray:
    return np.array([c == "x" for c in text], dtype=np.bool_)


def test_runs_of_misses():
    found = miss_runs(flags("..xxx..x.xx"))
    assert (found.misses, found.runs, found.longest, found.longest_at) == (6, 3, 3, 2)
    assert found.mean_length == 2
    nothing = miss_runs(flags("....."))
    assert (nothing.misses, nothing.runs, nothing.longest, nothing.longest_at) == (0, 0, 0, None)
    assert nothing.mean_length is None
    assert miss_runs(flags("xxxx")).longest == 4
    assert miss_runs(flags("")).runs == 0


def test_worst_window():
    miss = flags("..xxx..x.xx")
    assert worst_window(miss, 5) == (3, 0)
    assert worst_window(miss, 1) == (1, 2)
    assert worst_window(miss, 11) == (6, 0)
    assert worst_window(miss, 12) is None
    with pytest.raises(ValueError, match="window of 0"):
        worst_window(miss, 0)


def test_design_effect_and_the_burst_that_is_assumed():
    assert [design_effect(burst) for burst in (0.5, 1, 2, 5, 20)] == [1, 1, 3, 9, 39]
    assert default_burst("skip", 10, 10) == 2
    assert default_burst("skip", 9, 10) == 1
    assert default_burst("queue", 10, 10) == 1


@pytest.mark.parametrize(
    ("n", "p", "length", "probability"),
    [
        (1000, 0.01, 2, 0.0941906793),
        (1000, 0.01, 3, 0.0009875455),
        (60000, 0.001, 2, 0.0581781599),
        (60000, 0.001, 3, 5.99362e-05),
        (60000, 0.01, 3, 0.0576685757),
    ],
)
def test_probability_of_a_run(n, p, length, probability):
    assert probability_of_run(n, p, length) == pytest.approx(probability, rel=1e-6)


@pytest.mark.parametrize(
    ("n", "p", "m", "window", "probability"),
    [
        (1000, 0.01, 1, 5, 0.3151868954),
        (1000, 0.01, 1, 10, 0.5486728308),
        (1000, 0.01, 2, 10, 0.0317282582),
        (60000, 0.001, 1, 10, 0.4131866102),
        (60000, 0.001, 2, 10, 0.0021352570),
        (1000, 0.01, 1, 2, 0.0941906793),
    ],
)
def test_probability_of_a_window(n, p, m, window, probability):
    assert probability_of_window(n, p, m, window) == pytest.approx(probability, rel=1e-8)


def test_ends():
    assert probability_of_run(5, 0.5, 6) == 0
    assert probability_of_run(5, 0.0, 1) == 0
    assert probability_of_run(5, 1.0, 5) == 1
    assert probability_of_run(1000, 1e-5, 4) == pytest.approx(997e-20, rel=1e-3)  # tiny, and still has its digits
    assert probability_of_window(5, 0.3, 3, 3) == 0
    assert probability_of_window(10, 0.3, 0, 1) == pytest.approx(1 - 0.7**10)
    assert probability_of_window(1000, 0.01, 5, 100) is None
    for call in (lambda: probability_of_run(5, 0.1, 0), lambda: probability_of_window(5, 0.1, -1, 3)):
        with pytest.raises(ValueError, match=r"run of 0|no window"):
            call()


def test_long_runs_by_recursion_agree_with_the_matrix():
    assert probability_of_run(3000, 0.9, 65) == pytest.approx(probability_of_run(3000, 0.9, 64), rel=0.2)
    assert probability_of_run(200, 0.97, 66) < probability_of_run(200, 0.97, 65) < probability_of_run(200, 0.97, 64)


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 8))
def test_runs_and_windows_by_counting(miss, window):
    array = np.array(miss, dtype=np.bool_)
    found = miss_runs(array)
    groups = "".join("x" if m else "." for m in miss).split(".")
    lengths = [len(g) for g in groups if g]
    assert (found.misses, found.runs, found.longest) == (sum(lengths), len(lengths), max(lengths, default=0))
    counts = [sum(miss[i : i + window]) for i in range(len(miss) - window + 1)]
    assert worst_window(array, window) == ((max(counts), counts.index(max(counts))) if counts else None)


@given(st.integers(1, 9), st.floats(0.05, 0.95), st.integers(1, 4), st.integers(1, 4))
def test_probabilities_by_enumeration(n, p, window, m):
    """All 2**n outcomes."""
    run = window_hit = 0.0
    for outcome in range(2**n):
        bits = [(outcome >> i) & 1 == 1 for i in range(n)]
        weight = p ** sum(bits) * (1 - p) ** (n - sum(bits))
        array = np.array(bits)
        run += weight * (miss_runs(array).longest >= m)
        window_hit += weight * any(sum(bits[max(0, i - window + 1) : i + 1]) > m for i in range(n))
    assert probability_of_run(n, p, m) == pytest.approx(run, abs=1e-12)
    assert probability_of_window(n, p, m, window) == pytest.approx(window_hit, abs=1e-12)
