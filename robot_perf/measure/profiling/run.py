"""Runs a policy at its rate under a profiler: the same loop and step as a measurement, with marked steps and no Run.

Profiled times are not deployment times: nothing that is measured here ends up in a verdict.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from robot_perf import backends
from robot_perf.backends.protocol import Runner
from robot_perf.errors import BackendUnavailableError, PolicyError, RobotPerfError, UsageError, install_line
from robot_perf.measure.clock import MonotonicClock
from robot_perf.measure.loop import run_window
from robot_perf.measure.processes.process import raised
from robot_perf.measure.processes.worker_parts import what_was_raised
from robot_perf.measure.profiling.marks import Mark, marked, nvtx_mark, profiler_control
from robot_perf.measure.recorder import Recorder
from robot_perf.measure.step import OutputWatch, make_step
from robot_perf.policies.observations import Observations, open_observations
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.specs import LoopSpec, PolicySpec

WARMUP_STEPS = 20


@dataclass(frozen=True)
class ProfileOrder:
    """What to run: the policy as described, its backend, its loop (period and steps), and where inputs come from."""

    policy: PolicySpec
    backend: str
    loop: LoopSpec
    options: Mapping[str, Any]
    observations: str | None = None
    cast: bool = False
    seed: int = 0
    warmup_steps: int = WARMUP_STEPS


class _NoRecord:
    """The recorder of a run that measures nothing: it counts the steps that ran."""

    steps = 0

    def begin(self, step: int, release_ns: int, wake_ns: int, start_ns: int) -> None:
        """Counts."""
        self.steps += 1

    def finish(
        self, start_ns: int, enqueue_end_ns: int, end_ns: int, device_ns: int = NOT_MEASURED, stages: Any = None
    ) -> None:
        """Nothing is recorded."""

    def own(self, own_ns: int) -> None:
        """Nothing is recorded."""


def _paced(order: ProfileOrder, runner: Runner, observations: Observations, mark: Mark | None, steps: int) -> int:
    """Runs `steps` releases of the grid; returns how many of them ran: a late step covers the next ones."""
    if runner.spec.action is None:
        raise UsageError(f"{order.policy.name}: which output is the action is not known", do="Add --action POSITION.")
    stop = [False]
    clock = MonotonicClock(order.loop.wait, spin_margin_ns=order.loop.spin_margin_ns, stop=stop)
    target = runner if mark is None else marked(runner, mark)
    sink = _NoRecord()
    watch = OutputWatch(runner.spec.action, runner.spec.outputs[runner.spec.action])
    step = make_step(target, observations, cast(Recorder, sink), clock, watch)
    origin = clock.now() + max(order.loop.period_ns, 1_000_000)
    try:
        run_window(replace(order.loop, steps=steps), origin, step, sink, clock, stop)
    except RobotPerfError:
        raise
    except Exception as error:
        raise PolicyError(
            f"{order.policy.name}: the policy raised {raised(what_was_raised(error))}",
            why=f"In step {sink.steps} of {steps} {'before' if mark is None else 'under'} the profiler; there is no profile.",
            do="robot-perf deadline measures it up to there and says the same.",
        ) from error
    return sink.steps


def _queued(order: ProfileOrder) -> ProfileOrder:
    """The order with no release skipped."""
    return replace(order, loop=replace(order.loop, overrun="queue"))


def _warm_up(order: ProfileOrder, runner: Runner) -> tuple[Observations, list[str]]:
    """What the profiled steps are fed, and the notes on it: copies, as in a measurement, where the policy wrote into it here.

    Every warm-up step runs: the first one may compile for seconds, and skipping what it covers would leave one step for all.
    What follows begins where a measurement's window does: with the state as after loading.
    """
    observations = open_observations(runner.spec, seed=order.seed, path=order.observations, cast=order.cast)
    _paced(_queued(order), runner, observations, None, order.warmup_steps)
    runner.reset()
    if not observations.written_to():
        return observations, []
    observations.renew()
    return observations, [
        f"{order.policy.name} writes into its observation: each step is given a copy, made before its range"
    ]


def _facts(order: ProfileOrder, ran: int, observations: Observations, notes: list[str]) -> dict[str, Any]:
    """Of the run, for the report."""
    if observations.written_to():
        notes.append(
            f"{order.policy.name} wrote into its observation in the profiled steps and not in warm-up: what it was fed later was no observation"
        )
    return {
        "steps": ran,
        "skipped_releases": order.loop.steps - ran,
        "backend": order.backend,
        "notes": notes,
    }


def profile_with_torch(order: ProfileOrder, trace: Path) -> dict[str, Any]:
    """Warms up unprofiled, then runs the steps under torch's profiler and writes the Kineto trace. Returns facts for the report.

    Raises BackendUnavailableError without torch.
    """
    try:
        import torch
        from torch.profiler import ProfilerActivity
    except ImportError as error:
        raise BackendUnavailableError(
            "the torch profiler needs torch", do=f"Install it: {install_line('torch')}", detail=str(error)
        ) from None
    cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    # CUPTI must not be torn down between the two sessions below: with CUDA before 12.6 its second start crashes a process that
    # holds a CUDA graph (pytorch/pytorch#112507).
    os.environ["TEARDOWN_CUPTI"], os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "0", "1"
    with _prints_aside():
        return _traced(order, trace, cuda=cuda, activities=activities)


@contextmanager
def _prints_aside() -> Iterator[None]:
    """What a policy prints goes to stderr: stdout is the report's, and with --json one document. Native code's prints, too."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _traced(order: ProfileOrder, trace: Path, *, cuda: bool, activities: list[Any]) -> dict[str, Any]:
    import torch
    from torch.profiler import profile, record_function

    runner = backends.load(order.backend, order.policy, order.options)
    try:
        observations, notes = _warm_up(order, runner)
        # CUPTI's own set-up happens in the first profiled calls: they go to a session that is thrown away. No schedule:
        # one without repeat=1 starts again after its last active step and exports nothing.
        with profile(activities=activities):
            _paced(order, runner, observations, None, 3)
        runner.reset()
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events", category=UserWarning)
        with profile(activities=activities) as recorded:
            ran = _paced(
                order,
                runner,
                observations,
                lambda name: cast(AbstractContextManager[Any], record_function(name)),
                order.loop.steps,
            )
        recorded.export_chrome_trace(str(trace))
        remove_identity(trace)
    finally:
        runner.close()
    return _facts(order, ran, observations, notes) | {"cuda": cuda, "torch": str(torch.__version__)}


