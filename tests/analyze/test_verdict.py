"""The verdict: thresholds, bursts, words, worst of several checks."""

from __future__ import annotations

import numpy as np
import pytest
from fake_loops import MS, golden_ten, run_of, simulated
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.analyze.verdict import judge, judge_misses
from robot_perf.errors import UsageError
from robot_perf.specs import Budget
from robot_perf.stats.burst import MissRuns, miss_runs
from robot_perf.stats.plan import plan_steps


def budget(**options):
    return Budget(**{"deadline_ns": 10 * MS, "miss_rate": 1e-3, **options})


def run_with(misses_at, steps, *, deadline_ns=5 * MS, **options):
    """T = 10 ms, D = 5 ms: each late job costs exactly one miss."""
    execution = np.full(steps, MS)
    execution[list(misses_at)] = 6 * MS
    options.setdefault("budget", budget())
    return simulated(execution.tolist(), period_ns=10 * MS, deadline_ns=deadline_ns, **options)


@pytest.mark.parametrize(
    ("p0", "n", "c", "passes", "fails"),
    [
        (1e-2, 299, 0.95, 0, 7),
        (1e-2, 1000, 0.95, 4, 16),
        (1e-2, 10000, 0.95, 83, 118),
        (1e-3, 1000, 0.95, None, 4),
        (1e-3, 3000, 0.95, 0, 7),
        (1e-3, 5000, 0.95, 1, 10),
        (1e-3, 5000, 0.99, 0, 12),
        (1e-3, 10000, 0.95, 4, 16),
        (1e-3, 60000, 0.95, 47, 74),
        (1e-4, 10000, 0.95, None, 4),
        (1e-4, 30000, 0.95, 0, 7),
    ],
)
def test_thresholds_decide(p0, n, c, passes, fails):
    asked = budget(miss_rate=p0, confidence=c)

    def status(k):
        return judge_misses(MissRuns(k, k, int(k > 0), None), n, asked).status

    if passes is None:
        assert status(0) == "INCONCLUSIVE"
    else:
        assert (status(passes), status(passes + 1)) == ("PASS", "INCONCLUSIVE")
    assert (status(fails - 1), status(fails)) == ("INCONCLUSIVE", "FAIL")


def test_pass_says_the_bound_and_what_it_assumed():
    verdict = judge(run_with([], 2995))
    assert (verdict.status, verdict.exit_code) == ("PASS", 0)
    assert verdict.reason == (
        "0 of 2,995 releases missed: the miss rate is at most 0.0009998 with 95 % confidence, allowed 0.001;"
        " assumes independent misses"
    )
    assert verdict.miss_rate_upper == verdict.plain_upper == pytest.approx(0.0009997444209, rel=1e-9)
    assert (verdict.miss_rate, verdict.miss_rate_lower, verdict.observed_burst, verdict.deff) == (0, 0, None, 1)
    assert (verdict.pass_at_most, verdict.fail_at_least) == (0, 7)
    assert verdict.next_step == verdict.cause == ""


def test_an_assumed_burst_is_a_floor_even_at_zero_misses():
    short = judge(run_with([], 2995, budget=budget(assumed_burst=2.0)))
    assert short.status == "INCONCLUSIVE"
    assert short.deff == 3
    assert "assumes 2 misses per overrun" in short.reason
    assert short.plain_upper <= 1e-3 < short.miss_rate_upper
    assert "too short for the burst it assumes" in short.notes[0]
    # 3 * 2995, the row of 0 overruns that `--plan` prints
    assert short.next_step == "a new run of 8,985 releases (1 min 30 s) with no more misses than this would PASS"
    planned = judge(run_with([], plan_steps(1e-3, 0.95, burst=2), budget=budget(assumed_burst=2.0)))
    assert planned.status == "PASS"
    assert "no miss was seen, so nothing is known about how misses cluster" in planned.notes


def test_the_new_run_that_it_proposes_passes():
    first = judge(run_with([5, 900], 2995))
    assert first.status == "INCONCLUSIVE"
    steps = int(first.next_step.split(" of ")[1].split(" ")[0].replace(",", ""))
    assert judge(run_with([5, 900], steps)).status == "PASS"
    assert judge(run_with([5, 900], steps - 5)).status == "INCONCLUSIVE"


def test_too_many_misses_to_expect_a_pass():
    verdict = judge(run_with(range(100, 900, 200), 3000))
    assert verdict.status == "INCONCLUSIVE"
    assert "expect a longer run to FAIL" in verdict.next_step


