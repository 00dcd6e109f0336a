"""Run lengths before a run: the planning tables, bursts, and the new run that a verdict proposes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.stats.binomial import upper_bound
from robot_perf.stats.burst import design_effect
from robot_perf.stats.plan import independent_steps, plan_rows, plan_steps, steps_to_pass

NO_MISSES = {
    1e-2: (230, 299, 459, 688),
    5e-3: (460, 598, 919, 1379),
    1e-3: (2302, 2995, 4603, 6905),
    1e-4: (23025, 29956, 46050, 69075),
    1e-5: (230258, 299572, 460515, 690773),
}


@pytest.mark.parametrize("p0", NO_MISSES)
def test_no_misses(p0):
    assert tuple(independent_steps(p0, c) for c in (0.9, 0.95, 0.99, 0.999)) == NO_MISSES[p0]


@pytest.mark.parametrize(
    ("p0", "c", "steps"),
    [
        (1e-2, 0.95, (299, 473, 628, 773, 913, 1049)),
        (1e-2, 0.99, (459, 662, 838, 1001, 1157, 1307)),
        (1e-3, 0.95, (2995, 4742, 6294, 7752, 9151, 10511)),
        (1e-3, 0.99, (4603, 6636, 8403, 10042, 11601, 13105)),
        (1e-4, 0.95, (29956, 47437, 62956, 77535, 91533, 105128)),
        (1 - 0.9, 0.99, (44, 64, 81, 97, 113, 127)),
        (1 - 0.95, 0.99, (90, 130, 165, 198, 229, 259)),
        (1 - 0.97, 0.99, (152, 219, 277, 332, 383, 433)),
    ],
)
def test_allowing_misses(p0, c, steps):
    assert tuple(independent_steps(p0, c, k) for k in range(6)) == steps


def test_bursts_lengthen_the_plan_by_the_design_effect():
    assert plan_steps(1e-3, 0.95, burst=2) == 3 * 2995
    assert plan_steps(1e-3, 0.95, allowed=1, burst=2) == 3 * 4742
    assert plan_steps(1e-2, 0.95, allowed=1, burst=2) == 3 * 473
    assert plan_steps(1e-3, 0.95, burst=1) == plan_steps(1e-3, 0.95, burst=0.5) == 2995
    assert design_effect(2) == 3
    assert design_effect(0.2) == 1


def test_rows_say_what_each_length_decides():
    rows = plan_rows(1e-3, 0.95, 20_000_000, burst=2)
    assert [row.steps for row in rows] == [3 * n for n in (2995, 4742, 6294, 7752, 9151, 10511)]
    assert rows[0].duration_ns == 8985 * 20_000_000
    # a run for at most one overrun passes with up to 3 misses: one overrun of 2, or 3 misses of at most 2 per overrun
    assert [row.thresholds.pass_at_most for row in rows[:3]] == [0, 3, 6]
    assert all(row.thresholds.fail_at_least > row.thresholds.pass_at_most for row in rows)


@pytest.mark.parametrize(("p0", "c", "k"), [(0, 0.95, 0), (1, 0.95, 0), (0.1, 1, 0), (0.1, 0.95, -1)])
def test_no_plan(p0, c, k):
    with pytest.raises(ValueError, match="no plan"):
        independent_steps(p0, c, k)


@given(st.sampled_from([1e-1, 1e-2, 1e-3, 1e-4]), st.sampled_from([0.9, 0.95, 0.99]), st.integers(0, 8))
def test_a_plan_is_the_shortest_that_passes(p0, c, k):
    n = independent_steps(p0, c, k)
    assert upper_bound(k, n, c) <= p0 * (1 + 1e-12)
    assert upper_bound(k, n - 1, c) > p0


@given(st.integers(0, 300), st.sampled_from([1e-1, 1e-2, 1e-3, 1e-4]), st.floats(1, 30))
def test_the_proposed_run_passes_and_is_nearly_the_shortest(misses, p0, deff):
    steps = steps_to_pass(misses, p0, 0.95, deff)
    assert steps >= misses
    assert upper_bound(misses / deff, steps / deff, 0.95) <= p0
    # one independent observation less does not pass: a run is planned in whole ones
    shorter = (steps - deff - 1) / deff
    if shorter >= max(misses / deff, 1):
        assert upper_bound(misses / deff, shorter, 0.95) > p0


@pytest.mark.parametrize("burst", [1, 1.5, 2, 4])
def test_what_a_verdict_proposes_is_a_row_of_the_plan(burst):
    deff = design_effect(burst)
    rows = plan_rows(1e-3, 0.95, 10_000_000, burst=burst)
    assert [row.steps for row in rows] == [steps_to_pass(row.allowed * deff, 1e-3, 0.95, deff) for row in rows]
