"""Causes of late steps: only what a column shows."""

from __future__ import annotations

import numpy as np
import pytest
from fake_loops import MS, fake_loop, golden_ten, run_of, simulated

from robot_perf.analyze.explain.attribute import outliers, worst_cause

STEP = 20


def late_run(noise=None, *, execution_ns=14 * MS, wake_ns=1000, deadline_ns=5 * MS, before=None):
    execution = [MS] * 50
    execution[STEP] = execution_ns
    rows = fake_loop(execution, period_ns=10 * MS, overrun="skip", wake_delay_ns=1000)
    for row in rows:
        row |= {"nvcsw": 1, "nivcsw": 0, "minflt": 0, "majflt": 0, "gc_ns": 0, "cpu": 2}
        if row["step"] == STEP:
            row |= {"wake_ns": row["release_ns"] + wake_ns, "start_ns": row["release_ns"] + wake_ns + (before or 0)}
            row["end_ns"] = row["start_ns"] + execution_ns
            row.update(noise or {})
    return run_of(rows, steps=50, period_ns=10 * MS, deadline_ns=deadline_ns)


@pytest.mark.parametrize(
    ("noise", "cause"),
    [
        ({}, "long execution, unexplained by what was recorded"),
        ({"majflt": 2, "nivcsw": 9}, "major page faults"),
        ({"gc_ns": 11 * MS, "nivcsw": 1}, "Python garbage collection"),
        ({"gc_ns": MS, "nivcsw": 1}, "preemption (involuntary context switches)"),
        ({"minflt": 5000}, "many minor page faults"),
        ({"cpu": 3}, "a move to another processor"),
    ],
)
def test_long_execution(noise, cause):
    run = late_run(noise)
    assert outliers(run)[0].cause == cause
    assert worst_cause(run) == f"worst cause known: {cause}, 2 of 2 misses in 1 late step"


def test_late_before_the_policy_began():
    assert outliers(late_run(execution_ns=MS, wake_ns=6 * MS))[0].cause == "late wake-up"
    before = late_run(execution_ns=MS, before=7 * MS)
    assert outliers(before)[0].cause == "work between wake-up and the policy call"


def test_a_backlog_is_charged_to_the_step_that_began_it():
    run = golden_ten("queue")
    found = outliers(run, 4)
    assert [o.step for o in found] == [2, 3, 4, 5]
    assert [o.cause for o in found[1:]] == ["backlog of an earlier late step"] * 3
    assert [o.backlog_ns for o in found] == [0, 15_100_000, 9_100_000, 3_100_000]
    assert [o.kind for o in found] == ["late"] * 3 + ["on time"]
    text = "worst cause known: long execution, unexplained by what was recorded, 3 of 3 misses in 3 late steps"
    assert worst_cause(run) == text


def test_a_policy_that_is_simply_too_slow():
    run = simulated([12 * MS] * 100, period_ns=10 * MS)
    assert worst_cause(run).startswith("worst cause known: the policy's usual execution time, 100 of 100 misses")


def test_a_step_on_time_answers_for_the_releases_it_dropped():
    def run(execution, **options):
        return simulated(execution, period_ns=10 * MS, deadline_ns=30 * MS, **options)

    stalled = [MS] * 50
    stalled[20] = 25 * MS
    words = "2 of 2 misses in 1 step on time that dropped the next releases"
    assert worst_cause(run(stalled)) == f"worst cause known: long execution, unexplained by what was recorded, {words}"
    stalled[30] = 45 * MS  # late, and drops 4
    assert worst_cause(run(stalled)).endswith("7 of 7 misses in 2 steps, 1 of them late")
    slow = worst_cause(run([12 * MS] * 100))
    assert slow.startswith("worst cause known: the policy's usual execution time, 50 of 50 misses in 50 steps on time")
    assert slow.endswith("(median execution 12.00 ms, deadline 30.00 ms, period 10.00 ms)")


def test_a_step_that_never_finished_was_not_dropped():
    rows = fake_loop([MS] * 7, period_ns=10 * MS, overrun="skip")
    flying = run_of(rows, steps=20, period_ns=10 * MS, state="interrupted", reached=8, in_flight={"step": 7})
    assert worst_cause(flying) == "a step never finished"
    assert [o.skipped_after for o in outliers(flying)] == [0] * 7


def test_outliers_carry_the_state_around_them():
    run = late_run({"gc_ns": 11 * MS, "nivcsw": 4, "nvcsw": 6, "minflt": 8, "majflt": 0, "cpu": 5})
    worst = outliers(run)[0]
    assert (worst.step, worst.kind, worst.skipped_after) == (STEP, "late", 1)
    assert (worst.gc_ns, worst.nivcsw, worst.nvcsw, worst.minflt, worst.majflt) == (11 * MS, 4, 6, 8, 0)
    assert (worst.cpu, worst.cpu_before) == (5, 2)
    assert (worst.execution_ns, worst.wakeup_ns, worst.start_latency_ns) == (14 * MS, 1000, 1000)
    assert len(outliers(run)) == 10
    assert [o.response_ns for o in outliers(run)] == sorted((o.response_ns for o in outliers(run)), reverse=True)
    bare = outliers(golden_ten("skip"))[0]
    assert (bare.gc_ns, bare.nivcsw, bare.cpu, bare.cpu_before) == (None, None, None, None)


@pytest.mark.parametrize(
    ("slow", "switched", "cause"),
    [
        (5, 1, "long execution, unexplained by what was recorded"),  # one of five, as of the fast ones
        (5, 5, "preemption (involuntary context switches)"),
    ],
)
def test_a_switch_that_fast_steps_have_as_well_explains_nothing(slow, switched, cause):
    """The counter runs from finish to finish: with a spinning wait every fifth step has a switch, whatever it took."""
    late = list(range(100, 100 + 60 * slow, 60))
    execution = [MS] * 500
    for at in late:
        execution[at] = 9 * MS
    rows = fake_loop(execution, period_ns=10 * MS, overrun="skip", wake_delay_ns=1000)
    for row in rows:
        row |= {"nvcsw": 1, "nivcsw": int(row["step"] % 5 == 1), "minflt": 0, "majflt": 0, "gc_ns": 0, "cpu": 2}
        if row["step"] in late:
            row["nivcsw"] = int(row["step"] in late[:switched])
    run = run_of(rows, steps=500, period_ns=10 * MS, deadline_ns=5 * MS)
    assert worst_cause(run).startswith(f"worst cause known: {cause}, {slow} of {slow} misses")
    many = [row | {"nivcsw": 40} if row["step"] in late[:1] else row for row in rows]
    found = outliers(run_of(many, steps=500, period_ns=10 * MS, deadline_ns=5 * MS), slow)
    assert found[0].cause == "preemption (involuntary context switches)"


def test_no_late_step_no_cause():
    assert worst_cause(simulated([MS] * 20, period_ns=10 * MS)) == ""
    assert outliers(run_of([], steps=5, period_ns=MS)) == ()
    rows = fake_loop([MS] * 4, period_ns=10 * MS, overrun="skip")
    rows[2]["end_ns"] = -1
    assert worst_cause(run_of(rows, steps=4, period_ns=10 * MS)) == "a step never finished"


def test_misses_are_charged_in_full():
    rng = np.random.default_rng(12)
    run = simulated((rng.integers(1, 35, 400) * MS).tolist(), period_ns=10 * MS)
    assert "misses in" in worst_cause(run)
