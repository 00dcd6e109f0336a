"""A measurement inside the worker: warm up, check the truth, settle the machine, run the window, read back what happened."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from robot_perf.backends.protocol import NOTHING_COMPILED, Runner
from robot_perf.backends.shared.check import state_findings
from robot_perf.errors import UsageError
from robot_perf.measure.clock import Clock
from robot_perf.measure.loop import run_window
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.recorder import Recorder, host_noise
from robot_perf.measure.step import OutputWatch, Step, make_step
from robot_perf.measure.window.collector import Collections, CollectorMode
from robot_perf.measure.window.keep_warm import keep_warm_hook, rehearsal_faults
from robot_perf.measure.window.phases import phase_pass
from robot_perf.measure.window.realtime import RealTimeSettings
from robot_perf.measure.window.truth import truth
from robot_perf.measure.window.warmup import MINIMUM, settled, steady_from, warmup_limit
from robot_perf.policies.observations import Observations
from robot_perf.run.stepmap import Phase, StepMap, Word

# by period and keep-warm
_phases: WeakKeyDictionary[Runner, dict[tuple[int, str], dict[str, Any] | None]] = WeakKeyDictionary()
_CHEAP_NS = 50_000_000  # a policy slower than this is not run twenty more times to look at its state


class Session:
    """One measurement with a loaded runner. `run` fills the map and the report."""

    def __init__(
        self,
        order: WorkOrder,
        stepmap: StepMap,
        report: dict[str, Any],
        runner: Runner,
        observations: Observations,
        clock: Clock,
        stop: list[bool],
    ) -> None:
        self.order, self.loop = order, order.loop
        self.stepmap, self.report = stepmap, report
        self.runner, self.observations = runner, observations
        self.clock, self.stop = clock, stop
        if runner.spec.action is None:
            raise UsageError(
                f"{order.policy.name}: which output is the action is not known", do="Add --action POSITION."
            )
        self.watch = OutputWatch(runner.spec.action, runner.spec.outputs[runner.spec.action])
        self.before = keep_warm_hook(order.loop, runner, observations, clock, stop)

    def run(self) -> None:
        """Warm-up, truth gate, window."""
        with Collections() as collections:
            self.noise = host_noise(collections.total_ns)
            recorder = Recorder(self.stepmap, self.noise)
            step = make_step(self.runner, self.observations, recorder, self.clock, self.watch)
            step = self.prepare(recorder, step)
            if self.stop[0]:
                return
            real_time = RealTimeSettings(self.loop.real_time)
            try:
                with CollectorMode(self.loop.gc):
                    real_time.apply()
                    self.report["real_time"] = real_time.effective()
                    self._window(recorder, step, collections)
                    self._phases()
            finally:
                real_time.restore()

    def prepare(self, recorder: Recorder, step: Step) -> Step:
        """Warm-up at the control rate, then the truth gate; the policy's state is as after loading. The step for the window."""
        self.stepmap[Word.PHASE] = Phase.WARMUP
        self._warm_up(recorder, step)
        if self.observations.written_to():
            # What it made of them must be neither compared nor fed to it again.
            self.observations.renew()
            self.report["notes"].append(
                f"{self.order.policy.name} writes into its observation: each step is given a copy, which counts as harness"
            )
            step = make_step(self.runner, self.observations, recorder, self.clock, self.watch)
            self.before = keep_warm_hook(self.loop, self.runner, self.observations, self.clock, self.stop)
        self._gate()
        return step

    def _warm_up(self, recorder: Recorder, step: Any) -> None:
        limit = min(warmup_limit(self.loop.period_ns, self.loop.warmup_max), self.loop.warmup_max)
        minimum = min(max(self.loop.warmup_min, MINIMUM), limit)
        durations: list[int] = []
        steady = False

        def timed(k: int, release_ns: int, wake_ns: int) -> tuple[int, int]:
            start, end = step(k, release_ns, wake_ns)
            durations.append(end - start)
            return start, end

        before = dict(self.runner.counters())
        self.typical_ns = _CHEAP_NS
        while len(durations) < limit and not steady and not self.stop[0]:
            # Releases that an overrun skips are no calls: the minimum is of calls.
            missing = minimum - len(durations)
            chunk = min(missing if missing > 0 else 10, limit - len(durations))
            run_window(
                self.loop,
                self.clock.now() + self.loop.period_ns,
                timed,
                recorder,
                self.clock,
                self.stop,
                steps=chunk,
                before=self.before,
            )
            now = dict(self.runner.counters())
            # A compile, capture or re-tuning in the last calls means that it is not over, however steady the durations.
            steady = now == before and len(durations) >= minimum and settled(durations)
            before = now
        self.typical_ns = sorted(durations)[len(durations) // 2] if durations else _CHEAP_NS
        self.stepmap.number_warmup_rows(self.stepmap[Word.COMMITTED])
        self.stepmap[Word.WARMUP_ROWS] = self.stepmap[Word.COMMITTED]
        self.report["warmup"] = {"calls": len(durations), "settled": steady, "steady_from_call": steady_from(durations)}
        if not steady:
            self.report["notes"].append(f"warm-up did not settle within {len(durations)} calls; the run went on")

    def _gate(self) -> None:
        """Outputs against recorded ones where the recording has them; whatever happened, the state is reset after it."""
        found = truth(self.order, self.runner, self.observations)
        if found.checked:
            self.report["outputs_checked"] = found.checked
            self.report["tolerance"] = found.relative
        self.report["invalid"] += found.invalid
        # not from the facts: a device's memory is read with them, once it was loaded and once its first window is over
        reasons: dict[str, str] = dict(getattr(self.runner, "reasons", dict)())
        nothing = [why for event, why in reasons.items() if event.rsplit(".", 1)[-1] == NOTHING_COMPILED]
        self.report["invalid"] += [f"torch compiled nothing: {why}" for why in nothing]
        faults, notes = rehearsal_faults(self.loop, self.runner, self.observations)
        self.report["invalid"] += faults
        self.report["notes"] += notes
        if self.typical_ns < _CHEAP_NS:
            self.report["notes"] += state_findings(self.runner, self.observations)
        self.runner.reset()
        self.watch.nonfinite_steps, self.watch.first_nonfinite, self.watch.pending_steps = 0, -1, 0

    def _window(self, recorder: Recorder, step: Any, collections: Collections) -> None:
        events = dict(self.runner.counters())
        before = _usage()
        collected = collections.count, collections.total_ns[0]
        origin = self.clock.now() + max(self.loop.period_ns, 1_000_000)
        self.stepmap.write_report(self.report)
        self.stepmap[Word.ORIGIN] = origin
        self.stepmap[Word.PHASE] = Phase.RUNNING
        self.noise()  # what warm-up, gate, collection and memory lock cost is not the first step's
        reached = run_window(self.loop, origin, step, recorder, self.clock, self.stop, before=self.before)
        after = _usage()
        self.report["reached"] = reached
        self.report["usage"] = {key: after[key] - before[key] for key in before}
        self.report["gc"] = {
            "collections": collections.count - collected[0],
            "ns": collections.total_ns[0] - collected[1],
        }
        self._judge_truth(events)

    def _phases(self) -> None:
        """Once for each rate and cure of a loaded runner: its later blocks need no second pass."""
        if not self.order.phases:
            return
        known, key = _phases.setdefault(self.runner, {}), (self.loop.period_ns, self.loop.keep_warm)
        if key not in known and not self.stop[0]:
            known[key] = phase_pass(self.loop, self.runner, self.observations, self.clock, self.stop, self.before)
        if known.get(key) is not None:
            self.report["phases"] = known[key]

    def _judge_truth(self, events: dict[str, int]) -> None:
        invalid = self.report["invalid"]
        if self.observations.written_to():
            invalid.append(
                "the policy wrote into its observation inside the measured window and not in warm-up: what it was fed later was no observation"
            )
        reasons: dict[str, str] = dict(getattr(self.runner, "reasons", dict)())
        counted = dict(self.runner.counters())
        for name, count in counted.items():
            if count != events.get(name, 0):
                why = f": {reasons[name]}" if name in reasons else ""
                invalid.append(f"{count - events.get(name, 0)} {name} inside the measured window{why}")
        if self.watch.nonfinite_steps:
            invalid.append(
                f"the action was NaN or infinite in {self.watch.nonfinite_steps} steps, first in step {self.watch.first_nonfinite}"
            )
        if self.watch.pending_steps:
            invalid.append(
                f"device work was still pending when {self.watch.pending_steps} steps handed over their action"
            )
        facts = dict(self.runner.facts())
        for part in (facts, *facts.get("stages", {}).values()):
            if "not_captured" in part:
                invalid.append(f"CUDA graphs were asked for and none was captured: {part['not_captured']}")
        self.report["notes"] += _counted_notes(counted, reasons)
        if any(counted.values()):
            # a graph break before the window is no fault, and still the reason why compiling gained nothing
            facts |= {"counted": counted, "counted_because": reasons}
        self.report["backend_facts"] = facts


def _counted_notes(counted: Mapping[str, int], reasons: Mapping[str, str]) -> list[str]:
    """Graph breaks, skipped CUDA graphs and recompiles: why compiling may have gained nothing. The first compile needs no word."""
    said = []
    for name, count in counted.items():
        kind, because = name.rsplit(".", 1)[-1], f" ({reasons[name]})" if name in reasons else ""
        if count and kind != "captures" and (kind != "compiles" or because):
            said.append(f"{name} since it was loaded: {count}{because}")
    return said


def _usage() -> dict[str, int]:
    """Clock and CPU of process and loop thread, and how long the loop thread waited for a processor, ns."""
    waited = int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
    return {
        "window_ns": time.monotonic_ns(),
        "process_cpu_ns": time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID),
        "loop_thread_cpu_ns": time.thread_time_ns(),
        "run_queue_wait_ns": waited,
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }
