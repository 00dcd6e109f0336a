"""Limits beside the miss rate: percentiles, (m,K), consecutive misses, release jitter."""

from __future__ import annotations

import numpy as np
import pytest
from fake_loops import MS, simulated

from robot_perf.analyze.checks import limit_checks
from robot_perf.analyze.evidence import judge_misses
from robot_perf.analyze.timeline import timeline
from robot_perf.errors import UsageError
from robot_perf.specs import Budget
from robot_perf.stats.burst import miss_runs


def check(execution_ms, **limits):
    run = simulated([round(ms * MS) for ms in execution_ms], period_ns=10 * MS, wake_delay_ns=MS // 10)
    (found,) = limit_checks(timeline(run), Budget(deadline_ns=10 * MS, **limits))
    return found.status, found.reason


# Response 1.1 to 2.099 ms, neighbouring values 617 steps apart: slow steps that came together would count as bursts.
RAMP = [1 + k / 1000 for k in sorted(range(1000), key=lambda k: k * 617 % 1000)]


@pytest.mark.parametrize(
    ("limit_ms", "status"),
    # ranks at 95 % of n = 1000, p99: upper 996 (2.095 ms), lower 985 (2.084 ms)
    [(2.095, "PASS"), (2.0949, "INCONCLUSIVE"), (2.084, "INCONCLUSIVE"), (2.0839, "FAIL")],
)
def test_percentile_limit(limit_ms, status):
    assert check(RAMP, percentile_limits_ns={"p99": round(limit_ms * MS)})[0] == status


def test_percentile_limit_words():
    status, reason = check(RAMP, percentile_limits_ns={"p99.9": 50 * MS})
    assert status == "INCONCLUSIVE"
    assert reason == "response p99.9 has no upper bound: not estimable (needs n >= 2995), limit 50.00 ms"
    assert "independent steps" in check(RAMP, percentile_limits_ns={"p50": 50 * MS})[1]


def test_a_percentile_on_skipped_releases_fails_its_limit():
    once = [1.0] * 1000
    once[100] = 990.0  # 98 of 1,000 releases skipped, but by one overrun: no more than one piece of evidence
    assert check(once, percentile_limits_ns={"p95": 10**12})[0] == "INCONCLUSIVE"
    execution = [1.0] * 600
    execution[::20] = [45.0] * 30  # four releases skipped each time
    status, reason = check(execution, percentile_limits_ns={"p95": 10**12})
    assert status == "FAIL"
    assert reason.startswith("response p95 is at least a skipped release")


@pytest.mark.parametrize("assumed", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("overruns", [0, 1, 4, 12, 60])
def test_a_percentile_at_the_deadline_says_what_the_miss_rate_says(assumed, overruns):
    """The duality, with bursts: p99 within D and a miss rate of at most 0.01 are one question and have one answer."""
    for steps in (299, 473, 1000, 3000):
        execution = [1.0] * steps
        for k in np.linspace(0, steps - 10, overruns).astype(int):
            execution[k] = 15.0
        line = timeline(simulated([round(ms * MS) for ms in execution], period_ns=10 * MS))
        asked = Budget(10 * MS, miss_rate=0.01, assumed_burst=assumed, percentile_limits_ns={"p99": 10 * MS})
        (found,) = limit_checks(line, asked)
        assert found.status == judge_misses(miss_runs(line.miss), line.releases, asked).status


def test_a_percentile_limit_counts_bursts():
    """Two overruns of two misses in 1,000 steps: as independent steps p99 passes, as overruns it may not."""
    execution = [1.0] * 1000
    execution[200] = execution[700] = 15.0
    status, reason = check(execution, percentile_limits_ns={"p99": 10 * MS})
    assert status == "INCONCLUSIVE"
    assert reason == (
        "response p99 is at most 1.10 ms (95 % confidence, independent steps), limit 10.00 ms; but 0.000381 to 0.0158 of"
        " releases may be above it, allowed 0.01: misses are clustered; assumes 2 misses per overrun, as observed; few miss"
        " runs, bound may be optimistic"
    )
    assert check([1.0] * 473, percentile_limits_ns={"p99": 10 * MS})[0] == "PASS"
    assert check([1.0] * 473, percentile_limits_ns={"p99": 10 * MS}, assumed_burst=2.0)[0] == "INCONCLUSIVE"


def test_unknown_percentile_is_one_message():
    with pytest.raises(UsageError, match="'p100' is not a percentile"):
        check(RAMP, percentile_limits_ns={"p100": MS})


def test_m_in_k():
    execution = [1.0] * 50
    execution[20] = 25.0  # misses 20, 21, 22
    assert check(execution, m_in_k=(2, 5)) == ("FAIL", "3 misses in 5 releases from release 18 on, allowed 2")
    status, reason = check(execution, m_in_k=(3, 5))
    assert (status, reason) == ("NOT VIOLATED", "at most 3 misses in any 5 releases: not violated in 50 releases")
    assert check(execution, m_in_k=(3, 51))[0] == "INCONCLUSIVE"
    assert check(execution, m_in_k=(2, 51))[0] == "FAIL"  # more misses than allowed, whatever the rest would have been


def test_consecutive_misses():
    execution = [1.0] * 50
    execution[20] = 25.0
    assert check(execution, max_consecutive_misses=2) == (
        "FAIL",
        "3 consecutive misses from release 20 on, allowed 2",
    )
    assert check(execution, max_consecutive_misses=3)[0] == "NOT VIOLATED"


def test_release_jitter():
    run = simulated([MS] * 5, period_ns=10 * MS, wake_delay_ns=50_000)
    line = timeline(run)
    asked = Budget(deadline_ns=10 * MS, release_jitter_limit_ns=10_000)
    assert limit_checks(line, asked)[0].status == "NOT VIOLATED"
    wake = line.wake.copy()
    wake[3] += 20_000
    object.__setattr__(line, "wake", wake)
    (found,) = limit_checks(line, asked)
    assert (found.status, found.reason) == ("FAIL", "release jitter was 20.0 µs, allowed 10.0 µs")
    one = timeline(simulated([MS], period_ns=10 * MS))
    assert limit_checks(one, asked)[0].status == "INCONCLUSIVE"
