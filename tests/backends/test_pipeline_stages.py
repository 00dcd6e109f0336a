"""Pipelines whose stages queue work on a device: gated, watched and described as one policy. On works of plain memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from loop_fakes import FakeClock

from robot_perf import policies
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.backends.pipeline import PipelineRunner
from robot_perf.backends.protocol import DeviceRunner, PhasedRunner, StagedRunner
from robot_perf.backends.shared.check import check_outputs
from robot_perf.measure.step import OutputWatch, make_step
from robot_perf.measure.window.keep_warm import keep_warm_hook
from robot_perf.measure.window.phases import phase_pass
from robot_perf.policies.observations import open_observations
from robot_perf.specs import LoopSpec, StageInput, StageSpec

ON_DEVICE = {
    "backend": "cuda_graph", "device": "cuda:1", "sync": "spin", "stream_priority": -2, "launches_per_step": 1,
    "kernels_per_step": 4, "build_ns": 10, "device_memory_bytes": 100, "device_memory_is": "what torch holds",
}  # fmt: skip


class Work:
    """Doubles its input, for as many steps as it is `good` for."""

    def __init__(self, *, good: int = 1 << 30, busy: bool = False, **facts: Any) -> None:
        self.staged, self.answers = [np.zeros((1, 48), np.float32)], [np.zeros((1, 12), np.float32)]
        self.good, self.facts = good, lambda: ON_DEVICE | facts
        self.launch, self.wait, self.busy = self._launch, (lambda: None), (lambda: busy)

    def _launch(self) -> None:
        self.good -= 1
        if self.good >= 0:
            self.answers[0][...] = 2 * self.staged[0][:, :12]

    def device_ns(self) -> int:
        return -1

    def phases_ns(self) -> tuple[int, int, int]:
        return 1, 2, 3

    def mark_phases(self, on: bool) -> None: ...
    def poison(self) -> None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def counters(self) -> dict[str, int]:
        return {"compiles": 1}

    def reasons(self) -> dict[str, str]:
        return {"compiles": "a guard"}

    def examine(self) -> dict[str, Any]:
        return {"launches_per_step": 7}


class Host:
    """A stage on the CPU: none of the optional attributes."""

    def __init__(self) -> None:
        self.spec = policies.describe("mlp")

    def step(self, observation: Any) -> Any:
        return [np.ones((1, 12), np.float32)]

    def reset(self) -> None: ...
    def close(self) -> None: ...

    def counters(self) -> dict[str, int]:
        return {}

    def facts(self) -> dict[str, Any]:
        return {"backend": "python", "threads": 1}


def _pipeline(*stages: Any) -> PipelineRunner:
    mlp = policies.describe("mlp")
    feed = StageInput(pieces=(("", 0, None, None),))
    named = tuple(StageSpec(f"s{i}", mlp, (feed,)) for i in range(len(stages)))
    spec = dataclasses.replace(mlp, kind="pipeline", stages=named, outputs=mlp.outputs * len(stages))
    return PipelineRunner(spec, [s if isinstance(s, Host) else QueuedRunner(mlp, s) for s in stages])


def test_a_stage_that_writes_nothing_is_seen_by_the_gate() -> None:
    good = _pipeline(Work(), Host(), Work())
    assert check_outputs(good, open_observations(good.spec)) is None
    for stages in ((Work(good=1),), (Work(good=1), Host()), (Host(), Work(good=1))):
        runner = _pipeline(*stages)
        reason = check_outputs(runner, open_observations(runner.spec))
        assert reason is not None and "not finite" in reason and "step 1" in reason


@pytest.mark.parametrize(("stages", "pending"), [((Work(), Work(busy=True)), 1), ((Work(), Host()), 0), ((Host(),), 0)])
def test_work_that_is_pending_at_the_end_of_the_step_is_counted(stages: Any, pending: int) -> None:
    class Rows:
        def begin(self, *_: Any) -> None: ...
        def finish(self, *_: Any) -> None: ...

    runner = _pipeline(*stages)
    watch = OutputWatch(0, runner.spec.outputs[0])
    make_step(runner, open_observations(runner.spec), Rows(), FakeClock(), watch)(0, 0, 0)  # type: ignore[arg-type]
    assert watch.pending_steps == pending


def test_it_is_no_device_runner_and_says_why_it_has_no_phases() -> None:
    runner = _pipeline(Work(), Work())
    assert isinstance(runner, StagedRunner) and not isinstance(runner, DeviceRunner | PhasedRunner)
    loop, seen = LoopSpec(period_ns=0, deadline_ns=0, steps=1), open_observations(runner.spec)
    found = phase_pass(loop, runner, seen, FakeClock(), [False])
    assert found is not None and "a pipeline has no marks" in found["reason"]
    assert phase_pass(loop, _pipeline(Host()), seen, FakeClock(), [False]) is None


def test_facts_are_of_the_whole_and_of_its_stages() -> None:
    runner = _pipeline(Work(), Host(), Work(sync="block", build_ns=5, device_memory_bytes=80))
    facts = runner.facts()
    assert list(facts["stages"]) == ["s0", "s1", "s2"] and facts["stages"]["s2"]["build_ns"] == 5
    assert facts["device"] == "cuda:1" and facts["stream_priority"] == -2
    assert "sync" not in facts and "backend" not in facts, "the stages differ"
    assert (facts["launches_per_step"], facts["kernels_per_step"], facts["build_ns"]) == (2, 8, 15)
    assert facts["device_memory_bytes"] == 100, "each reads the whole process"
    assert runner.examine()["launches_per_step"] == 14 and "stages" in runner.examine()
    assert runner.reasons() == {"s0.compiles": "a guard", "s2.compiles": "a guard"}
    host = _pipeline(Host(), Host()).facts()
    assert host["backend"] == "python" and "device" not in host and "launches_per_step" not in host


def test_what_is_not_known_of_a_stage_is_not_known_of_the_whole() -> None:
    lacking = Work(launches_per_step=None, launches_per_step_reason="no profiler", device_memory_is="free memory")
    facts = _pipeline(Work(), lacking).facts()
    assert facts["launches_per_step"] is None and facts["launches_per_step_reason"] == "stage s1: no profiler"
    assert facts["device_memory_bytes"] is None and "different ways" in facts["device_memory_is"]


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The devices on which an empty kernel is made."""
    from robot_perf.backends.gpu import nudge

    made: list[int] = []

    class Nudge:
        def __init__(self, device: int) -> None:
            made.append(device)

        def tiny_kernel(self) -> None: ...

    monkeypatch.setattr(nudge, "Nudge", Nudge)
    monkeypatch.setattr(nudge, "_made", {})
    return made


def test_keep_warm_finds_the_pipelines_device(nudged: list[int]) -> None:
    runner = _pipeline(Host(), Work())
    loop = LoopSpec(period_ns=2_000_000, deadline_ns=2_000_000, steps=1, keep_warm="tiny-kernel:300")
    assert keep_warm_hook(loop, runner, open_observations(runner.spec), FakeClock(), [False]) is not None
    assert nudged == [1]
