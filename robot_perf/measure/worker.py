"""The measured process: `python -m robot_perf.measure.worker ORDER.json`.

It imports numpy and the backend, nothing else of weight. It fills the step map; whoever started it reads.
"""

from __future__ import annotations

import time

_ENTERED_NS = time.monotonic_ns()  # before any import of weight: the end of the interpreter's own start

import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from robot_perf.errors import ExitCode, PolicyError, RobotPerfError  # noqa: E402
from robot_perf.measure.clock import MonotonicClock  # noqa: E402
from robot_perf.measure.order import WorkOrder, take_order  # noqa: E402
from robot_perf.measure.processes import worker_parts as parts  # noqa: E402
from robot_perf.measure.session import Session  # noqa: E402
from robot_perf.policies.observations import open_observations  # noqa: E402
from robot_perf.run.stepmap import Phase, StepMap, Word, process_born  # noqa: E402
from robot_perf.specs import from_json, to_json  # noqa: E402


def main(order_path: str) -> int:
    """Runs one work order. The exit code says how it ended; the map's report says why."""
    order = from_json(WorkOrder, take_order(order_path))
    stop = [False]
    parts.obey_signals(stop)
    parts.die_with(order.conductor_pid)
    stepmap = StepMap.open(Path(order.map_path), writable=True)
    stepmap[Word.WORKER_PID] = os.getpid()
    stepmap[Word.WORKER_BORN] = process_born(os.getpid())
    report: dict[str, Any] = {"invalid": [], "notes": [], "cold_start": {"process_ns": _ENTERED_NS - order.spawned_ns}}
    try:
        return _measure(order, stepmap, report, stop)
    except RobotPerfError as error:
        broken = stepmap[Word.PHASE] == Phase.WARMUP and isinstance(error, PolicyError)
        if stepmap[Word.PHASE] >= Phase.WARMUP and not broken:
            # Steps exist by now: what stops the loop ends in a saved, INVALID Run. A policy whose first answers contradict what it
            # said of itself is one that can't be loaded; it is only found out here because an earlier call would hide the cold start.
            report["failure"] = parts.failure_report(stepmap, error)
            return _failed(stepmap, report, int(ExitCode.INVALID))
        report["error"] = parts.error_report(error)
        return _failed(stepmap, report, int(error.exit_code))
    except Exception as error:  # noqa: BLE001 - whatever a policy raises is reported as the policy's, with its frames
        report["failure"] = parts.failure_report(stepmap, error)
        return _failed(stepmap, report, int(ExitCode.INVALID))
    finally:
        sys.stdout.flush()


def _measure(order: WorkOrder, stepmap: StepMap, report: dict[str, Any], stop: list[bool]) -> int:
    stepmap[Word.PHASE] = Phase.LOADING
    threads_before = parts.thread_count()
    with parts.told_loading(stepmap, report):
        runner = parts.load_runner(order, report, _ENTERED_NS)
    report["threads"] = {"before": threads_before, "after": parts.thread_count()}
    try:
        observations = open_observations(runner.spec, seed=order.seed, path=order.observations, cast=order.cast)
        report["observations"] = {"source": observations.source, "steps": observations.steps}
        report["notes"] += [*runner.spec.notes, *observations.notes]
        report["policy"] = to_json(runner.spec)
        report["backend_facts"] = dict(runner.facts())
        clock = MonotonicClock(order.loop.wait, spin_margin_ns=order.loop.spin_margin_ns, stop=stop)
        report["timer_granularity_ns"] = parts.timer_granularity(order.loop, stop)
        stepmap.write_report(report)
        stepmap[Word.PHASE] = Phase.LOADED
        if order.hold:
            _wait_for_the_others(stepmap, stop)
        Session(order, stepmap, report, runner, observations, clock, stop).run()
        parts.examined(runner, report)
    finally:
        runner.close()
    report["max_rss_bytes"] = parts.peak_resident_bytes()
    stepmap.write_report(report)
    stepmap[Word.PHASE] = Phase.DONE
    return 0


def _wait_for_the_others(stepmap: StepMap, stop: list[bool]) -> None:
    """Sleeps until the conductor says that every policy of the machine is loaded."""
    while not stepmap[Word.GO] and not stop[0]:
        time.sleep(0.005)


def _failed(stepmap: StepMap, report: dict[str, Any], code: int) -> int:
    stepmap.write_report(report)
    stepmap[Word.PHASE] = Phase.FAILED
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
