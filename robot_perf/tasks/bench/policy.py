"""One policy of a bench: its workers, its blocks in their order, and the rows that come of them."""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from robot_perf import __version__
from robot_perf.analyze.bench.figures import block_figures
from robot_perf.backends.gpu.options import on_cuda
from robot_perf.errors import ExitCode, RobotPerfError, RunFileError
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.processes.block_worker import BlockWorker, Refusal
from robot_perf.measure.watch.nvml import Meter
from robot_perf.measure.watch.watch_device import DeviceWatch
from robot_perf.measure.window.keep_warm import RUNTIME_WAITS, loop_part, parse_keep_warm
from robot_perf.run import parquet
from robot_perf.run.bench_report import INVALID, REFUSED, TIGHT, Row
from robot_perf.run.model import Run
from robot_perf.run.scratch import Scratch
from robot_perf.specs import Budget, LoopSpec, PolicySpec, from_json, to_json
from robot_perf.tasks.bench.request import BenchRequest, Target
from robot_perf.tasks.bench.rows import Measured, PointKey, first_calls, quick_execution, row_of, with_device
from robot_perf.tasks.reference import make_reference, needs_reference
from robot_perf.units import period_ns

_USAGE = int(ExitCode.USAGE)
_SEVERAL = 2
# A block's warm-up at most, in calls and in time: its worker is loaded and has run before.
_WARMUP, _WARMUP_NS = 60, 500_000_000
_PRIMED = 10
# Back to back a block has as many steps as fill this time, and its warm-up may take more calls: 250 steps of 30 µs are over before
# a processor that has just slept is at its speed. How long a step takes, a first, short block says, which is part of no point.
_TIGHT_NS, _TIGHT_STEPS, _TIGHT_WARMUP, _GAUGE = 250_000_000, 20_000, 2_000, 100


class PolicyBench:
    """Use: `load`, `run`, `close`, then `rows` and `runs_of`."""

    def __init__(
        self,
        request: BenchRequest,
        name: str,
        spec: PolicySpec,
        targets: Sequence[Target],
        folder: Path,
        meter: Meter | None,
        meter_reason: str,
        host: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self.request, self.name, self.spec, self.targets, self.folder = request, name, spec, targets, folder
        self._meter, self._meter_reason, self._host, self._say = meter, meter_reason, host, say
        self._workers: dict[tuple[str, bool], BlockWorker] = {}
        self._measured: dict[PointKey, Measured] = defaultdict(Measured)
        self._refused: dict[str, tuple[str, str]] = {}  # label -> status and reason
        self._first_calls: dict[str, tuple[int, ...]] = {}
        self._step_ns: dict[str, int] = {}  # of a quick step back to back
        self._scratch: Scratch | None = None
        self._reference: str | None = None
        self._truth: dict[str, Any] = {"compared": False, "reason": "one backend on the CPU: it is its own reference"}

    def prepare(self) -> None:
        """Makes a worker for every backend that takes the policy's format; starts them all at once when asked."""
        from robot_perf.backends import why_not

        for target in self.targets:
            if reason := why_not(target.name, self.spec):
                self._refused[target.label] = (REFUSED, reason)
        taking = [t for t in self.targets if t.label not in self._refused]
        self._make_reference(taking)
        for target in taking:
            for spin_sync in self._sync_variants():
                options = target.options | ({"sync": "spin"} if spin_sync else {})
                python = self.request.python.get(target.name, sys.executable)
                worker = BlockWorker(self._order(target, options), python, hang_s=self.request.hang_s)
                self._workers[target.label, spin_sync] = worker
                if spin_sync and not on_cuda(options):
                    worker.refusal = Refusal("--keep-warm spin-sync: it runs on the CPU, where no device is waited for")
        if self.request.together:
            for worker in self._workers.values():
                if worker.refusal is None:
                    worker.start()

    def _make_reference(self, taking: Sequence[Target]) -> None:
        """The truth gate's answers in float32 on the CPU: for a device, compiled code, or where several backends must agree."""
        if len(taking) < _SEVERAL and not any(needs_reference(self.spec, t.name, t.options) for t in taking):
            return
        self._say(f"{self.name}: answers of the CPU reference")
        self._scratch = Scratch("bench-")
        made = make_reference(self.spec, self._scratch.path, seed=self.request.seed, python=self.request.python)
        self._reference, self._truth = made.path, made.conditions()

    def load(self) -> None:
        """Waits until every worker has loaded or has said why not, and has made its first calls.

        One after another, unless all were started at once: then their first calls, which may compile, run side by side too.
        """
        for (label, spin_sync), worker in self._workers.items():
            if not self.request.together and worker.refusal is None:
                worker.start()
            self._say(f"{self.name}: loading {label}")
            refusal = worker.wait_loaded(self.request.load_s, self._loading)
            if refusal is None:
                if worker.report["policy"]["inputs"]:
                    self.spec = from_json(PolicySpec, worker.report["policy"])
                sync = worker.report["backend_facts"].get("sync")
                if spin_sync and sync != "spin":
                    why = (
                        RUNTIME_WAITS if sync == "runtime" else f"backend {label} waits for no device, or not by choice"
                    )
                    worker.refusal = Refusal(f"--keep-warm spin-sync: {why}")
            elif not spin_sync:
                self._refuse(label, refusal)
            if not self.request.together:
                self._prime(label, spin_sync)
        if self.request.together:
            with ThreadPoolExecutor(max_workers=max(1, len(self._workers))) as pool:
                list(pool.map(lambda key: self._prime(*key), self._workers))

    def _refuse(self, label: str, refusal: Refusal) -> None:
        self._refused[label] = (REFUSED if refusal.exit_code == _USAGE else INVALID, refusal.reason)

    def _prime(self, label: str, spin_sync: bool) -> None:
        """The first calls of a worker, back to back: what a robot's first steps cost, and what compiles. Part of no point.

        Nor are the phases of a step looked at here, where other workers may make their first calls at the same time.
        """
        worker = self._workers[label, spin_sync]
        if worker.refusal is not None:
            return
        loop = LoopSpec(period_ns=0, deadline_ns=0, steps=_PRIMED, warmup_min=3, warmup_max=_PRIMED)
        try:
            run = worker.run(loop, self._conditions(PointKey(label, TIGHT), loop, -1), phases=False)
        except RobotPerfError as error:
            worker.refusal = Refusal(error.one_line, int(error.exit_code))
        else:
            if not spin_sync:
                self._first_calls[label] = first_calls(run)
        if worker.refusal is not None and not spin_sync:
            self._refuse(label, worker.refusal)

    def _loading(self, what: str, fraction: float | None) -> None:
        self._say(f"{self.name}: {what}" + ("" if fraction is None else f", {fraction:.0%}"))

    def _sync_variants(self) -> list[bool]:
        """Polling for the device is settled when a backend loads: it needs a worker of its own."""
        return sorted({False, *(parse_keep_warm(k).spin_sync for k in self.request.keep_warm)})

    def _order(self, target: Target, options: dict[str, Any]) -> WorkOrder:
        return WorkOrder(
            map_path="",
            policy=self.spec,
            backend=target.name,
            loop=self._loop(PointKey(target.label, TIGHT)),
            options=options,
            observations=str(self.request.observations) if self.request.observations else None,
            cast=self.request.cast,
            seed=self.request.seed,
            reference=self._reference,
        )

    def _loop(self, key: PointKey) -> LoopSpec:
        steps = -(-self.request.steps_at(key.rate) // self.request.blocks)
        if key.rate == TIGHT:
            step = self._step_ns.get(key.label)
            if step is None:  # not known yet, or no step could be timed
                return LoopSpec(period_ns=0, deadline_ns=0, steps=steps, warmup_max=_WARMUP)
            steps = max(steps, min(_TIGHT_STEPS, -(-_TIGHT_NS // step)))
            warmup = max(_WARMUP, min(_TIGHT_WARMUP, _WARMUP_NS // step))
            return LoopSpec(period_ns=0, deadline_ns=0, steps=steps, warmup_max=warmup)
        period = period_ns(key.rate)
        return LoopSpec(
            period_ns=period,
            deadline_ns=period,
            steps=steps,
            warmup_max=max(20, min(_WARMUP, _WARMUP_NS // period)),
            keep_warm=loop_part(key.keep_warm),
        )

    def run(self, first_order: int = 0) -> None:
        """All blocks: per rate forwards, backwards, forwards … over backends and keep-warms."""
        order, planned = first_order, self.planned_blocks()
        for rate in self.request.rates:
            cures = ("none",) if rate == TIGHT else self.request.keep_warm
            keys = [PointKey(t.label, rate, cure) for t in self.targets for cure in cures]
            keys = [k for k in keys if k.label not in self._refused]
            for turn in range(self.request.blocks):
                for key in keys if turn % 2 == 0 else reversed(keys):
                    self._say(f"{self.name}: block {order - first_order + 1} of {planned}: {key}")
                    self._block(key, order)
                    order += 1

    def _block(self, key: PointKey, order: int) -> None:
        found = self._measured[key]
        worker = self._workers[key.label, parse_keep_warm(key.keep_warm).spin_sync]
        if worker.refusal is not None and (found.refused or not found.runs):
            found.refused = found.refused or worker.refusal.reason
            found.status = REFUSED if worker.refusal.exit_code == _USAGE else INVALID
            return
        watch = DeviceWatch(self._meter, self._meter_reason)
        try:
            if key.rate == TIGHT and key.label not in self._step_ns:
                self._gauge(worker, key)
            loop = self._loop(key)
            run = worker.run(loop, self._conditions(key, loop, order), watch.look)
        except RobotPerfError as error:
            found.refused = error.one_line
            return
        use = watch.use()
        file = self._save(run, key, order)
        found.add(run, use, with_device(block_figures(run, order, file), use))

    def _gauge(self, worker: BlockWorker, key: PointKey) -> None:
        """How long a quick step takes back to back, once the first cold ones are over."""
        loop = LoopSpec(period_ns=0, deadline_ns=0, steps=_GAUGE, warmup_max=_WARMUP)
        step = quick_execution(worker.run(loop, self._conditions(key, loop, -1), phases=False))
        if step is not None:
            self._step_ns[key.label] = step

    def _conditions(self, key: PointKey, loop: LoopSpec, order: int) -> dict[str, Any]:
        target = next(t for t in self.targets if t.label == key.label)
        return {
            "version": __version__,
            "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "argv": sys.argv[1:],
            "rate_hz": key.rate,
            "rate_checked": "unchecked",
            "planned": False,
            "budget": to_json(Budget(deadline_ns=loop.deadline_ns)),
            "backend": {"name": target.name, "label": target.label, "options": target.options},
            "seed": self.request.seed,
            "host": self._host,
            "bench": {"order": order, "keep_warm": key.keep_warm},
            "truth": self._truth,
        }

    def _save(self, run: Run, key: PointKey, order: int) -> str:
        words = "-".join(p for p in (self.name, key.label, key.rate, key.keep_warm) if p != "none")
        name = f"{order:04d}-{re.sub(r'[^A-Za-z0-9._-]+', '_', words)[:100]}.parquet"
        try:
            parquet.save(run, self.folder / "runs" / name, force=True)
        except OSError as error:
            raise RunFileError(
                f"{self.name}: a Run can't be saved as {self.folder / 'runs' / name}",
                why="The bench ends here; bench.json there holds the policies that were finished.",
                do="Make room, or choose another folder with -o, and measure again.",
                detail=str(error),
            ) from None
        return f"runs/{name}"

    def planned_blocks(self) -> int:
        """How many blocks the backends that loaded were to run."""
        labels = sum(t.label not in self._refused for t in self.targets)
        cures = sum(1 if rate == TIGHT else len(self.request.keep_warm) for rate in self.request.rates)
        return labels * cures * self.request.blocks

    def drop_unmeasured(self) -> int:
        """After an interruption: leaves out points without a block and says of backends without any why; how many blocks there are."""
        for measured in self._measured.values():
            measured.whole()
        self._measured = defaultdict(Measured, {k: m for k, m in self._measured.items() if m.runs or m.refused})
        blocks = sum(len(m.runs) for m in self._measured.values())
        for target in self.targets if blocks else ():
            if not any(key.label == target.label for key in self._measured):
                self._refused.setdefault(target.label, (INVALID, "not measured: the bench was ended before its turn"))
        return blocks

    def runs_of(self, label: str, rate: str, keep_warm: str = "none") -> list[Run]:
        """The Runs of a point, in the order of their blocks."""
        return self._measured[PointKey(label, rate, keep_warm)].runs

    def rows(self, idle_w: float | None) -> list[Row]:
        """One row per target, refused ones with their reason."""
        return [self._row(target, idle_w) for target in self.targets]

    def _row(self, target: Target, idle_w: float | None) -> Row:
        if target.label in self._refused:
            status, reason = self._refused[target.label]
            return Row(self.name, target.label, target.name, target.options, status, reason)
        notes: tuple[str, ...] = () if self._truth["compared"] else (f"outputs not compared: {self._truth['reason']}",)
        report = self._workers[target.label, False].report
        if "ended_by" in report:
            notes += (f"its process was ended by {report['ended_by']} as it closed, after the measurement",)
        first = self._first_calls.get(target.label, ())
        return row_of(self.name, target, self._measured, report, first, idle_w, notes, together=self.request.together)

    def close(self, *, kill: bool = False) -> None:
        """Ends every worker; `kill` waits for nothing that it still does."""
        for worker in self._workers.values():
            worker.close(kill=kill)
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None
