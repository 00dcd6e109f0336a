"""One control step: the only place that reads a clock around a policy. Command line and ROS node share it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from robot_perf.backends.protocol import Arrays, DeviceRunner, Runner, StagedRunner
from robot_perf.measure.clock import Clock
from robot_perf.measure.recorder import Recorder
from robot_perf.run.columns import NOT_MEASURED

Step = Callable[[int, int, int], tuple[int, int]]


class Observations(Protocol):
    """Where a step's inputs come from; `at` allocates nothing."""

    def at(self, k: int) -> Arrays:
        """The arrays of `spec.fed` for step k."""
        ...


class OutputWatch:
    """Counts steps whose action is not finite, and steps whose device work was still pending when the action was used."""

    def __init__(self, action: int) -> None:
        self.action = action
        self.nonfinite_steps = 0
        self.first_nonfinite = -1
        self.pending_steps = 0
        self.last: list[Any] = []

    def check(self, k: int, outputs: Arrays) -> None:
        """One dot product of the action with itself: it is finite unless the action is not (or overflows, checked then)."""
        action = outputs[self.action]
        if action.dtype.kind == "f" and not math.isfinite(np.vdot(action, action)) and not np.isfinite(action).all():
            self.nonfinite_steps += 1
            if self.first_nonfinite < 0:
                self.first_nonfinite = k


def make_step(runner: Runner, observations: Observations, recorder: Recorder, clock: Clock, watch: OutputWatch) -> Step:
    """`step(k, release_ns, wake_ns) -> (start_ns, end_ns)` for this kind of runner.

    start is read right before the policy call with the observation in hand; end when the action is usable on the host.
    """
    if isinstance(runner, StagedRunner):
        return _staged_step(runner, observations, recorder, clock, watch)
    if isinstance(runner, DeviceRunner):
        return _device_step(runner, observations, recorder, clock, watch)
    now, at, run = clock.now, observations.at, runner.step
    begin, finish, check = recorder.begin, recorder.finish, watch.check

    def step(k: int, release_ns: int, wake_ns: int) -> tuple[int, int]:
        observation = at(k)
        begin(k, release_ns, wake_ns, now())
        start = now()
        outputs = run(observation)
        end = now()
        finish(start, NOT_MEASURED, end)
        check(k, outputs)
        return start, end

    return step


def _device_step(
    runner: DeviceRunner, observations: Observations, recorder: Recorder, clock: Clock, watch: OutputWatch
) -> Step:
    now, at = clock.now, observations.at
    enqueue, wait, device_ns, pending = runner.enqueue, runner.finish, runner.device_ns, runner.pending
    begin, finish, check = recorder.begin, recorder.finish, watch.check

    def step(k: int, release_ns: int, wake_ns: int) -> tuple[int, int]:
        observation = at(k)
        begin(k, release_ns, wake_ns, now())
        start = now()
        enqueue(observation)
        enqueued = now()
        outputs = wait()
        end = now()
        if pending():
            watch.pending_steps += 1
        finish(start, enqueued, end, device_ns())
        check(k, outputs)
        return start, end

    return step


def _staged_step(
    runner: StagedRunner, observations: Observations, recorder: Recorder, clock: Clock, watch: OutputWatch
) -> Step:
    now, at = clock.now, observations.at
    run_stage, outputs, indexes = runner.run_stage, runner.outputs, range(len(runner.stage_names))
    begin, finish, check = recorder.begin, recorder.finish, watch.check
    marks = [0] * len(runner.stage_names)

    def step(k: int, release_ns: int, wake_ns: int) -> tuple[int, int]:
        observation = at(k)
        begin(k, release_ns, wake_ns, now())
        start = now()
        for i in indexes:
            run_stage(i, observation)
            marks[i] = now()
        end = marks[-1]
        finish(start, NOT_MEASURED, end, NOT_MEASURED, marks)
        check(k, outputs())
        return start, end

    return step
