"""Advice on the tail: shown only where its conditions hold."""

from __future__ import annotations

import numpy as np
import pytest
from fake_loops import MS, run_of, simulated

from robot_perf.analyze.explain.tail import tail_advice


def run_of_execution(ns):
    return simulated(np.asarray(ns).astype(np.int64).tolist(), period_ns=100_000 * MS)


def test_an_exponential_tail_is_extrapolated_with_its_interval():
    rng = np.random.default_rng(3)
    n = 8000
    advice = tail_advice(run_of_execution(MS + rng.exponential(MS / 10, n)))
    assert advice.reason is None
    assert advice.exceedances >= 50
    assert advice.xi_low < 0 < advice.xi_high < 0.5
    assert [p.one_in for p in advice.points] == [n, 10 * n]
    for point in advice.points:
        true = MS + MS / 10 * np.log(point.one_in)
        assert point.low_ns < true < point.high_ns
        assert point.low_ns < point.value_ns < point.high_ns


@pytest.mark.parametrize(
    ("execution", "reason"),
    [
        (np.full(100, MS), "only 0 separate exceedances of p95 (needs 50)"),
        (MS + np.random.default_rng(1).exponential(MS, 500), "separate exceedances of p95 (needs 50)"),
        (MS * (1 + np.random.default_rng(1).pareto(1.2, 8000)), "too heavy to extrapolate"),
        (MS + np.arange(8000) * 50, "only 1 separate exceedances"),
    ],
)
def test_refused_with_the_reason(execution, reason):
    advice = tail_advice(run_of_execution(execution))
    assert reason in advice.reason
    assert advice.points == ()


def test_drift_refuses():
    rng = np.random.default_rng(3)
    base = MS + rng.exponential(MS / 10, 8000)
    base[4000:] += 0.3 * MS * np.abs(np.sin(np.arange(4000)))
    assert tail_advice(run_of_execution(base)).reason is not None


def test_no_steps():
    assert tail_advice(run_of([], steps=5, period_ns=MS)).reason == "no samples"
