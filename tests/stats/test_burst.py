"""Runs and windows of misses, and how likely they are if misses are independent."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.stats.burst import (
    MOST_BURST,
    MissRuns,
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
    # a job beyond D >= T also drops floor(D/T) releases at least; one beyond D < T may drop one
    assert [default_burst("skip", d, 10) for d in (1, 9, 10, 15, 19, 20, 30)] == [2, 2, 2, 2, 2, 3, 4]
    assert default_burst("queue", 10, 10) == default_burst("queue", 35, 10) == 1
    assert default_burst("skip", 10, 0) == 1  # back to back
    assert default_burst("skip", 10**18, 1) == MOST_BURST


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


def test_a_long_run_takes_no_memory_of_the_length_of_the_series():
    """Bit for bit what one term after another gives, in memory for one run rather than for four million releases."""
    for n, p, length in ((65, 0.9, 65), (131, 0.99, 65), (132, 0.99, 65), (3000, 0.97, 70), (9999, 0.995, 500)):
        ends_here = (1 - p) * p**length
        g = [0.0] * length + [p**length]
        for i in range(length + 1, n + 1):
            g.append(g[i - 1] + ends_here * (1 - g[i - length - 1]))
        assert probability_of_run(n, p, length) == g[n]
    tracemalloc.start()
    assert probability_of_run(4_000_000, 0.9, 66) == pytest.approx(1)
    assert probability_of_run(4_000_000, 0.001, 66) == pytest.approx(4e6 * 0.999e-198, rel=1e-4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


def by_definition(miss: np.ndarray) -> list[float]:
    """Of each window size: sample variance of the misses per window over what misses at random have."""
    found, w = [], 8
    while len(miss) // w >= 20:
        counts = miss[: len(miss) // w * w].reshape(-1, w).sum(axis=1)
        total, size = counts.sum(), len(counts) * w
        if 0 < total < size:
            found.append(counts.var(ddof=1) / (w * total * (size - total) / (size * (size - 1))))
        w *= 2
    return found


@given(st.integers(0, 3000), st.sampled_from([0, 0.001, 0.02, 0.5, 0.98, 1]), st.booleans(), st.integers(0, 2**32))
def test_dispersion_by_its_definition(n, p, episodes, seed):
    rng = np.random.default_rng(seed)
    miss = rng.random(n) < p
    if episodes:
        miss |= np.repeat(rng.random(n // 20 + 1) < 0.1, 20)[:n] & (rng.random(n) < 0.5)
    found, ratios = miss_runs(miss), by_definition(miss)
    assert found.dispersion == pytest.approx(max([1.0, *ratios]))
    if found.window:
        assert ratios[int(np.log2(found.window)) - 3] == pytest.approx(found.dispersion)
    inverse = miss_runs(~miss)
    assert inverse.dispersion == (found.dispersion if found.misses and inverse.misses else 1)


def test_dispersion_at_its_ends():
    for miss in (flags("." * 500), flags("x" * 500), flags("x." * 79), flags("." * 499 + "x")):
        assert (miss_runs(miss).dispersion, miss_runs(miss).window, miss_runs(miss).groups) == (1, 0, None)
    for at in (0, 77, 4741):  # one miss anywhere is exactly one: the plan for it still passes
        assert miss_runs(np.arange(4742) == at).dispersion == 1
    assert miss_runs(flags("." * 151 + "x.x.x.x")).dispersion == 1  # 158 releases: not 20 windows of 8
    assert miss_runs(flags("." * 153 + "x.x.x.x")).dispersion == pytest.approx(4, rel=0.1)
    spread = MissRuns(12, 12, 1, 5)
    assert (spread.separate, spread.few) == (12, False)


def test_runs_closer_together_than_the_window_are_one():
    miss = np.zeros(20_000, np.bool_)
    for start in (1000, 5000, 15_000):
        miss[start : start + 30 : 3] = True
    found = miss_runs(miss)
    assert (found.runs, found.groups, found.separate, found.few) == (30, 3, 3, True)
    rng = np.random.default_rng(3)
    flagged = [miss_runs(rng.random(20_000) < 0.005).few for _ in range(200)]
    assert sum(flagged) <= 6  # independent misses are seldom taken for few


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
