"""The measured process of `bench`: loads one policy on one backend and then runs blocks on command.

`python -m robot_perf.measure.processes.blocks ORDER.json REPLY_FD`. Between two blocks it sleeps in a read on its standard input: it takes no
processor time while another backend's block runs. Commands come in and replies go out as one JSON object a line; the steps of
each block go to a step map of its own, as in `robot_perf.measure.worker`.
"""

from __future__ import annotations

import time

_ENTERED_NS = time.monotonic_ns()  # before any import of weight: the end of the interpreter's own start

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from robot_perf.backends.protocol import Runner  # noqa: E402
from robot_perf.backends.shared import progress  # noqa: E402
from robot_perf.errors import ExitCode, InvalidMeasurementError, RobotPerfError  # noqa: E402
from robot_perf.measure.clock import MonotonicClock  # noqa: E402
from robot_perf.measure.order import WorkOrder, take_order  # noqa: E402
from robot_perf.measure.processes import worker_parts as parts  # noqa: E402
from robot_perf.measure.session import Session  # noqa: E402
from robot_perf.policies.observations import Observations, open_observations  # noqa: E402
from robot_perf.run.stepmap import Phase, StepMap, Word, process_born  # noqa: E402
from robot_perf.specs import LoopSpec, from_json, to_json  # noqa: E402


def main(order_path: str, reply_fd: int) -> int:
    """Loads, says so, and runs blocks until its standard input ends."""
    # The policy may print and read: its standard streams are not the ones that the conductor talks through.
    commands = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(reply_fd, "w", encoding="utf-8", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    order = from_json(WorkOrder, take_order(order_path))
    stop = [False]
    parts.obey_signals(stop)
    parts.die_with(order.conductor_pid)

    def reply(**what: Any) -> None:
        replies.write(json.dumps(what) + "\n")

    report: dict[str, Any] = {"notes": [], "cold_start": {"process_ns": _ENTERED_NS - order.spawned_ns}}
    loading = parts.throttled(lambda what, fraction: reply(event="loading", what=what, fraction=fraction))
    try:
        with progress.heard_by(loading):  # what is said later would be taken for the answer to a command
            runner, observations = _load(order, report)
    except RobotPerfError as error:
        reply(event="failed", error=parts.error_report(error))
        return int(error.exit_code)
    except Exception as error:  # noqa: BLE001 - whatever a policy's loading raises becomes its row's reason
        what = f"loading raised {type(error).__name__}"
        reply(event="failed", error={"what": what, "why": str(error)[:1000], "do": "", "detail": "", "exit_code": 4})
        return int(ExitCode.INVALID)
    try:
        reply(event="loaded", report=report)
        for line in commands:
            command = json.loads(line)
            loop = from_json(LoopSpec, command["loop"])
            block = replace(order, map_path=command["map"], loop=loop, phases=command["phases"])
            if not _block(block, report, runner, observations, stop):
                return int(ExitCode.INVALID)
            reply(event="done", max_rss_bytes=parts.peak_resident_bytes())
            if stop[0]:
                break
        parts.examined(runner, report)
        reply(event="examined", facts=report["backend_facts"])
    finally:
        runner.close()
    return 0


def _load(order: WorkOrder, report: dict[str, Any]) -> tuple[Runner, Observations]:
    threads_before = parts.thread_count()
    runner = parts.load_runner(order, report, _ENTERED_NS)
    report["threads"] = {"before": threads_before, "after": parts.thread_count()}
    observations = open_observations(runner.spec, seed=order.seed, path=order.observations, cast=order.cast)
    report["observations"] = {"source": observations.source, "steps": observations.steps}
    report["notes"] += [*runner.spec.notes, *observations.notes]
    report["policy"] = to_json(runner.spec)
    report["backend_facts"] = dict(runner.facts())
    return runner, observations


def _block(
    order: WorkOrder, loaded: dict[str, Any], runner: Runner, observations: Observations, stop: list[bool]
) -> bool:
    """One block into its own map. False when the policy raised: nobody knows what it would answer after that."""
    stepmap = StepMap.open(Path(order.map_path), writable=True)
    stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN] = os.getpid(), process_born(os.getpid())
    report = {**loaded, "invalid": [], "notes": list(loaded["notes"])}
    try:
        stepmap[Word.PHASE] = Phase.LOADED
        clock = MonotonicClock(order.loop.wait, spin_margin_ns=order.loop.spin_margin_ns, stop=stop)
        report["timer_granularity_ns"] = parts.timer_granularity(order.loop, stop)
        Session(order, stepmap, report, runner, observations, clock, stop).run()
    except InvalidMeasurementError as error:
        # Nor would the next block be what was asked for.
        report["failure"] = parts.failure_report(stepmap, error)
        _end(stepmap, report, Phase.FAILED)
        return False
    except RobotPerfError as error:
        # This block can't be run as asked (a keep-warm that the policy doesn't bear); the next one may.
        report["error"] = parts.error_report(error)
        _end(stepmap, report, Phase.FAILED)
        return True
    except Exception as error:  # noqa: BLE001 - whatever a policy raises is reported as the policy's, with its frames
        report["failure"] = parts.failure_report(stepmap, error)
        _end(stepmap, report, Phase.FAILED)
        return False
    _end(stepmap, report, Phase.DONE)
    return True


def _end(stepmap: StepMap, report: dict[str, Any], phase: Phase) -> None:
    stepmap.write_report(report)
    stepmap[Word.PHASE] = phase
    stepmap.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