def test_only_the_plain_bound_passes():
    """One overrun of three misses in a run planned for it: clustered, so inconclusive."""
    steps = plan_steps(1e-3, 0.95, allowed=1)
    execution = np.full(steps, MS)
    execution[77] = 25 * MS
    one = judge(simulated(execution.tolist(), period_ns=10 * MS, budget=budget()))
    assert (one.misses, one.miss_runs, one.longest_miss_run, one.observed_burst, one.deff) == (3, 1, 3, 3, 5)
    assert one.status == "INCONCLUSIVE"
    longer = np.full(3 * steps, MS)
    longer[77] = 25 * MS
    verdict = judge(simulated(longer.tolist(), period_ns=10 * MS, budget=budget()))
    assert (verdict.status, verdict.plain_upper < 1e-3 < verdict.miss_rate_upper) == ("INCONCLUSIVE", True)
    assert "misses are clustered; assumes 3 misses per overrun, as observed" in verdict.reason
    assert any("evidence of bursts" in note for note in verdict.notes)


def test_few_miss_runs_are_called_so():
    steps = plan_steps(1e-3, 0.95, allowed=9)
    nine = judge(run_with(range(10, steps, 1 + steps // 9), steps))  # spread: together they would count for less
    ten = judge(run_with(range(10, steps + 3000, 1 + (steps + 3000) // 10), steps + 3000))
    assert (nine.status, nine.miss_runs) == ("PASS", 9)
    assert "few miss runs, bound may be optimistic" in nine.reason
    assert "few miss runs, bound may be optimistic" in nine.notes
    assert (ten.status, ten.miss_runs) == ("PASS", 10)
    assert "few miss runs" not in ten.reason


def test_misses_with_hits_between_them_come_together():
    """Twelve runs of one miss in two episodes of the slow kind: two pieces of evidence, not twelve."""
    steps = 12 * plan_steps(1e-3, 0.95)
    spread = judge(run_with(range(10, steps, 1 + steps // 12), steps))
    assert (spread.status, spread.deff, spread.cluster_window, spread.miss_runs) == ("PASS", 1, None, 12)
    episodes = [*range(1000, 1024, 4), *range(9000, 9024, 4)]
    slow = judge(run_with(episodes, steps))
    assert (slow.miss_runs, slow.observed_burst, slow.longest_miss_run) == (12, 1, 1)
    assert slow.deff == pytest.approx(6, rel=0.01)
    assert slow.miss_rate_upper > spread.miss_rate_upper
    # in windows of 32 each episode is whole, and none larger spreads more
    assert slow.cluster_window == 32
    assert "misses come together within 32 releases, and count like bursts of 3.5; few miss runs" in slow.reason
    shorter = judge(run_with(episodes, steps * 5 // 9))
    assert (shorter.status, shorter.plain_upper < 1e-3 < shorter.miss_rate_upper) == ("INCONCLUSIVE", True)
    assert shorter.next_step.endswith("with no more misses than this, no more clustered, would PASS")


def test_fail_names_the_worst_cause_known():
    execution = [12 * MS] * 200
    verdict = judge(simulated(execution, period_ns=10 * MS, budget=budget()))
    assert (verdict.status, verdict.exit_code) == ("FAIL", 1)
    assert verdict.miss_rate == 1
    assert verdict.cause == (
        "worst cause known: the policy's usual execution time, 200 of 200 misses in 100 late steps"
        " (median execution 12.00 ms, deadline 10.00 ms)"
    )


def test_golden_ten_counts():
    for overrun, skipped, late in (("skip", 2, 1), ("queue", 0, 3)):
        verdict = judge(golden_ten(overrun, budget=budget()))
        assert (verdict.releases, verdict.misses, verdict.skipped, verdict.late) == (10, 3, skipped, late)
        assert (verdict.longest_miss_run, verdict.miss_runs, verdict.deff) == (3, 1, 5)


def test_no_releases():
    verdict = judge(run_of([], steps=0, period_ns=MS))
    assert (verdict.status, verdict.miss_rate, verdict.miss_rate_upper) == ("INCONCLUSIVE", None, None)
    assert "no release was reached" in verdict.reason


def test_a_back_to_back_run_has_no_verdict():
    rows = [{"step": k, "release_ns": k, "start_ns": k, "end_ns": k + 1} for k in range(10)]
    with pytest.raises(UsageError, match="back-to-back Run has no deadline verdict"):
        judge(run_of(rows, steps=10, period_ns=0))


def test_the_worst_check_decides():
    clean, late = [], [5]
    assert judge(run_with(clean, 2995, budget=budget(percentile_limits_ns={"p99": 2 * MS}))).status == "PASS"
    limited = judge(run_with(clean, 2995, budget=budget(percentile_limits_ns={"p99.99": 2 * MS})))
    assert limited.status == "INCONCLUSIVE"
    assert limited.reason.startswith("response p99.99 has no upper bound: not estimable (needs n >= 29956)")
    assert limited.next_step == ""
    failed = judge(run_with(late, 2995, budget=budget(max_consecutive_misses=0)))
    assert failed.status == "FAIL"
    assert failed.reason.startswith("1 consecutive miss from release 5 on, allowed 0; 1 of 2,995 releases missed")
    unharmed = judge(run_with(late, 2995, budget=budget(max_consecutive_misses=1)))
    assert unharmed.status == "INCONCLUSIVE"  # "not violated" never lifts an INCONCLUSIVE to PASS
    invalid = judge(run_with(late, 2995, budget=budget(max_consecutive_misses=0), invalid=["the action was NaN"]))
    assert (invalid.status, invalid.exit_code, invalid.reason) == ("INVALID", 4, "the action was NaN")
    assert invalid.misses == 1


@pytest.mark.parametrize("releases", [217, 2995])
def test_an_invalid_run_carries_no_remark_on_what_its_counts_would_mean(releases):
    """No verdict follows from it: "with independent misses it would PASS" beside INVALID says the contrary."""
    valid = judge(run_with([], releases, budget=budget(assumed_burst=2.0)))
    assert valid.notes
    broken = judge(run_with([], releases, budget=budget(assumed_burst=2.0), invalid=["the action was NaN"]))
    assert (broken.status, broken.notes) == ("INVALID", ())


def test_an_interrupted_run_is_invalid_and_shows_what_was_measured():
    run = run_with([5], 500)
    stopped = run_of(
        [{name: int(run.columns[name][i]) for name in run.columns} for i in range(120)],
        steps=500,
        period_ns=10 * MS,
        deadline_ns=5 * MS,
        state="interrupted by SIGINT after 120 of 500 releases",
        reached=120,
    )
    verdict = judge(stopped)
    assert (verdict.status, verdict.releases, verdict.misses, verdict.skipped) == ("INVALID", 120, 1, 0)
    assert verdict.reason == "interrupted by SIGINT after 120 of 500 releases"
    assert verdict.next_step == "remove the cause and measure again"


rank = {"PASS": 0, "INCONCLUSIVE": 1, "FAIL": 2}


@given(st.integers(1, 5000), st.floats(1e-4, 0.3), st.sampled_from([1.0, 2.0, 5.0]), st.integers(1, 4), st.data())
def test_the_verdict_worsens_with_each_miss(n, p0, assumed, length, data):
    """At a fixed number of misses per run, another miss never improves the verdict."""
    k = data.draw(st.integers(0, n - 1))
    asked = budget(miss_rate=p0, assumed_burst=assumed)
    results = []
    for misses in (k, k + 1):
        runs = -(-misses // length)
        found = judge_misses(MissRuns(misses, runs, min(length, misses), None), n, asked)
        results.append(found)
    first, second = results
    if first.deff == second.deff:
        assert rank[first.status] <= rank[second.status]
        assert first.upper <= second.upper
        assert first.lower <= second.lower


@given(st.lists(st.booleans(), min_size=1, max_size=300), st.sampled_from([1.0, 2.0, 7.0]))
def test_bounds_enclose_the_ratio_and_the_correction_only_widens(miss, assumed):
    runs = miss_runs(np.array(miss))
    found = judge_misses(runs, len(miss), budget(miss_rate=0.01, assumed_burst=assumed))
    ratio = sum(miss) / len(miss)
    assert found.lower <= found.plain_lower + 1e-12
    assert found.upper >= found.plain_upper - 1e-12
    assert found.lower <= ratio + 1e-12
    assert found.upper >= ratio - 1e-12
    assert found.burst >= assumed
    assert found.deff >= 1


def test_a_loop_that_misses_every_release_fails():
    """One run of misses from end to end is an overload, not one unlucky burst."""
    budget = Budget(deadline_ns=1, miss_rate=0.01, assumed_burst=2.0)
    everything = judge_misses(miss_runs(np.ones(60, dtype=bool)), 60, budget)
    assert (everything.status, everything.burst) == ("FAIL", 2.0)
    assert everything.lower is not None
    assert everything.lower > 0.8
    all_but_one = np.ones(60, dtype=bool)
    all_but_one[30] = False
    assert judge_misses(miss_runs(all_but_one), 60, budget).status == "FAIL"
    # half missed in one block of each stays as uncertain as it is: two runs in all
    half = judge_misses(miss_runs(np.arange(60) >= 30), 60, budget)
    assert half.status == "INCONCLUSIVE"
