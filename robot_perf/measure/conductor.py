"""Starts the measured process, watches its step map from outside, and makes a Run of whatever it left.

The conductor shares nothing with the loop but the map: it sleeps, looks, and copies. A worker that raises, hangs, crashes
the interpreter or is killed loses no completed step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robot_perf.errors import ExitCode, RobotPerfError, RunFileError
from robot_perf.measure.order import WorkOrder, write_order
from robot_perf.measure.processes.drain import Drain
from robot_perf.measure.processes.flush import DiskCopy
from robot_perf.measure.processes.process import Ended, end, failed_words, on_ending, signal_name, steal_ticks
from robot_perf.run.assemble import run_from_map
from robot_perf.run.columns import STEP_COLUMNS, stage_column
from robot_perf.run.maps import MAP_FOLDER
from robot_perf.run.model import Run
from robot_perf.run.stepmap import Phase, StepMap, Word, process_born
from robot_perf.specs import to_json

_LOOK_S, _CLOCK_S, _GRACE_S = 0.2, 1.0, 5.0

Progress = Callable[[StepMap], None]


@dataclass(frozen=True)
class Plan:
    """A measurement to start. `conditions` is what is known before: budget, host, argv, …

    `disk_copy` receives the map's new rows every `flush_s`; `hang_s` is how long one step may take before the worker is
    taken for hung (never less than 20 periods). With several policies at once, `ready` is asked, once this one is loaded,
    until it says True: then the worker that holds may begin; `stop` gives a reason to end from outside, or None.
    """

    order: WorkOrder
    conditions: dict[str, Any]
    python: str = sys.executable
    disk_copy: Path | None = None
    flush_s: float = 10.0
    hang_s: float = 20.0
    load_s: float = 3600.0  # an engine's build takes long, and reports its progress
    ready: Callable[[], bool] | None = None
    stop: Callable[[], str | None] | None = None


def measure(plan: Plan, on_progress: Progress | None = None) -> Run:
    """Runs the plan to its end, whatever that is, and returns the Run.

    The step map stays until the Run is saved: its path is the Run's condition `step_map`, and `robot_perf.tasks.saving.keep`
    saves the one and removes the other.

    Raises the worker's own RobotPerfError (exit 2) when the policy could not be loaded: then there is nothing to save.
    """
    loop = plan.order.loop
    stages = tuple(stage_column(s.name) for s in plan.order.policy.stages)
    request = {**plan.conditions, "loop": to_json(loop), "policy": to_json(plan.order.policy)}
    stepmap = _new_map(plan, request, (*STEP_COLUMNS, *stages), loop.steps + loop.warmup_max + 64)
    stepmap[Word.CONDUCTOR_PID], stepmap[Word.CONDUCTOR_BORN] = os.getpid(), process_born(os.getpid())
    held = False
    try:
        run = _Conduct(plan, stepmap, on_progress).run()
        held = True
        return run
    except RobotPerfError:
        raise  # the policy could not be loaded: there is nothing to keep
    except BaseException:
        held = stepmap[Word.COMMITTED] > 0
        raise
    finally:
        if not held:
            stepmap.path.unlink(missing_ok=True)
        stepmap.close()


def _new_map(plan: Plan, request: dict[str, Any], columns: tuple[str, ...], rows: int) -> StepMap:
    """In memory; beside the Run where memory has no room for it (64 MB in a container by default)."""
    path = map_path(plan.order.policy.name, plan.disk_copy)
    try:
        return StepMap.create(path, request, columns, rows)
    except RunFileError:
        if plan.disk_copy is None or path.parent != MAP_FOLDER:
            raise
        plan.disk_copy.parent.mkdir(parents=True, exist_ok=True)
        return StepMap.create(plan.disk_copy.with_name(path.name), request, columns, rows)


def map_path(name: str, beside: Path | None) -> Path:
    """Where a new map goes: memory where there is some, else beside the Run (a disk map takes a fault a page after write-back)."""
    folder = MAP_FOLDER
    try:
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o1777)  # past the umask: another user of this robot measures too
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        folder = beside.parent if beside is not None else Path(tempfile.gettempdir())
        folder.mkdir(parents=True, exist_ok=True)
    safe = "".join(c if c.isalnum() or c in "-." else "_" for c in name)[:60]
    return (
        folder
        / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}-{time.monotonic_ns() % 1_000_000:06d}-{safe}.map"
    )


class _Conduct:
    def __init__(self, plan: Plan, stepmap: StepMap, on_progress: Progress | None) -> None:
        self.plan, self.map, self.on_progress = plan, stepmap, on_progress
        self.samples: list[tuple[int, int]] = []
        self.asked_to_stop: str | None = None
        self.hung: str | None = None
        self.trouble: str | None = None
        self._order_file: Path | None = None
        self._seen: tuple[int, ...] = ()
        self._seen_at = time.monotonic()
        self._steal = steal_ticks()

    def run(self) -> Run:
        """The Run of whatever the worker did."""
        undo = on_ending(self._signalled)
        try:
            process = self._start()
            drain = Drain(process)
            try:
                self._watch(process)
            finally:
                end(process, _GRACE_S)  # whatever went wrong on this side, no worker is left behind
            return self._assemble(process, drain.finish())
        finally:
            if self._order_file is not None:
                self._order_file.unlink(missing_ok=True)  # of a worker that ended before it had read it
            undo()  # last: Ctrl-C while the Run is made of the map would lose it

    def _start(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        # The worker may be another interpreter, which knows nothing of where this package lies.
        package_parent = str(Path(__file__).resolve().parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(p for p in (package_parent, environment.get("PYTHONPATH", "")) if p)
        order = replace(
            self.plan.order, map_path=str(self.map.path), conductor_pid=os.getpid(), spawned_ns=time.monotonic_ns()
        )
        self._order_file = write_order(to_json(order))
        try:
            # A session of its own: the terminal's Ctrl-C reaches the conductor alone, which then asks the worker to end.
            return subprocess.Popen(
                [self.plan.python, "-m", "robot_perf.measure.worker", str(self._order_file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise RobotPerfError(
                f"the interpreter {self.plan.python} can't be started",
                do="Give the path of a Python that has numpy and the backend: --python BACKEND=PATH",
                detail=str(error),
            ) from None

    def _signalled(self, number: int, _frame: object) -> None:
        self.asked_to_stop = signal.Signals(number).name

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        copy: DiskCopy | None = None
        next_clock = next_flush = time.monotonic()
        asked_at: float | None = None
        ended = Ended(process.pid)
        while process.poll() is None:
            now = time.monotonic()
            if now >= next_clock:
                self.samples.append((time.monotonic_ns(), time.time_ns()))
                next_clock = now + _CLOCK_S
            if self.plan.disk_copy is not None and now >= next_flush and self.map[Word.COMMITTED] and not self.trouble:
                copy = self._flush(copy, self.plan.disk_copy)
                next_flush = now + self.plan.flush_s
            if self.on_progress is not None:
                self.on_progress(self.map)
            self._look_for_hang(process)
            self._hear_the_others()
            if (self.asked_to_stop or self.hung) and asked_at is None:
                process.terminate()
                asked_at = now
            elif asked_at is not None and now - asked_at > _GRACE_S:
                process.kill()
            ended.wait(_LOOK_S)
        ended.close()
        if self.on_progress is not None:
            self.on_progress(self.map)
        if copy is not None:
            copy.remove()

    def _flush(self, copy: DiskCopy | None, path: Path) -> DiskCopy | None:
        """A copy that can't be written (a full disk) is said and given up: the measurement is in memory and goes on."""
        try:
            copy = copy or DiskCopy(self.map, path)
            copy.update()
        except OSError as error:
            self.trouble = (
                f"the steps were not copied to {path.name} on disk ({error.strerror}): power loss would have lost them"
            )
        return copy

    def _hear_the_others(self) -> None:
        if self.plan.stop is not None and self.asked_to_stop is None:
            self.asked_to_stop = self.plan.stop()
        waiting = self.plan.ready is not None and not self.map[Word.GO] and self.map[Word.PHASE] == Phase.LOADED
        if waiting and self.plan.ready is not None and self.plan.ready():
            self.map[Word.GO] = 1

    def _look_for_hang(self, process: subprocess.Popen[bytes]) -> None:
        phase = self.map[Word.PHASE]
        seen = (phase, self.map[Word.COMMITTED], self.map[Word.REPORT_VERSION])
        if seen != self._seen:
            self._seen, self._seen_at = seen, time.monotonic()
        if self.hung or phase == Phase.LOADED:  # waits for its neighbours, which may load for long
            return
        limit_ns = max(int(self.plan.hang_s * 1e9), 20 * self.plan.order.loop.period_ns)
        row = self.map.row_in_flight() if phase in (Phase.WARMUP, Phase.RUNNING) else None
        if row is None:
            # Loading, the truth gate, a reset: no step is under way. A sign of life is a row, a phase or a report.
            patience_s = max(self.plan.load_s, limit_ns / 1e9) if phase < Phase.WARMUP else 10 * limit_ns / 1e9
            silent_s = time.monotonic() - self._seen_at
            if phase <= Phase.RUNNING and silent_s > patience_s:
                doing = (
                    "while loading" if phase < Phase.WARMUP else "between steps (reset, output check or end of the run)"
                )
                self.hung = f"the policy hung {doing}: no sign of life for {silent_s:.0f} s"
            return
        elapsed = time.monotonic_ns() - row["start_ns"]
        if elapsed > limit_ns:
            where = "warm-up" if self.map[Word.PHASE] == Phase.WARMUP else f"step {row['step']:,}"
            self.hung = f"the policy hung: {where} had not returned after {elapsed / 1e9:.0f} s"

    def _assemble(self, process: subprocess.Popen[bytes], printed: dict[str, Any]) -> Run:
        report = self.map.report
        if "error" in report:
            error = report["error"]
            known = RobotPerfError(error["what"], why=error["why"], do=error["do"], detail=error["detail"])
            known.exit_code = ExitCode(error["exit_code"])
            raise known
        code = process.returncode
        phase = self.map[Word.PHASE]
        state = self._why_unfinished(code, phase, report)
        if phase in (Phase.CREATED, Phase.LOADING) and not self.asked_to_stop:
            # Nothing was measured: there is no Run to save, whether the load failed, crashed or hung.
            last, ours = printed["stderr_tail"].strip().splitlines(), self.plan.python == sys.executable
            raise RobotPerfError(
                f"{self.plan.order.policy.name}: {state or 'the worker ended before the policy was loaded'}",
                why=f"Its last output: {last[-1][:300]}" if last else "",
                do="" if ours else f"It ran under {self.plan.python}, which needs numpy and the backend.",
            )
        extra: dict[str, Any] = {"clock": {"samples": self.samples}, "printed": printed, "invalid": [], "notes": []}
        extra["step_map"] = str(self.map.path)
        extra["steal_ticks_during"] = None if self._steal is None else (steal_ticks() or 0) - self._steal
        if self.trouble:
            extra["notes"].append(self.trouble)
        if printed["stdout_bytes"]:
            calls = max(1, self.map[Word.COMMITTED])
            extra["notes"].append(
                f"the policy printed {printed['stdout_bytes']:,} bytes to stdout, {printed['stdout_bytes'] / calls:.0f} a step: "
                "printing is inside its response time, and slower on a robot's console"
            )
        if "failure" in report and str(report["failure"]["error"]) not in str(state):
            extra["invalid"].append(failed_words(report["failure"]))
        if self.hung:
            extra["invalid"].append(self.hung)
        return run_from_map(self.map, state=state, extra=extra)

    def _why_unfinished(self, code: int, phase: int, report: dict[str, Any]) -> str | None:
        reached, steps = self.map.reached(), self.plan.order.loop.steps
        where = (
            "in warm-up"
            if phase < Phase.RUNNING or self.map[Word.ORIGIN] < 0
            else f"after {min(reached, steps):,} of {steps:,} releases"
        )
        if phase in (Phase.CREATED, Phase.LOADING):
            where = "while the policy was loading"
        failed = failed_words(report["failure"], where) if "failure" in report else ""
        reasons = (
            (self.hung, f"stopped {where}: {self.hung}"),
            (self.asked_to_stop and (code != 0 or reached < steps), f"interrupted by {self.asked_to_stop} {where}"),
            (failed, failed),
            (code < 0, f"the measured process died of {signal_name(-code)} {where}"),
            (code > 0, f"the measured process ended with exit code {code} {where}"),
            # os._exit(0) inside a policy: no signal, no exception, no last word.
            (phase != Phase.DONE, f"the policy ended the measured process {where}"),
        )
        return next((text for holds, text in reasons if holds), None)
