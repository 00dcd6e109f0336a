"""What a long load says reaches whoever waits for it: through the step map, and through a bench worker's replies."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from robot_perf import policies
from robot_perf.backends.shared import progress
from robot_perf.measure.conductor import Plan, measure
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.processes.block_worker import BlockWorker
from robot_perf.measure.processes.worker_parts import throttled
from robot_perf.specs import Budget, LoopSpec, to_json

LOOP = LoopSpec(period_ns=2_000_000, deadline_ns=2_000_000, steps=5, warmup_max=12)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> WorkOrder:
    monkeypatch.chdir(Path(__file__).resolve().parents[1] / "helpers")
    return WorkOrder(map_path="", policy=policies.describe("slow_load:Slow"), backend="python", loop=LOOP)


def test_words_pass_at_once_and_fractions_four_times_a_second() -> None:
    told: list[tuple[str, float | None]] = []
    listener = throttled(lambda what, fraction: told.append((what, fraction)))
    listener("building", None)
    for i in range(1000):
        listener("building", i / 1000)
    listener("done", None)
    assert told == [("building", None), ("done", None)]


def test_the_map_tells_while_the_policy_loads(order: WorkOrder) -> None:
    seen: list[dict[str, Any]] = []
    conditions = {"backend": {"name": "python"}, "budget": to_json(Budget(deadline_ns=LOOP.deadline_ns))}
    run = measure(Plan(order=order, conditions=conditions), lambda m: seen.append(m.report.get("loading") or {}))
    Path(run.conditions["step_map"]).unlink()  # who measures without saving removes the map
    assert {"what": "unpacking", "fraction": None} in seen
    assert any((s.get("fraction") or 0) > 0.2 for s in seen)
    assert run.conditions["state"] == "complete" and "phases" not in run.conditions  # a host runner has none


def test_a_bench_worker_tells_before_it_has_loaded(order: WorkOrder) -> None:
    heard: list[tuple[str, float | None]] = []
    worker = BlockWorker(order, sys.executable)
    worker.start()
    try:
        assert worker.wait_loaded(20.0, lambda what, fraction: heard.append((what, fraction))) is None
    finally:
        worker.close()
    assert heard[0] == ("unpacking", None) and heard[-1][0] == "unpacking" and len(heard) >= 3
    assert worker.report["examined"] == worker.report["backend_facts"]


def test_nobody_hears_what_is_said_after_the_load(order: WorkOrder) -> None:
    """A bench worker's channel carries answers then: words about a load would be taken for the end of a block."""
    worker = BlockWorker(replace(order, policy=policies.describe("slow_load:Talking")), sys.executable)
    worker.start()
    try:
        assert worker.wait_loaded(20.0) is None
        for steps in (20, 30):
            loop = replace(LOOP, steps=steps)
            run = worker.run(
                loop, {"budget": to_json(Budget(deadline_ns=LOOP.deadline_ns)), "backend": {"name": "python"}}
            )
            assert run.conditions["state"] == "complete" and len(run.measured["step"])
    finally:
        worker.close()
    assert worker.report["examined"] == worker.report["backend_facts"]


def test_a_listener_hears_nothing_once_its_block_has_ended() -> None:
    told: list[str] = []
    with pytest.raises(ValueError), progress.heard_by(lambda what, _: told.append(what)):
        progress.say("inside")
        raise ValueError("the load failed")
    progress.say("outside")
    assert told == ["inside"]
