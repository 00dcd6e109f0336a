"""One control step: the only place that reads a clock around a policy. Command line and ROS node share it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from robot_perf.backends.gpu import nvtx
from robot_perf.backends.protocol import Arrays, DeviceRunner, PhasedRunner, Runner, StagedRunner
from robot_perf.measure.clock import Clock
from robot_perf.measure.recorder import Recorder
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.specs import TensorSpec

Step = Callable[[int, int, int], tuple[int, int]]

# A row of `phase_step`: the first four by the host's clock, the others by adjacent event pairs on the device.
PHASE_COLUMNS = ("host_prepare_ns", "launch_ns", "wait_ns", "host_finish_ns", "h2d_ns", "policy_ns", "d2h_ns")


class Observations(Protocol):
    """Where a step's inputs come from; reading allocates nothing that grows."""

    def reader(self) -> Callable[[int], Arrays]:
        """A function from step k to the arrays of `spec.fed`."""
        ...


class OutputWatch:
    """Counts steps whose action is not finite, and steps whose device work was still pending when the action was used."""

    def __init__(self, action: int, tensor: TensorSpec | None = None) -> None:
        self.action = action
        self.nonfinite_steps = 0
        self.first_nonfinite = -1
        self.pending_steps = 0
        unpack, add = _unpacker(tensor), sum

        def check_small(k: int, outputs: Arrays) -> None:
            try:
                total = add(unpack(outputs[action]))  # type: ignore[misc]
            except (ValueError, BufferError, struct.error):  # a strided view, or another size than declared
                check_any(k, outputs)
                return
            if total - total != 0.0:
                self._look(k, outputs[action])

        def check_any(k: int, outputs: Arrays) -> None:
            if not math.isfinite(_self_product(outputs[action])):
                self._look(k, outputs[action])

        # Adds the action up: the sum is finite unless the action is not (or overflows: then each value is looked at).
        self.check: Callable[[int, Arrays], None] = check_any if unpack is None else check_small

    def _look(self, k: int, action: Any) -> None:
        if not np.isfinite(action).all():
            self.nonfinite_steps += 1
            if self.first_nonfinite < 0:
                self.first_nonfinite = k


_SMALL = 256
_FORMATS = {"float16": "e", "float32": "f", "float64": "d"}


def _unpacker(tensor: TensorSpec | None) -> Callable[[Any], tuple[float, ...]] | None:
    """Reads a small floating-point action without numpy.

    Woken after an idle millisecond with cold caches, one numpy call took 1.4 to 7 µs here (np.vdot, n 1,500); this 0.5 µs.
    """
    if tensor is None or tensor.dtype not in _FORMATS or not 0 < math.prod(tensor.shape) <= _SMALL:
        return None
    return struct.Struct(f"={math.prod(tensor.shape)}{_FORMATS[tensor.dtype]}").unpack_from


def _self_product(action: Any) -> float:
    """Integers and booleans are always finite."""
    return float(np.vdot(action, action)) if action.dtype.kind == "f" else 0.0


def make_step(runner: Runner, observations: Observations, recorder: Recorder, clock: Clock, watch: OutputWatch) -> Step:
    """`step(k, release_ns, wake_ns) -> (start_ns, end_ns)` for this kind of runner.

    start is read right before the policy call with the observation in hand; end when the action is usable on the host. Steps
    carry NVTX ranges only where a profiler listens.
    """
    if isinstance(runner, StagedRunner):
        return _staged_step(runner, observations, recorder, clock, watch)
    ranges = nvtx.ranges()
    if isinstance(runner, DeviceRunner):
        if ranges is not None and isinstance(runner, PhasedRunner):
            _ranged_phases(runner, ranges)
        step = _device_step(runner, observations, recorder, clock, watch)
    else:
        step = _host_step(runner, observations, recorder, clock, watch)
    return step if ranges is None else _ranged(step, ranges)


def _ranged(step: Step, ranges: nvtx.Ranges) -> Step:
    def within(k: int, release_ns: int, wake_ns: int) -> tuple[int, int]:
        ranges.push(nvtx.STEP)
        stamps = step(k, release_ns, wake_ns)
        ranges.pop()
        return stamps

    return within


def _ranged_phases(runner: Any, ranges: nvtx.Ranges) -> None:
    """`enqueue` and `finish` of a phased runner, each host phase in its range; the runner itself marks H2D, policy and D2H."""

    def enqueue(observation: Arrays) -> None:
        ranges.push(nvtx.PREPARE)
        runner.prepare(observation)
        ranges.pop()
        runner.launch()

    def finish() -> Arrays:
        runner.wait()
        ranges.push(nvtx.FINISH)
        outputs: Arrays = runner.collect()
        ranges.pop()
        return outputs

    runner.enqueue, runner.finish = enqueue, finish


def _host_step(
    runner: Runner, observations: Observations, recorder: Recorder, clock: Clock, watch: OutputWatch
) -> Step:
    now, at, run = clock.now, observations.reader(), runner.step
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
    now, at = clock.now, observations.reader()
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
    now, at = clock.now, observations.reader()
    run_stage, outputs, indexes = runner.run_stage, runner.outputs, range(len(runner.stage_names))
    begin, finish, check = recorder.begin, recorder.finish, watch.check
    pending: Callable[[], bool] | None = getattr(runner, "pending", None)
    marks = [0] * len(runner.stage_names)

    def step(k: int, release_ns: int, wake_ns: int) -> tuple[int, int]:
        observation = at(k)
        begin(k, release_ns, wake_ns, now())
        start = now()
        for i in indexes:
            run_stage(i, observation)
            marks[i] = now()
        end = marks[-1]
        if pending is not None and pending():
            watch.pending_steps += 1
        finish(start, NOT_MEASURED, end, NOT_MEASURED, marks)
        check(k, outputs())
        return start, end

    return step


def phase_step(runner: PhasedRunner, observations: Observations, clock: Clock, rows: list[tuple[int, ...]]) -> Step:
    """A step that stamps between the phases of a marked runner and appends them to `rows`, by `PHASE_COLUMNS`."""
    now, at = clock.now, observations.reader()
    prepare, wait, collect, phases = runner.prepare, runner.wait, runner.collect, runner.phases_ns

    def step(k: int, _release_ns: int, _wake_ns: int) -> tuple[int, int]:
        observation = at(k)
        start = now()
        prepare(observation)
        prepared = now()
        runner.launch()
        launched = now()
        wait()
        waited = now()
        collect()
        end = now()
        rows.append((prepared - start, launched - prepared, waited - launched, end - waited, *phases()))
        return start, end

    return step
