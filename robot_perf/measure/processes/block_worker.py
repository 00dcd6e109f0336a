"""The conductor's end of one `robot_perf.measure.processes.blocks` process: start it, hear whether it loaded, have it run blocks.

Only one worker of a bench runs a block at a time; the others sleep in a read. A worker that dies takes its later blocks with it,
each with the reason, and no step that it completed.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robot_perf.errors import RobotPerfError
from robot_perf.measure.conductor import map_path
from robot_perf.measure.order import WorkOrder, write_order
from robot_perf.measure.processes.drain import Drain
from robot_perf.measure.processes.process import failed_words, signal_name
from robot_perf.run.assemble import run_from_map
from robot_perf.run.columns import STEP_COLUMNS, stage_column
from robot_perf.run.model import Run
from robot_perf.run.stepmap import Phase, StepMap, Word, process_born
from robot_perf.specs import LoopSpec, to_json

_LOOK_S = 0.02
_GRACE_S = 5.0
_FIRST_CALL_S = 300.0
_EXAMINE_S = 20.0  # a profiler's start takes seconds

Look = Callable[[StepMap], None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a row has no figures: what the backend said when it loaded, or how its process ended."""

    reason: str
    exit_code: int = 2


class BlockWorker:
    """One measured process for the whole bench. Call `start`, `wait_loaded`, `run` as often as wanted, `close`."""

    def __init__(self, order: WorkOrder, python: str, *, hang_s: float = 20.0) -> None:
        self.order, self.python, self.hang_s = order, python, hang_s
        self.report: dict[str, Any] = {}
        self.refusal: Refusal | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def start(self) -> None:
        """Starts the process; it loads the policy on its own."""
        # PYTHONPATH: the worker may be another interpreter, which knows nothing of where this package lies.
        parent = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(p for p in (parent, os.environ.get("PYTHONPATH", "")) if p)
        order = replace(self.order, conductor_pid=os.getpid(), spawned_ns=time.monotonic_ns())
        self._order_file = write_order(to_json(order))
        self._replies, theirs = os.pipe()
        try:
            self._process = subprocess.Popen(
                [self.python, "-m", "robot_perf.measure.processes.blocks", str(self._order_file), str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=(theirs,),
                start_new_session=True,
            )
            self._drain = Drain(self._process)
        except OSError as error:
            self._order_file.unlink(missing_ok=True)
            self.refusal = Refusal(f"the interpreter {self.python} can't be started: {error.strerror or error}")
        finally:
            os.close(theirs)

    def wait_loaded(self, timeout_s: float, heard: Callable[[str, float | None], None] | None = None) -> Refusal | None:
        """None once the policy is loaded, else why it is not. `report` then holds the cold start and the backend's facts.

        `heard(what, fraction)` is told what a long load is doing; `timeout_s` counts from its last word.
        """
        if self.refusal is not None or self.report:
            return self.refusal
        message = self._read(time.monotonic() + timeout_s)
        while message is not None and message["event"] == "loading":
            if heard is not None:
                heard(message["what"], message["fraction"])
            message = self._read(time.monotonic() + timeout_s)
        if message is None:
            how = self._how_it_ended()
            self.refusal = Refusal(f"{how} while the policy was loading{self._last_words()}", 4)
        elif message["event"] == "failed":
            error = message["error"]
            words = [error["what"], error["why"], error["do"], error["detail"] and f"detail: {error['detail']}"]
            self.refusal = Refusal(". ".join(" ".join(w.split()).rstrip(".") for w in words if w), error["exit_code"])
        else:
            self.report = message["report"]
        return self.refusal

    def run(
        self, loop: LoopSpec, conditions: dict[str, Any], on_look: Look | None = None, *, phases: bool = True
    ) -> Run:
        """One block: its Run, whatever happened. Raises RobotPerfError when the worker refused the block before its window.

        `phases`: the first block of a rate and a cure may be followed by the pass that marks the phases of a step.
        """
        policy = self.order.policy
        stages = tuple(stage_column(s.name) for s in policy.stages)
        # several workers may make their first calls at the same moment: their process tells their maps apart
        process = 0 if self._process is None else self._process.pid
        path = map_path(f"{policy.name[:40]}-{process}", None)
        request = {**conditions, "loop": to_json(loop), "policy": to_json(policy)}
        stepmap = None
        try:  # around the making too: Ctrl-C while it is made leaves no map in memory
            stepmap = StepMap.create(path, request, (*STEP_COLUMNS, *stages), loop.steps + loop.warmup_max + 64)
            stepmap[Word.CONDUCTOR_PID], stepmap[Word.CONDUCTOR_BORN] = os.getpid(), process_born(os.getpid())
            ended = self._conduct(stepmap, loop, on_look, phases)
            report = stepmap.report
            if "error" in report:
                error = report["error"]
                raise RobotPerfError(error["what"], why=error["why"], do=error["do"], detail=error["detail"])
            invalid = [failed_words(report["failure"])] if "failure" in report else []
            return run_from_map(stepmap, state=ended, extra={"invalid": invalid})
        finally:
            if stepmap is not None:
                stepmap.close()
            for made in (path, path.with_name(f"{path.name}.new")):
                made.unlink(missing_ok=True)

    def _conduct(self, stepmap: StepMap, loop: LoopSpec, on_look: Look | None, phases: bool) -> str | None:
        """Sends the block and watches it. How it ended when it did not end well, else None."""
        if self._process is None or self._process.stdin is None or self.refusal is not None:
            return "not started: the worker had ended"
        line = json.dumps({"map": str(stepmap.path), "loop": to_json(loop), "phases": phases}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._lost(stepmap)
        while True:
            message = self._read(time.monotonic() + _LOOK_S)
            if on_look is not None:
                on_look(stepmap)
            if message is not None:
                self.report["max_rss_bytes"] = message.get("max_rss_bytes")
                return None
            if self._process.poll() is not None and self._read(time.monotonic()) is None:
                return self._lost(stepmap)
            if hung := self._hung(stepmap, loop):
                self.close(kill=True)
                self.refusal = Refusal(hung, 4)
                return f"stopped: {hung}"

    def _hung(self, stepmap: StepMap, loop: LoopSpec) -> str | None:
        phase = stepmap[Word.PHASE]
        row = stepmap.row_in_flight() if phase in (Phase.WARMUP, Phase.RUNNING) else None
        # the first call may compile for minutes; the window has no such excuse
        patience_s = max(self.hang_s, _FIRST_CALL_S) if phase == Phase.WARMUP else self.hang_s
        limit_ns = max(int(patience_s * 1e9), 20 * loop.period_ns)
        if row is None or time.monotonic_ns() - row["start_ns"] <= limit_ns:
            return None
        return f"the policy hung: a step had not returned after {limit_ns / 1e9:.0f} s"

    def _lost(self, stepmap: StepMap) -> str:
        report = stepmap.report
        ended = failed_words(report["failure"]) if "failure" in report else self._how_it_ended()
        words = "" if report.get("failure", {}).get("told") else self._last_words()
        self.refusal = Refusal(ended + words, 4)
        return f"interrupted: {ended}"

    def _read(self, until_s: float) -> dict[str, Any] | None:
        """The next reply before `until_s` (time.monotonic), or None: none came, or the process ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, until_s - time.monotonic())):
                    return None
                chunk = os.read(self._replies, 1 << 16)
                if not chunk:
                    if self._process is not None:
                        self._wait(_GRACE_S)
                    return None
                self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _wait(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _how_it_ended(self) -> str:
        code = None if self._process is None else self._process.poll()
        if code is None:
            return "the measured process did not answer in time"
        if code < 0:
            return f"the measured process died of {signal_name(-code)}"
        return f"the measured process ended with exit code {code}"

    def _last_words(self) -> str:
        tail: str = self._drain.finish(0.2)["stderr_tail"].strip()
        return f"; its last output: {tail.splitlines()[-1][:200]}" if tail else ""

    def close(self, *, kill: bool = False) -> None:
        """Ends the process: its input ends, then SIGTERM, then SIGKILL."""
        if self._process is None:
            return
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass  # it had ended before
        gone = kill or self.refusal is not None or self._replies < 0
        message = None if gone else self._read(time.monotonic() + _EXAMINE_S)
        if message is not None and message.get("event") == "examined":
            self.report["examined"] = message["facts"]
        if not kill and self._wait(_GRACE_S):
            if self._process.returncode < 0:  # not by us: the backend crashed as it freed what it held
                self.report["ended_by"] = signal_name(-self._process.returncode)
        else:
            self._process.terminate()
            if not self._wait(_GRACE_S):
                self._process.kill()
                self._process.wait()
        if self._replies >= 0:
            os.close(self._replies)
            self._replies = -1
        self._order_file.unlink(missing_ok=True)
