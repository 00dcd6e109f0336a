"""What a session does for a runner with phases: a pass of its own, once per rate, and reasons beside counted events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from loop_fakes import FakeClock

from robot_perf import policies
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.errors import BackendUnavailableError
from robot_perf.measure import session as sessions
from robot_perf.measure.clock import MonotonicClock
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.session import Session
from robot_perf.measure.step import PHASE_COLUMNS, OutputWatch
from robot_perf.measure.window import phases
from robot_perf.measure.window.phases import DROPPED, STEPS, phase_pass
from robot_perf.policies.observations import open_observations
from robot_perf.specs import LoopSpec


class Work:
    """A device step of plain memory."""

    def __init__(self) -> None:
        self.staged, self.answers = [np.zeros((1, 48), np.float32)], [np.zeros((1, 12), np.float32)]
        self.launch, self.wait, self.busy = (lambda: None), (lambda: None), (lambda: False)
        self.marked: list[bool] = []
        self.resets = 0
        self.events = {"compiles": 3}

    def mark_phases(self, on: bool) -> None:
        self.marked.append(on)

    def reset(self) -> None:
        self.resets += 1

    def counters(self) -> dict[str, int]:
        return dict(self.events)

    def reasons(self) -> dict[str, str]:
        return {"compiles": "tensor 'x' size mismatch"}

    def phases_ns(self) -> tuple[int, int, int]:
        return 100, 200, 300

    def device_ns(self) -> int:
        return -1

    def rehearse(self) -> None: ...

    def poison(self) -> None: ...

    def close(self) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    facts = examine = state


@pytest.fixture
def runner() -> QueuedRunner:
    return QueuedRunner(policies.describe("mlp"), Work())


@pytest.mark.parametrize(
    ("period", "longest", "steps"), [(0, 3e9, STEPS), (2_000_000, 3e9, STEPS), (20_000_000, 0.5e9, 25 - DROPPED)]
)
def test_the_pass_runs_at_the_rate_and_leaves_no_marks(
    runner: QueuedRunner, period: int, longest: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "LONGEST_NS", int(longest))
    loop = LoopSpec(period_ns=period, deadline_ns=period, steps=1)
    # A clock that moves by waits alone: on a real one a busy machine skips a release now and then.
    found = phase_pass(loop, runner, open_observations(runner.spec), FakeClock(), [False])
    assert found is not None and found["steps"] == steps
    assert set(found["columns"]) == set(PHASE_COLUMNS) and found["columns"]["policy_ns"] == [200] * steps
    assert runner.work.marked == [True, False] and runner.work.resets == 1  # type: ignore[attr-defined]


def test_a_runner_that_can_not_be_marked_says_why(runner: QueuedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(on: bool) -> None:
        raise BackendUnavailableError("torch 2.4 has no events inside a CUDA graph")

    monkeypatch.setattr(runner, "mark_phases", refuse)
    loop = LoopSpec(period_ns=0, deadline_ns=0, steps=1)
    found = phase_pass(loop, runner, open_observations(runner.spec), MonotonicClock(), [False])
    assert found == {"reason": "torch 2.4 has no events inside a CUDA graph"}


def test_a_host_runner_has_no_phases() -> None:
    from robot_perf import backends

    spec = policies.describe("mlp", preset="tiny")
    loop = LoopSpec(period_ns=0, deadline_ns=0, steps=1)
    host = backends.load("python", spec, {})
    assert phase_pass(loop, host, open_observations(spec), MonotonicClock(), [False]) is None


def _session(runner: QueuedRunner) -> Session:
    session = Session.__new__(Session)
    session.runner, session.report, session.stop = runner, {"invalid": [], "notes": []}, [False]
    session.loop = LoopSpec(period_ns=0, deadline_ns=0, steps=1)
    session.order = WorkOrder(map_path="", policy=runner.spec, backend="compile", loop=session.loop)
    session.observations, session.clock = open_observations(runner.spec), MonotonicClock()
    session.before = None
    session.watch = OutputWatch(0, runner.spec.outputs[0])
    return session


def test_an_event_in_the_window_is_invalid_with_its_reason(runner: QueuedRunner) -> None:
    session = _session(runner)
    before = dict(runner.counters())
    runner.work.events["compiles"] += 1  # type: ignore[attr-defined]
    session._judge_truth(before)
    assert session.report["invalid"] == ["1 compiles inside the measured window: tensor 'x' size mismatch"]


def test_what_was_counted_before_the_window_is_kept_with_its_reason(runner: QueuedRunner) -> None:
    """A graph break while compiling is no fault of the measurement, and still why compiling gained nothing."""
    session = _session(runner)
    session._judge_truth(dict(runner.counters()))
    assert session.report["invalid"] == []
    assert session.report["backend_facts"]["counted"] == {"compiles": 3}
    assert session.report["backend_facts"]["counted_because"] == {"compiles": "tensor 'x' size mismatch"}
    runner.work.events["compiles"] = 0  # type: ignore[attr-defined]
    session._judge_truth({})
    assert "counted" not in session.report["backend_facts"]


def test_what_may_have_made_compiling_useless_is_a_note(runner: QueuedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _session(runner)
    counted = {"compiles": 2, "graph breaks": 1, "skipped CUDA graphs": 0, "a.captures": 1}
    monkeypatch.setattr(runner.work, "events", counted)
    monkeypatch.setattr(runner.work, "reasons", lambda: {"graph breaks": "print"})
    session._judge_truth(counted)
    assert session.report["notes"] == ["graph breaks since it was loaded: 1 (print)"]
    assert session.report["invalid"] == []


@pytest.mark.parametrize("stages", [False, True])
def test_graphs_asked_for_and_none_captured_is_invalid(
    runner: QueuedRunner, monkeypatch: pytest.MonkeyPatch, stages: bool
) -> None:
    facts = {"not_captured": "cpu device (lookup.py:3)"}
    monkeypatch.setattr(runner, "facts", lambda: {"stages": {"a": facts, "b": {}}} if stages else facts)
    session = _session(runner)
    session._judge_truth(dict(runner.counters()))
    assert session.report["invalid"] == ["CUDA graphs were asked for and none was captured: cpu device (lookup.py:3)"]


@pytest.mark.parametrize("stages", [False, True])
def test_compiling_asked_for_and_nothing_compiled_is_invalid_once_warm(
    runner: QueuedRunner, monkeypatch: pytest.MonkeyPatch, stages: bool
) -> None:
    event = "a.nothing compiled" if stages else "nothing compiled"
    monkeypatch.setattr(runner, "reasons", lambda: {event: "its code keeps torch.compile off", "a.compiles": "a guard"})
    session = _session(runner)
    session.typical_ns = 10**9
    session._gate()
    assert session.report["invalid"] == ["torch compiled nothing: its code keeps torch.compile off"]


def test_the_gate_reads_no_facts(runner: QueuedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's and TensorRT's device memory is read with them: once loaded, and once the first window is over."""
    session = _session(runner)
    session.typical_ns = 10**9
    monkeypatch.setattr(runner, "facts", lambda: pytest.fail("the facts were read"))
    session._gate()
    assert session.report["invalid"] == []


def test_each_cure_has_a_pass_of_its_own_in_which_it_acts(
    runner: QueuedRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_phases", {})
    acted: list[int] = []
    plain, warm = _session(runner), _session(runner)
    plain.before, plain.clock = None, FakeClock()  # type: ignore[assignment]
    warm.before, warm.clock = (lambda release: bool(acted.append(release))), FakeClock()  # type: ignore[assignment]
    for session, cure in ((plain, "none"), (warm, "rehearse:300")):
        session.loop = LoopSpec(period_ns=2_000_000, deadline_ns=2_000_000, steps=1, keep_warm=cure)
        session._phases()
    assert runner.work.marked == [True, False] * 2  # type: ignore[attr-defined]
    assert len(acted) == STEPS + DROPPED


def test_steps_too_long_for_the_pass_are_a_reason(runner: QueuedRunner) -> None:
    clock = FakeClock()
    runner.work.launch = lambda: clock.wait(clock.now() + 15_000_000)  # type: ignore[assignment,func-returns-value]
    loop = LoopSpec(period_ns=1_000_000, deadline_ns=1_000_000, steps=1)
    found = phase_pass(loop, runner, open_observations(runner.spec), clock, [False])
    assert found is not None and set(found) == {"reason"} and "many periods" in found["reason"]


def test_first_calls_have_no_pass_and_leave_it_to_the_first_block(
    runner: QueuedRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other workers of a bench may make theirs at the same time, on the same device."""
    monkeypatch.setattr(sessions, "_phases", {})
    first, block = _session(runner), _session(runner)
    first.order = replace(first.order, phases=False)
    first._phases()
    assert runner.work.marked == [] and "phases" not in first.report  # type: ignore[attr-defined]
    block._phases()
    assert runner.work.marked == [True, False] and block.report["phases"]["steps"] == STEPS  # type: ignore[attr-defined]


def test_one_rate_has_one_pass(runner: QueuedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_phases", {})
    first, second = _session(runner), _session(runner)
    first._phases()
    second._phases()
    assert runner.work.marked == [True, False]  # type: ignore[attr-defined]
    assert first.report["phases"] == second.report["phases"]