_IDENTITY = re.compile(rb'"(?:host_name|hostname|username|user|trace_id|job_name)"\s*:\s*"(?:[^"\\]|\\.)*"\s*,?')


_TRACE_NAME = re.compile(rb',\s*"traceName"\s*:\s*"(?:[^"\\]|\\.)*"(?=\s*\}\s*$)')


def remove_identity(trace: Path) -> None:
    """Takes host, user and path out of a Kineto trace, where torch writes them at its head and end: traces get shared."""
    opened: Any = gzip.open if trace.suffix == ".gz" else Path.open
    temporary = trace.with_name(f".{trace.name}.part")
    with opened(trace, "rb") as source, opened(temporary, "wb") as target:
        head = source.read(1 << 20)
        at = head.find(b'"traceEvents"')
        held = _IDENTITY.sub(b"", head[:at]) + head[at:] if at >= 0 else head
        while chunk := source.read(1 << 20):
            if len(chunk) < 4096:  # the last words stay together
                held += chunk
                continue
            target.write(held)
            held = chunk
        target.write(_TRACE_NAME.sub(b"", held))  # torch writes the path of the trace at its end
    temporary.replace(trace)


def run_marked(
    order: ProfileOrder, control: Callable[[str], None] = profiler_control, mark: Mark | None = None
) -> dict[str, Any]:
    """The program that nsys and ncu are given: warm-up, cuProfilerStart, the marked steps, cuProfilerStop."""
    mark = nvtx_mark() if mark is None else mark
    runner = backends.load(order.backend, order.policy, order.options)
    try:
        observations, notes = _warm_up(order, runner)
        control("cuProfilerStart")
        try:
            # a profiler makes steps late: skipping their releases would leave fewer steps than its skip and count ask for
            ran = _paced(_queued(order), runner, observations, mark, order.loop.steps)
        finally:
            control("cuProfilerStop")
    finally:
        runner.close()
    return _facts(order, ran, observations, notes)
