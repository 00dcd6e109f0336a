"""What an observer may say of a topic: golden cases, and an interval that holds the truth whatever the loop did."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_perf.analyze.arrivals import fitted_period, grid_indexes, latency_by_order, view

MS = 1_000_000
T = 10 * MS


def test_a_clean_topic():
    seen = view(np.arange(1000) * T + 5, period_ns=T, miss_rate=0.2)
    assert (seen.releases, seen.misses_low, seen.misses_high, seen.gaps, seen.status) == (1000, 0, 0, 0, "PASS")


def test_a_gap_hides_a_late_job():
    k = np.array([0, 1, 2, 5, 6, 7])
    seen = view(k * T, period_ns=T)
    assert (seen.releases, seen.misses_low, seen.misses_high, seen.gaps) == (8, 2, 3, 1)


def test_a_burst_after_a_pause_of_the_observer_is_no_miss():
    arrivals = np.arange(20) * T
    arrivals[10:14] = arrivals[14] - np.array([4, 3, 2, 1]) * 1000
    assert view(arrivals, period_ns=T).misses_low == 0


def test_too_few_arrivals_say_nothing():
    assert view(np.array([0, T])) is None


def test_the_period_is_estimated_and_said_so():
    seen = view(np.arange(50) * T)
    assert seen.period_estimated
    assert seen.period_ns == T


def test_a_period_that_was_not_told_invents_no_misses():
    """The median distance is wrong by 0.006 % here: half a period after 9000 arrivals."""
    rng = np.random.default_rng(9)
    for jitter in (MS // 20, MS, 1.5 * MS):
        arrivals = (np.arange(9000) * 2 * T + rng.exponential(jitter, 9000)).astype(np.int64)
        seen = view(arrivals)
        assert (seen.misses_low, seen.misses_high, seen.has_grid, seen.status) == (0, 0, True, "PASS")
        assert abs(fitted_period(arrivals) / (2 * T) - 1) < 1e-6
        kept = np.delete(arrivals, [*range(4000, 4060), 7000])
        assert (view(kept).misses_low, view(kept).has_grid) == (61, True)
    assert fitted_period(np.array([0, T])) is None
    assert view(np.array([5, 5, 5, 5])) is None


def test_a_loop_that_sleeps_the_rest_has_no_grid_and_no_invented_misses():
    rng = np.random.default_rng(9)
    arrivals = np.cumsum(2 * T + rng.exponential(MS, 9000)).astype(np.int64)
    seen = view(arrivals)
    assert (seen.misses_low, seen.has_grid, seen.status) == (0, False, "can't say")
    assert view(np.delete(arrivals, 5000)).misses_low == 1
    slow = view(np.cumsum(2 * T + rng.exponential(MS // 50, 9000)).astype(np.int64))
    assert (slow.misses_low, slow.misses_high) == (0, 0)  # hardly wanders: as good as a grid


def test_only_the_first_releases():
    k = np.concatenate((np.arange(20), np.arange(30, 50)))
    assert view(k * T, period_ns=T, releases=20).misses_low == 0
    assert view(k * T, period_ns=T, releases=25).misses_low == 5


def test_latency_by_order():
    assert latency_by_order(np.array([10, 20]), np.array([5, 12, 25])).tolist() == [2, 5]


@settings(max_examples=200)
@given(st.lists(st.floats(0.02, 3.5), min_size=20, max_size=120), st.integers(0, 2**31))
def test_the_interval_holds_the_truth(loads, seed):
    """A skip loop whose jobs take `load` periods; the transport adds up to a tenth of one."""
    rng = np.random.default_rng(seed)
    k, arrivals, truth = 0, [], 0
    last = 0
    for load in [0.1, *loads, 0.1]:  # the ends of the window are seen
        end = k * T + int(load * T)
        truth += load > 1
        arrivals.append(end + int(rng.uniform(0, 0.1) * T))
        last, following = k, max(k + 1, -(-end // T))
        truth += following - k - 1
        k = following
    # Only jobs shorter than about half a period tell the grid's phase; a mean of many short ones does.
    if np.mean(np.array(loads) < 0.5) < 0.9:
        return
    seen = view(np.array(arrivals), period_ns=T)
    assert abs(seen.releases - (last + 1)) <= 2
    assert seen.misses_low - 2 <= truth <= seen.misses_high + 2 + sum(0.5 < x <= 1.2 for x in loads)


@given(st.lists(st.integers(0, 10**10), min_size=3, max_size=60))
def test_indexes_rise_strictly(values):
    indexes = grid_indexes(np.sort(np.array(values)), T)
    assert (np.diff(indexes) >= 1).all()
    assert indexes[0] == 0
