"""What every measured process does: obey signals, die with its conductor, load a runner, say what went wrong."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from robot_perf import backends
from robot_perf.backends.protocol import Runner
from robot_perf.backends.shared import progress
from robot_perf.errors import ExitCode, InvalidMeasurementError, RobotPerfError, UsageError
from robot_perf.measure.clock import MonotonicClock, timer_granularity_ns
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.window.realtime import RealTimeSettings
from robot_perf.run.stepmap import Phase, StepMap, Word
from robot_perf.specs import LoopSpec, RealTime

_PR_SET_PDEATHSIG = 1
_TELL_S = 0.25


def throttled(tell: progress.Listener) -> progress.Listener:
    """The listener, told at most four times a second; words without a fraction always get through."""
    last = [0.0]

    def heard(what: str, fraction: float | None) -> None:
        now = time.monotonic()
        if now - last[0] >= _TELL_S or fraction is None:
            last[0] = now
            tell(what, fraction)

    return heard


def told_loading(stepmap: StepMap, report: dict[str, Any]) -> AbstractContextManager[None]:
    """Inside it, what a long load is doing goes into the report."""

    def tell(what: str, fraction: float | None) -> None:
        stepmap.write_report(report | {"loading": {"what": what, "fraction": fraction}})

    return progress.heard_by(throttled(tell))


def load_runner(order: WorkOrder, report: dict[str, Any], entered_ns: int) -> Runner:
    """The runner, with the cold-start rows in the report: interpreter's modules, the runtime's import, the load, ns."""
    begin = time.monotonic_ns()
    backends.backend_module(order.backend).unavailable()  # imports the runtime: its cost is a row of its own
    imported = time.monotonic_ns()
    runner = backends.load(order.backend, order.policy, order.options)
    loaded = time.monotonic_ns()
    report["cold_start"] |= {
        "modules_ns": begin - entered_ns,
        "import_ns": imported - begin,
        "load_ns": loaded - imported,
    }
    return runner


def examined(runner: Runner, report: dict[str, Any]) -> None:
    """Adds to the backend's facts what a runner looks up only once nothing is measured any more (launches per step)."""
    examine: Any = getattr(runner, "examine", None)
    if examine is not None and "backend_facts" in report:
        report["backend_facts"] |= dict(examine())


def timer_granularity(loop: LoopSpec, stop: list[bool]) -> int | None:
    """Refuses a period that the timer can't express. A wait that spins at its end has no granularity.

    Taken under the scheduler that the loop will have: SCHED_FIFO has no timer slack.
    """
    if loop.period_ns == 0 or loop.wait != "sleep":
        return None
    scheduler = RealTimeSettings(RealTime(fifo_priority=loop.real_time.fifo_priority))
    scheduler.apply()
    try:
        granularity = timer_granularity_ns(MonotonicClock("sleep", stop=stop))
    finally:
        scheduler.restore()
    if loop.period_ns < granularity:
        raise UsageError(
            f"a period of {loop.period_ns / 1000:.1f} µs is shorter than this host's timer can express",
            why=f"A sleep of 1 µs takes {granularity / 1000:.1f} µs here (the shortest of 50).",
            do="Lower --rate, or use --wait spin, which takes a whole core.",
        )
    return granularity


def error_report(error: RobotPerfError) -> dict[str, Any]:
    """One of our errors as JSON."""
    return {k: getattr(error, k) for k in ("what", "why", "do", "detail")} | {"exit_code": int(error.exit_code)}


def failure_report(stepmap: StepMap, error: BaseException) -> dict[str, Any]:
    """What a policy raised, in which phase, and its own frames."""
    return {"phase": Phase(stepmap[Word.PHASE]).name, **what_was_raised(error)}


def what_was_raised(error: BaseException) -> dict[str, Any]:
    """`error` in one line, and the policy's own frames. `told`: it is no error of the policy, and says all itself."""
    if isinstance(error, InvalidMeasurementError):
        return {"error": error.one_line[:2000], "frames": _user_frames(error), "told": True}
    return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:2000], "frames": _user_frames(error)}


def _user_frames(error: BaseException) -> list[str]:
    """The traceback without this package's own frames: what the author of a policy needs."""
    ours = str(Path(__file__).resolve().parents[2])
    frames = traceback.extract_tb(error.__traceback__)
    return [
        f"{f.filename}:{f.lineno} in {f.name}" for f in frames if not str(Path(f.filename).resolve()).startswith(ours)
    ][-20:]


def peak_resident_bytes() -> int:
    """VmHWM. getrusage's ru_maxrss would count the parent's pages of before the exec."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def thread_count() -> int:
    """Threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def obey_signals(stop: list[bool]) -> None:
    """SIGTERM and SIGINT set `stop[0]`."""

    def ask_to_stop(_number: int, _frame: object) -> None:
        stop[0] = True

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)


def die_with(conductor_pid: int) -> None:
    """A worker whose conductor was killed stops at its next step; its map stays for `robot-perf recover`."""
    if conductor_pid:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != conductor_pid:
            sys.exit(int(ExitCode.INVALID))
