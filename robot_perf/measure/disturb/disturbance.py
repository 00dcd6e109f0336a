"""Starts the processes of stated disturbances, waits until all of them load the machine, and says at the end what they did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from robot_perf.errors import RobotPerfError
from robot_perf.measure.disturb.achieved import achieved_words
from robot_perf.measure.disturb.load import LoadSpec
from robot_perf.measure.order import write_order
from robot_perf.measure.processes.process import signal_name
from robot_perf.specs import to_json

_READY_S = 180.0  # torch's libraries from a cold disk take most of it
_GRACE_S = 5.0


@dataclass
class _Process:
    spec: LoadSpec
    popen: subprocess.Popen[str]
    order: Path
    printed: IO[str]
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
        printed = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed with its process
        popen = subprocess.Popen(
            [sys.executable, "-m", "robot_perf.measure.disturb.load", str(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=printed,
            text=True,
            env={**os.environ, **threads, "PYTHONPATH": path},
            start_new_session=True,
        )
        return _Process(spec, popen, order, printed)

    def _wait_ready(self, process: _Process) -> None:
        message = _message(process.popen)
        if message.get("event") != "ready":
            reason = message.get("reason") or _why_silent(process.popen)
            raise RobotPerfError(
                f"--load {process.spec.text} can't be run here",
                why=str(reason),
                do="Leave it out, or choose another.",
                detail=_last_line(process.printed),
            )
        process.facts = {k: v for k, v in message.items() if k != "event"}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for process in self._processes:
            if process.popen.poll() is not None:
                self.ended_early.append(_ended_early(process))
            process.popen.terminate()
        for process in self._processes:
            try:
                text, _ = process.popen.communicate(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                process.popen.kill()
                text, _ = process.popen.communicate()
            process.order.unlink(missing_ok=True)
            process.printed.close()
            last = _decoded(text.strip().splitlines()[-1:] or [""])
            if last.get("event") == "ended":
                self.achieved.append({"load": process.spec.text, **process.facts, **last})
        self._processes = []

    def words(self) -> list[str]:
        """One line per load: what it achieved, and whether that is what was asked."""
        return [achieved_words(s, [a for a in self.achieved if a["load"] == s.text]) for s in self.specs]

    def conditions(self) -> dict[str, Any]:
        """What was asked and what was achieved, for the Run."""
        told = [{k: v for k, v in one.items() if k != "event"} for one in self.achieved]
        return {"asked": [s.text for s in self.specs], "achieved": told}


def _ended_early(process: _Process) -> str:
    code = process.popen.returncode
    how = f"died of {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    said = _last_line(process.printed)
    return f"the disturbance {process.spec.text} {how} before the measurement was over" + (f": {said}" if said else "")


def _why_silent(popen: subprocess.Popen[str]) -> str:
    """A process that answered nothing: it ended, or it needs longer than we wait."""
    try:
        code = popen.wait(1.0)
    except subprocess.TimeoutExpired:
        return f"Its process was not ready after {_READY_S:.0f} s."
    return f"Its process died of {signal_name(-code)}." if code < 0 else f"Its process ended with exit code {code}."


def _last_line(printed: IO[str]) -> str:
    printed.seek(0)
    return (printed.read().strip().splitlines() or [""])[-1][:300]


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
