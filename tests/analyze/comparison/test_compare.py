"""Two Runs: refused, faster, slower, no difference, can't say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fake_loops import MS, fake_loop, run_of, simulated

from robot_perf.analyze.comparison.compare import compare, duty_cycle_penalty
from robot_perf.errors import UsageError
from robot_perf.specs import to_json


def noisy(mean_ms, *, seed, n=2000, spread=0.03, stall=(), **options):
    rng = np.random.default_rng(seed)
    execution = (mean_ms * MS * (1 + spread * rng.standard_normal(n)).clip(min=0.1)).astype(np.int64)
    execution[list(stall)] = 25 * MS
    return simulated(execution.tolist(), period_ns=10 * MS, **options)


def test_faster_and_slower_are_seen_from_a():
    quick, slow = noisy(2, seed=1), noisy(3, seed=2)
    faster = compare(slow, quick).latency
    assert faster.answer == "faster"
    assert faster.difference_ns == pytest.approx(-MS, rel=0.02)
    assert faster.low_ns <= faster.difference_ns <= faster.high_ns < -faster.floor_ns
    assert compare(quick, slow).latency.answer == "slower"
    assert (faster.n_a, faster.n_b, faster.confidence) == (2000, 2000, 0.95)
    assert "beyond the noise floor" in faster.reason


def test_identical_runs_do_not_differ():
    a = noisy(2, seed=1)
    for b in (a, noisy(2, seed=2)):
        found = compare(a, b)
        assert found.latency.answer == "no difference"
        assert found.latency.reason.startswith("not distinguishable")
        assert found.misses.answer == "no difference shown"
    assert found.latency.floor_source == "5 % of A, more than drift within the Runs"


def test_an_a_a_pair_raises_the_floor_and_never_lowers_it():
    a, b, far = noisy(2, seed=1), noisy(2.06, seed=2), noisy(2.3, seed=2)  # 3 %, 15 %
    lucky = (noisy(2, seed=3), noisy(2, seed=4))  # two runs that happened to lie close say little
    found = compare(a, b, same=lucky).latency
    assert (found.answer, found.floor_source[:7]) == ("no difference", "5 % of ")
    assert found.floor_ns == compare(a, b).latency.floor_ns
    assert compare(a, far, same=lucky).latency.answer == "slower"
    apart = (noisy(2, seed=3), noisy(2.5, seed=4))  # identical programs, 25 % apart
    assert compare(a, far, same=apart).latency.answer == "no difference"
    assert compare(a, far, same=apart).latency.floor_source.startswith("A/A pair")


def test_a_pair_makes_identical_runs_differ_no_more_often():
    """Runs of one thing whose medians scatter by 1 %: with the pair alone for a floor 6 % of comparisons saw a difference."""
    rng = np.random.default_rng(11)
    answers = []
    for i in range(40):
        a, b, one, other = (noisy(2 * (1 + 0.01 * rng.standard_normal()), seed=4 * i + j, n=300) for j in range(4))
        answers.append(compare(a, b, same=(one, other)).latency.answer)
    assert not {"faster", "slower"} & set(answers)


def test_the_interval_of_the_ratio_stands_beside_that_of_the_difference():
    found = compare(noisy(2, seed=1), noisy(3, seed=2)).latency
    assert 1.48 < found.ratio_low < 1.5 < found.ratio_high < 1.52
    tail = compare(noisy(2, seed=2), noisy(2, seed=1, stall=range(0, 2000, 100))).tail
    assert tail.ratio_high is None


def test_cant_say():
    short = compare(noisy(2, seed=1, n=5), noisy(3, seed=2, n=5))
    assert (short.latency.answer, short.latency.reason) == ("can't say", "p50 not estimable (needs n >= 6)")
    assert (short.tail.answer, short.tail.reason) == ("can't say", "p99 not estimable (needs n >= 368)")
    wide = compare(noisy(2, seed=1, n=40, spread=0.4), noisy(2.3, seed=2, n=40, spread=0.4)).latency
    assert wide.answer == "can't say"
    assert "reaches across the noise floor" in wide.reason
    swallowed = noisy(2, seed=1, stall=range(0, 2000, 100))
    tail = compare(noisy(2, seed=2), swallowed).tail
    assert (tail.answer, tail.b_ns, tail.difference_ns) == ("can't say", None, None)
    assert tail.reason == "p99 is a skipped release in B"


def test_tail_difference():
    rng = np.random.default_rng(5)
    a = (MS + rng.exponential(0.1 * MS, 4000)).astype(int)
    b = (MS + rng.exponential(1.0 * MS, 4000)).astype(int)
    found = compare(simulated(a.tolist(), period_ns=20 * MS), simulated(b.tolist(), period_ns=20 * MS))
    assert found.tail.answer == "slower"
    assert found.tail.low_ns > 2 * MS


def test_misses_by_fisher_counted_by_overrun_too():
    clean, late = noisy(2, seed=1, n=10_000), noisy(2, seed=2, n=10_000, stall=range(5, 10_000, 1000))
    more = compare(clean, late).misses
    assert (more.misses_a, more.misses_b, more.overruns_b, more.answer) == (0, 30, 10, "more")
    assert more.p_more < more.p_more_overruns < 0.05
    assert compare(late, clean).misses.answer == "fewer"
    # 6 misses against 0 look certain, but they are 2 overruns
    two = compare(clean, noisy(2, seed=2, n=10_000, stall=(5, 500))).misses
    assert two.p_more < 0.05 < two.p_more_overruns
    assert two.answer == "no difference shown"


def with_condition(run, path, value):
    conditions = json.loads(json.dumps(dict(run.conditions)))
    at = conditions
    for key in path[:-1]:
        at = at.setdefault(key, {})
    at[path[-1]] = value
    return type(run)(run.columns, conditions)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("loop", "period_ns"), 20 * MS, "loop.period_ns: 10.00 ms and 20.00 ms"),
        (("loop", "overrun"), "queue", "loop.overrun: skip and queue"),
        (("policy", "name"), "other", "policy: spin and other"),
        (("host", "cpu_model"), "another CPU", "host.cpu_model: not recorded and another CPU"),
    ],
)
def test_refused_with_the_field_and_both_values(path, value, words):
    a = noisy(2, seed=1, n=50)
    with pytest.raises(UsageError, match="not comparable") as refused:
        compare(a, with_condition(a, path, value))
    assert words in str(refused.value)


def test_a_condition_may_be_allowed_to_differ():
    a = noisy(2, seed=1)
    b = with_condition(noisy(3, seed=2), ("policy", "name"), "other")
    assert compare(a, b, allow=("policy",)).latency.answer == "slower"


def test_backends_may_differ_and_are_named():
    a = noisy(2, seed=1)
    b = with_condition(a, ("backend", "name"), "eager")
    assert [str(d) for d in compare(a, b).differs] == ["backend: python and eager"]


def test_invalid_runs_are_refused():
    a = noisy(2, seed=1, n=50)
    with pytest.raises(UsageError, match="B is INVALID"):
        compare(a, with_condition(a, ("invalid",), ["3 compiles inside the measured window"]))


def test_the_answer_is_plain_json():
    found = compare(noisy(2, seed=1), noisy(2, seed=2, stall=range(0, 2000, 50)))
    document = json.loads(json.dumps(to_json(found), allow_nan=False))
    assert document["latency"]["answer"] in ("faster", "slower", "no difference", "can't say")
    assert document["misses"]["answer"] == "more"


def test_duty_cycle_penalty():
    paced = simulated([3 * MS] * 100, period_ns=10 * MS)
    rows = fake_loop([MS] * 100, period_ns=MS, overrun="skip")
    tight = run_of(rows, steps=100, period_ns=0, deadline_ns=0)
    found = duty_cycle_penalty(paced, tight)
    assert (found.ratio, found.paced_ns, found.tight_ns, found.n_tight) == (3, 3 * MS, MS, 100)
    with pytest.raises(UsageError, match="back-to-back"):
        duty_cycle_penalty(tight, paced)
