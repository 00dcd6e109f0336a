"""Limits beside the miss rate: percentiles, (m,K), consecutive misses, release jitter."""

from __future__ import annotations

import pytest
from fake_loops import MS, simulated

from robot_perf.analyze.checks import limit_checks
from robot_perf.analyze.timeline import timeline
from robot_perf.errors import UsageError
from robot_perf.specs import Budget


def check(execution_ms, **limits):
    run = simulated([round(ms * MS) for ms in execution_ms], period_ns=10 * MS, wake_delay_ns=MS // 10)
    (found,) = limit_checks(timeline(run), Budget(deadline_ns=10 * MS, **limits))
    return found.status, found.reason


RAMP = [1 + k / 1000 for k in range(1000)]  # response 1.1 to 2.099 ms


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
    execution = [1.0] * 1000
    execution[100] = 990.0
    status, reason = check(execution, percentile_limits_ns={"p95": 10**12})
    assert status == "FAIL"
    assert reason.startswith("response p95 is at least a skipped release")


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
