"""The measured process: `python -m robot_perf.measure.worker ORDER.json`.

It imports numpy and the backend, nothing else of weight. It fills the step map; whoever started it reads.
"""

from __future__ import annotations

import time

_ENTERED_NS = time.monotonic_ns()  # before any import of weight: the end of the interpreter's own start

import ctypes  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from robot_perf import backends  # noqa: E402
from robot_perf.backends.protocol import Runner  # noqa: E402
from robot_perf.errors import ExitCode, RobotPerfError, UsageError  # noqa: E402
from robot_perf.measure.clock import MonotonicClock, timer_granularity_ns  # noqa: E402
from robot_perf.measure.order import WorkOrder  # noqa: E402
from robot_perf.measure.session import Session  # noqa: E402
from robot_perf.policies.observations import open_observations  # noqa: E402
from robot_perf.run.stepmap import Phase, StepMap, Word, process_born  # noqa: E402
from robot_perf.specs import LoopSpec, from_json, to_json  # noqa: E402

_PR_SET_PDEATHSIG = 1


def main(order_path: str) -> int:
    """Runs one work order. The exit code says how it ended; the map's report says why."""
    order = from_json(WorkOrder, json.loads(Path(order_path).read_text(encoding="utf-8")))
    stop = [False]
    _obey_signals(stop)
    _die_with(order.conductor_pid)
    stepmap = StepMap.open(Path(order.map_path), writable=True)
    stepmap[Word.WORKER_PID] = os.getpid()
    stepmap[Word.WORKER_BORN] = process_born(os.getpid())
    report: dict[str, Any] = {"invalid": [], "notes": [], "cold_start": {"process_ns": _ENTERED_NS - order.spawned_ns}}
    try:
        return _measure(order, stepmap, report, stop)
    except RobotPerfError as error:
        report["error"] = {k: getattr(error, k) for k in ("what", "why", "do", "detail")} | {
            "exit_code": int(error.exit_code)
        }
        return _failed(stepmap, report, int(error.exit_code))
    except Exception as error:  # noqa: BLE001 - whatever a policy raises is reported as the policy's, with its frames
        report["failure"] = {
            "phase": Phase(stepmap[Word.PHASE]).name,
            "error": f"{type(error).__name__}: {error}"[:2000],
        }
        report["failure"]["frames"] = _user_frames(error)
        return _failed(stepmap, report, int(ExitCode.INVALID))
    finally:
        sys.stdout.flush()


def _measure(order: WorkOrder, stepmap: StepMap, report: dict[str, Any], stop: list[bool]) -> int:
    stepmap[Word.PHASE] = Phase.LOADING
    threads_before = _threads()
    runner = _load(order, report)
    report["threads"] = {"before": threads_before, "after": _threads()}
    try:
        observations = open_observations(runner.spec, seed=order.seed, path=order.observations, cast=order.cast)
        report["observations"] = {"source": observations.source, "steps": observations.steps}
        report["notes"] += [*runner.spec.notes, *observations.notes]
        report["policy"] = to_json(runner.spec)
        report["backend_facts"] = dict(runner.facts())
        clock = MonotonicClock(order.loop.wait, spin_margin_ns=order.loop.spin_margin_ns, stop=stop)
        report["timer_granularity_ns"] = _granularity(order.loop, stop)
        stepmap.write_report(report)
        stepmap[Word.PHASE] = Phase.LOADED
        Session(order, stepmap, report, runner, observations, clock, stop).run()
    finally:
        runner.close()
    report["max_rss_bytes"] = _peak_resident_bytes()
    stepmap.write_report(report)
    stepmap[Word.PHASE] = Phase.DONE
    return 0


def _load(order: WorkOrder, report: dict[str, Any]) -> Runner:
    begin = time.monotonic_ns()
    backends.backend_module(order.backend).unavailable()  # imports the runtime: its cost is a row of its own
    imported = time.monotonic_ns()
    runner = backends.load(order.backend, order.policy, order.options)
    loaded = time.monotonic_ns()
    report["cold_start"] |= {
        "modules_ns": begin - _ENTERED_NS,
        "import_ns": imported - begin,
        "load_ns": loaded - imported,
    }
    return runner


def _granularity(loop: LoopSpec, stop: list[bool]) -> int | None:
    """Refuses a period that the timer can't express. A spinning wait has no granularity."""
    if loop.period_ns == 0 or loop.wait == "spin":
        return None
    granularity = timer_granularity_ns(MonotonicClock("sleep", stop=stop))
    if loop.period_ns < granularity:
        raise UsageError(
            f"a period of {loop.period_ns / 1000:.1f} µs is shorter than this host's timer can express",
            why=f"A sleep of 1 µs takes {granularity / 1000:.1f} µs here (median of 50).",
            do="Lower --rate, or use --wait spin, which takes a whole core.",
        )
    return granularity


def _failed(stepmap: StepMap, report: dict[str, Any], code: int) -> int:
    stepmap.write_report(report)
    stepmap[Word.PHASE] = Phase.FAILED
    return code


def _user_frames(error: BaseException) -> list[str]:
    """The traceback without this package's own frames: what the author of a policy needs."""
    ours = str(Path(__file__).resolve().parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    return [
        f"{f.filename}:{f.lineno} in {f.name}" for f in frames if not str(Path(f.filename).resolve()).startswith(ours)
    ][-20:]


def _peak_resident_bytes() -> int:
    """VmHWM. getrusage's ru_maxrss would count the parent's pages of before the exec."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _obey_signals(stop: list[bool]) -> None:
    def ask_to_stop(_number: int, _frame: object) -> None:
        stop[0] = True

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)


def _die_with(conductor_pid: int) -> None:
    """A worker whose conductor was killed stops at its next step; its map stays for `robot-perf recover`."""
    if conductor_pid:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != conductor_pid:
            sys.exit(int(ExitCode.INVALID))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
