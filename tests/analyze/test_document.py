"""The `robot-perf deadline --json` document: its keys, its units, a reason for every value it lacks."""

from __future__ import annotations

import json

import pytest
from fake_loops import MS, golden_ten, run_of, simulated

from robot_perf.analyze.document import deadline_document
from robot_perf.specs import Budget

METRICS = ("response_us", "response_executed_us", "wakeup_us", "execution_us", "harness_us")
PERCENTILES = ["p50", "p90", "p99", "p99.9", "max"]


def document(run):
    found = deadline_document(run)
    return json.loads(json.dumps(found, allow_nan=False))


def test_keys_of_the_contract():
    found = document(golden_ten("skip"))
    assert found["schema"] == "robot-perf/1"
    verdict = found["verdict"]
    contract = (
        "status reason releases misses skipped miss_rate miss_rate_upper miss_rate_lower confidence assumed_burst"
    )
    assert set(contract.split()) | {"longest_miss_run"} <= set(verdict)
    assert (verdict["releases"], verdict["misses"], verdict["skipped"], verdict["longest_miss_run"]) == (10, 3, 2, 3)
    for metric in METRICS:
        assert list(found[metric]) == PERCENTILES
        for name, value in found[metric].items():
            assert (value is None) == (name in found[f"{metric}_reason"])
    assert found["conditions"]["loop"]["steps"] == 10


def test_microseconds_and_reasons():
    found = document(golden_ten("skip"))
    assert found["response_us"] == {"p50": 4100.0, "p90": None, "p99": None, "p99.9": None, "max": None}
    assert set(found["response_us_reason"].values()) == {"skipped"}
    assert found["response_executed_us"] == {"p50": 4100.0, "p90": None, "p99": None, "p99.9": None, "max": 25100.0}
    assert found["response_executed_us_reason"]["p99"] == "not estimable (needs n >= 368)"
    assert found["execution_us"]["max"] == 25000.0
    assert found["execution_us_reason"]["p99"] == "not estimable (needs n >= 368)"
    assert found["wakeup_us"]["p50"] == 100.0
    assert found["harness_us_reason"]["max"] == "no samples"


def test_a_clean_run_has_every_value():
    budget = Budget(deadline_ns=10 * MS, assumed_burst=2.0)
    found = document(simulated([MS] * 8985, period_ns=10 * MS, wake_delay_ns=50_000, budget=budget))
    assert found["verdict"]["status"] == "PASS"
    assert found["verdict"]["assumed_burst"] == 2.0
    assert found["verdict"]["miss_rate_upper"] == pytest.approx(0.0009997444209, rel=1e-9)
    assert found["response_us"] == {"p50": 1050.0, "p90": 1050.0, "p99": 1050.0, "p99.9": 1050.0, "max": 1050.0}
    assert found["response_us_reason"] == {}
    assert "warning" not in found


def test_overload_is_said():
    found = document(simulated([12 * MS] * 500, period_ns=10 * MS, overrun="queue"))
    assert found["warning"] == "offered load exceeds capacity"
    assert found["response_us"]["p50"] is None
    assert set(found["response_us_reason"].values()) == {"offered load exceeds capacity"}
    assert found["response_executed_us"]["p50"] is None
    assert set(found["response_executed_us_reason"].values()) == {"offered load exceeds capacity"}
    assert found["execution_us"]["p50"] == 12000.0


def test_a_run_without_steps():
    found = document(run_of([], steps=100, period_ns=MS, state="interrupted in warm-up"))
    assert found["verdict"]["status"] == "INVALID"
    assert found["verdict"]["miss_rate"] is None
    assert found["response_us_reason"]["max"] == "no samples"
