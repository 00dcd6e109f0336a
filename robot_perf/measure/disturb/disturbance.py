"""Starts the processes of stated disturbances, waits until all of them load the machine, and says at the end what they did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from robot_perf.errors import RobotPerfError
from robot_perf.measure.disturb.load import LoadSpec
from robot_perf.measure.order import write_order
from robot_perf.specs import to_json

_READY_S = 60.0
_GRACE_S = 5.0


@dataclass
class _Process:
    spec: LoadSpec
    popen: subprocess.Popen[str]
    order: Path
    facts: dict[str, Any] = field(default_factory=dict)


class Disturbance:
    """A context: inside it the loads run. `ended_early` and `achieved` are known after it."""

    def __init__(self, specs: Sequence[LoadSpec]) -> None:
        self.specs = tuple(specs)
        self.achieved: list[dict[str, Any]] = []
        self.ended_early: list[str] = []
        self._processes: list[_Process] = []

    def __enter__(self) -> Disturbance:
        try:
            for spec in self.specs:
                for _ in range(spec.processes):
                    self._processes.append(self._start(spec))
            for process in self._processes:
                self._wait_ready(process)
        except BaseException:
            self._stop()
            raise
        return self

    def _start(self, spec: LoadSpec) -> _Process:
        order = write_order({"load": to_json(spec), "conductor_pid": os.getpid()}, "robot-perf-load-")
        parent = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(p for p in (parent, os.environ.get("PYTHONPATH", "")) if p)
        # one thread each: a disturbance is what was stated, not what a library makes of it
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        popen = subprocess.Popen(
            [sys.executable, "-m", "robot_perf.measure.disturb.load", str(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **threads, "PYTHONPATH": path},
            start_new_session=True,
        )
        return _Process(spec, popen, order)

    def _wait_ready(self, process: _Process) -> None:
        message = _message(process.popen)
        if message.get("event") != "ready":
            reason = message.get("reason", "its process ended")
            raise RobotPerfError(
                f"--load {process.spec.text} can't be run here", why=str(reason), do="Leave it out, or choose another."
            )
        process.facts = {k: v for k, v in message.items() if k != "event"}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for process in self._processes:
            if process.popen.poll() is not None:
                self.ended_early.append(f"the disturbance {process.spec.text} ended before the measurement")
            process.popen.terminate()
        for process in self._processes:
            try:
                text, _ = process.popen.communicate(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                process.popen.kill()
                text, _ = process.popen.communicate()
            process.order.unlink(missing_ok=True)
            last = _decoded(text.strip().splitlines()[-1:] or [""])
            if last.get("event") == "ended":
                self.achieved.append({"load": process.spec.text, **process.facts, **last})
        self._processes = []

    def conditions(self) -> dict[str, Any]:
        """What was asked and what was achieved, for the Run."""
        told = [{k: v for k, v in one.items() if k != "event"} for one in self.achieved]
        return {"asked": [s.text for s in self.specs], "achieved": told}


def _message(popen: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of a load process; {} when it ended or said nothing in time."""
    import selectors

    assert popen.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(popen.stdout, selectors.EVENT_READ)
        until = time.monotonic() + _READY_S
        while not selector.select(max(0.0, until - time.monotonic())):
            if time.monotonic() >= until:
                return {}
    return _decoded([popen.stdout.readline()])


def _decoded(lines: Sequence[str]) -> dict[str, Any]:
    try:
        value = json.loads(lines[0]) if lines else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
