"""What the keeper of a ROS node does: makes step maps, reads them while they fill, writes a Run and a verdict for each."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf import __version__
from robot_perf.analyze.verdict import judge
from robot_perf.errors import RobotPerfError, UsageError
from robot_perf.measure.conductor import map_path
from robot_perf.measure.machine.fingerprint import fingerprint
from robot_perf.measure.node.mailbox import NODE_COLUMNS
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.processes.flush import DiskCopy
from robot_perf.measure.processes.worker_parts import error_report
from robot_perf.measure.watch.nvml import HARMLESS, Meter, open_meter
from robot_perf.run.assemble import run_from_map
from robot_perf.run.columns import NOT_MEASURED, STEP_COLUMNS, stage_column
from robot_perf.run.parquet import save
from robot_perf.run.stepmap import Phase, StepMap, Word, is_alive, process_born
from robot_perf.specs import to_json
from robot_perf.tasks.deadline import prepare
from robot_perf.tasks.node.disk import BlockFile, add_and_prune
from robot_perf.tasks.node.figures import Activation, new_rows
from robot_perf.tasks.node.request import request_of

LOOK_S = 0.05
LIVE_S = 1.0
FLUSH_S = 10.0
SHORTEST_BLOCK_NS = 1_000_000_000  # the next map must be ready before the block ends


class Kept:
    """One map on its way to a Run."""

    def __init__(self, stepmap: StepMap, activation: int) -> None:
        self.map, self.activation = stepmap, activation
        self.samples: list[tuple[int, int]] = []
        self.read = 0
        self.copy: DiskCopy | None = None


class Keeper:
    """All state of one node's measurement. `handle` takes a command, `look` is called often, `end` once."""

    def __init__(self, node_pid: int, send: Any) -> None:
        self.node_pid, self.node_born = node_pid, process_born(node_pid)
        self.send = send
        self.maps: list[Kept] = []
        self.activation = 0
        self.figures: Activation | None = None
        self.verdicts: list[dict[str, Any]] = []
        self.conditions: dict[str, Any] = {}
        self.order: WorkOrder | None = None
        self.meter: Meter | None = None
        self._next_live = self._next_clock = self._next_flush = 0.0

    def handle(self, command: dict[str, Any]) -> None:
        """One command of the node; a RobotPerfError becomes the event `failed`."""
        try:
            {"prepare": self._prepare, "map": self._map, "activate": self._activate, "drop": self._drop}[
                command["cmd"]
            ](command)
        except RobotPerfError as error:
            self.send(event="failed", error=error_report(error))
        except OSError as error:
            # A full or read-only disk: the node must hear it instead of a keeper that is gone.
            self.send(event="failed", error=error_report(RobotPerfError("the keeper can't go on", detail=str(error))))

    def _prepare(self, command: dict[str, Any]) -> None:
        begin = time.monotonic_ns()
        asked, node = command["parameters"], command["node"]
        prepared = prepare(request_of(asked))
        loop = prepared.loop
        if loop.steps * loop.period_ns < SHORTEST_BLOCK_NS:
            raise UsageError(
                f"parameter steps: a block of {loop.steps} releases at {asked['rate']:g} Hz lasts {loop.steps * loop.period_ns / 1e6:.0f} ms",
                why="A block lasts at least 1 s, so that the next one is ready when it ends.",
                do=f"Set steps to {-(-SHORTEST_BLOCK_NS // loop.period_ns)} or more, or to 0 for the plan.",
            )
        self.folder = Path(asked["output_dir"]).expanduser()
        self.limit_bytes = int(asked["max_disk_mb"] * 1e6)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"parameter output_dir: {self.folder} can't be made", detail=str(error)) from None
        if self.meter is not None:
            self.meter.close()
        self.meter, no_meter = open_meter(asked["device"])
        self.rate_text = f"{asked['rate']:g}"
        self.order = WorkOrder(
            map_path="", policy=prepared.policy, backend=prepared.backend, loop=loop, options=prepared.request.backend_options,
            observations=asked["recording"] or None, seed=asked["seed"], conductor_pid=os.getpid(), spawned_ns=begin,
        )  # fmt: skip
        self.conditions = {
            "version": __version__, "rate_hz": self.rate_text, "planned": prepared.planned, "budget": to_json(prepared.budget),
            "backend": {"name": prepared.backend, "options": prepared.request.backend_options}, "seed": asked["seed"],
            "host": fingerprint(), "meter": self.meter.identity() if self.meter is not None else {"absent": no_meter}, "argv": node.pop("argv", []), "ros": node, "parameters": asked,
            "notes": ["measured inside a ROS node: own work includes publishing the command, after the end of the step", *node.pop("notes", [])],
            "invalid": node.pop("invalid", []),
        }  # fmt: skip
        self.activation = 0
        self.send(event="prepared", order=to_json(self.order), map=str(self._new_map().map.path))

    def _new_map(self) -> Kept:
        assert self.order is not None
        loop, policy = self.order.loop, self.order.policy
        stages = tuple(stage_column(s.name) for s in policy.stages)
        request = {
            **self.conditions,
            "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "loop": to_json(loop),
            "policy": to_json(policy),
            "activation": self.activation,
        }
        rows = loop.steps + (loop.warmup_max if not self.activation else 0) + 64
        stepmap = StepMap.create(
            map_path(policy.name, self.folder / "x"), request, (*STEP_COLUMNS, *stages, *NODE_COLUMNS), rows
        )
        stepmap[Word.CONDUCTOR_PID], stepmap[Word.CONDUCTOR_BORN] = os.getpid(), process_born(os.getpid())
        _unmeasured(stepmap)
        kept = Kept(stepmap, self.activation)
        self.maps.append(kept)
        return kept

    def _map(self, command: dict[str, Any]) -> None:
        self.send(event="map", token=command["token"], path=str(self._new_map().map.path))

    def _activate(self, command: dict[str, Any]) -> None:
        assert self.order is not None
        self.activation = command["activation"]
        for kept in self.maps:
            kept.activation = self.activation
        self.figures = Activation(self.order.loop.period_ns, self.order.loop.deadline_ns)

    def _drop(self, _command: dict[str, Any]) -> None:
        """The node is done with its maps: unused ones go; one with steps that never ended belongs to a policy that hangs."""
        self.look()
        for kept in list(self.maps):
            self._finish(kept, died="the policy did not return from its step")
        self.figures = None

    def look(self) -> None:
        """Reads what is new, ends what has ended, copies to disk and reports when it is time."""
        now = time.monotonic()
        for kept in list(self.maps):
            if now >= self._next_clock:
                kept.samples.append((time.monotonic_ns(), time.time_ns()))
            self._read(kept)
            if now >= self._next_flush and kept.map[Word.PHASE] == Phase.RUNNING:
                kept.copy = kept.copy or DiskCopy(kept.map, self.folder / f".{kept.map.path.name}")
                kept.copy.update()
            if kept.map[Word.PHASE] in (Phase.DONE, Phase.FAILED):
                self._finish(kept)
        if now >= self._next_clock:
            self._next_clock = now + 1.0
        if now >= self._next_flush:
            self._next_flush = now + FLUSH_S
        if now >= self._next_live and self.order is not None:
            self._next_live = now + LIVE_S
            self.send(**self.live())

    def _read(self, kept: Kept) -> None:
        rows, kept.read = new_rows(kept.map, kept.read)
        if self.figures is not None and len(rows["step"]):
            self.figures.add(rows)

    def live(self) -> dict[str, Any]:
        """The event `live`: the current block, the window, everything since activation. ns, counts."""
        assert self.order is not None
        loop = self.order.loop
        running = next((k for k in self.maps if k.map[Word.PHASE] == Phase.RUNNING), None)
        now = time.monotonic_ns()
        reached = running.map.reached() if running is not None else 0
        flying = running.map.row_in_flight() if running is not None else None
        hung = flying is not None and now - flying["start_ns"] > max(1_000_000_000, 20 * loop.period_ns)
        live: dict[str, Any] = {
            "event": "live", "monotonic_ns": now, "state": "running" if running else "idle", "activation": self.activation,
            "period_ns": loop.period_ns, "deadline_ns": loop.deadline_ns, "policy": self.order.policy.name,
            "backend": self.order.backend, "hung_in_step": flying["step"] if hung and flying else None,
            "block": {"reached": reached, "steps": loop.steps},
            "verdict": {"status": "INCONCLUSIVE", "reason": f"{reached:,} of {loop.steps:,} releases"},
            "blocks": self.verdicts[-5:],
        }  # fmt: skip
        live["device"] = self._device()
        if self.figures is not None:
            live["window"] = self.figures.window(now, running=running is not None)
            live["since_activation"] = self.figures.totals()
            live["moments"] = self.figures.moments()
        return live

    def _device(self) -> dict[str, Any]:
        """The device's clock and why it is lowered; null where nothing tells (a CPU, an absent nvidia-ml-py)."""
        if self.meter is None:
            return {"clock_mhz": None, "throttled": None}
        sample = self.meter.sample()
        lowered = [r for r in sample.throttle if r not in HARMLESS]
        return {
            "clock_mhz": None if sample.sm_hz is None else sample.sm_hz / 1e6,
            "throttled": ", ".join(lowered) or "no",
        }

    def _finish(self, kept: Kept, died: str | None = None) -> None:
        """A Run and a verdict out of a map that has ended; the map goes."""
        self._read(kept)
        stepmap = kept.map
        if stepmap[Word.ORIGIN] < 0 or stepmap[Word.COMMITTED] <= max(0, stepmap[Word.WARMUP_ROWS]):
            self._forget(kept)
            return
        report = stepmap.report
        steps, reached = self._steps(stepmap), stepmap.reached()
        where = f"after {min(reached, steps):,} of {steps:,} releases"
        state = None
        invalid = []
        if "failure" in report:
            invalid.append(f"the policy raised {report['failure']['error']}")
            state = f"the policy raised {where}: {report['failure']['error']}"
        elif "ended" in report and reached < steps:
            state = f"{report['ended']} {where}"
        elif died is not None:
            state = f"{died} {where}"
        run = run_from_map(
            stepmap,
            state=state,
            extra={"clock": {"samples": kept.samples}, "invalid": invalid, "activation": kept.activation},
        )
        number = int(report.get("block", stepmap[Word.ORIGIN] and len(self.verdicts)))
        path = self._file(kept.activation, number)
        try:
            save(run, path)
        except OSError as error:
            # The steps stay in the map, which `robot-perf recover` finds; the node is told.
            self.send(
                event="trouble",
                what=f"block {number} can't be saved in {self.folder}: {error}; its steps are in {stepmap.path}",
            )
            self._release(kept)
            return
        verdict = judge(run)
        entry = {
            "activation": kept.activation, "block": number, "status": verdict.status, "reason": verdict.reason, "releases": verdict.releases,
            "misses": verdict.misses, "skipped": verdict.skipped, "state": verdict.state, "file": str(path),
        }  # fmt: skip
        self.verdicts = [*self.verdicts[-19:], entry]
        removed = add_and_prune(
            self.folder, BlockFile(path.name, verdict.status, path.stat().st_size), self.limit_bytes
        )
        self.send(event="block", removed=removed, **entry)
        self._forget(kept)

    @staticmethod
    def _steps(stepmap: StepMap) -> int:
        return int(stepmap.request["loop"]["steps"])

    def _file(self, activation: int, number: int) -> Path:
        assert self.order is not None
        safe = re.sub(r"[^A-Za-z0-9._-]+", "_", self.order.policy.name).strip("._")[:60] or "policy"
        stem = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{safe}-{self.order.backend}-{self.rate_text}hz-a{activation}b{number:04d}"
        path, again = self.folder / f"{stem}.parquet", 2
        while path.exists():
            path, again = self.folder / f"{stem}-{again}.parquet", again + 1
        return path

    def _release(self, kept: Kept) -> None:
        if kept.copy is not None:
            kept.copy.remove()
        kept.map.close()
        self.maps.remove(kept)

    def _forget(self, kept: Kept) -> None:
        path = kept.map.path
        self._release(kept)
        path.unlink(missing_ok=True)

    def node_gone(self) -> bool:
        """Whether the very process that started this one has ended."""
        return not is_alive(self.node_pid, self.node_born)

    def end(self) -> None:
        """The node closed the line or died: every map with a step becomes a Run."""
        for _ in range(40):  # an orderly node has written its last words; a dying one needs a moment to be gone
            if self.node_gone() or all(k.map[Word.PHASE] != Phase.RUNNING for k in self.maps):
                break
            time.sleep(0.05)
        self.look()
        for kept in list(self.maps):
            self._finish(kept, died="the node's process died" if self.node_gone() else "the node closed its keeper")


def _unmeasured(stepmap: StepMap) -> None:
    """-1 in the node's columns of every row, but the flags: a node that is killed between a step and its stamps leaves no false 0."""
    rows, columns = stepmap[Word.ROWS], len(stepmap.columns)
    table = np.frombuffer(stepmap.memory, "<i8", rows * columns, stepmap.rows_at).reshape(rows, columns)
    table[:, len(stepmap.columns) - len(NODE_COLUMNS) : -1] = NOT_MEASURED
