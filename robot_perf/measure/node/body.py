"""The node's loop: loads, warms up, runs blocks, frees; each method in the one thread that owns the policy.

What differs from the command line's worker is where observations come from and where the action goes. The step between them is
`robot_perf.measure.step`, the grid `robot_perf.measure.loop`, the rows a step map.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from robot_perf.backends.protocol import Runner, StagedRunner
from robot_perf.measure.clock import MonotonicClock
from robot_perf.measure.node.blocks import Block, BlockLoop, NoRows, Rows, usage_snapshot
from robot_perf.measure.node.mailbox import STALE, WITHHELD, Array, LiveObservations
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.processes import worker_parts as parts
from robot_perf.measure.recorder import Recorder, host_noise
from robot_perf.measure.session import Session
from robot_perf.measure.step import OutputWatch, Step, make_step
from robot_perf.measure.window.collector import Collections, CollectorMode
from robot_perf.measure.window.realtime import RealTimeSettings
from robot_perf.policies.observations import Observations, open_observations
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.stepmap import Phase, StepMap, Word, process_born
from robot_perf.specs import to_json

_MADV_POPULATE_WRITE = 23  # Linux 5.14
_FIRST_BYTES = 3 << 20

Publish = Callable[[Array, int], bool]  # action, stamp of its observation (ns of ROS time, -1) -> whether it left
Poll = Callable[[], None]


class Feed(Protocol):
    """Observations while active: live ones from topics, or the seeded ones that the command line uses."""

    def reader(self) -> Callable[[int], tuple[Array, ...]]:
        """As `robot_perf.measure.step.Observations`."""
        ...


class ActionWatch(OutputWatch):
    """Also keeps the action of the step, and whether it may leave the node: one that is not finite is counted and may not."""

    def __init__(self, action: int, tensor: Any) -> None:
        super().__init__(action, tensor)
        self.latest: Any = None
        self.usable = False
        count = self.check

        def check(k: int, outputs: Any) -> None:
            before = self.nonfinite_steps
            count(k, outputs)
            self.latest = outputs[self.action]
            self.usable = self.nonfinite_steps == before

        self.check = check


class NodeBody:
    """One configured policy. `order` is what the keeper prepared; `stop[0]` ends the loop at its next release."""

    def __init__(self, order: WorkOrder, *, entered_ns: int) -> None:
        self.order, self.loop = order, order.loop
        self.stop = [False]
        self.entered_ns = entered_ns
        self.report: dict[str, Any] = {"invalid": [], "notes": [], "cold_start": {"process_ns": NOT_MEASURED}}
        self.runner: Runner | None = None
        self.live: LiveObservations | None = None
        self.failure: BaseException | None = None
        self.stopped_stale = False
        self.blocks: BlockLoop | None = None
        self.collections = Collections()
        self._stamping = False
        self._poll: Poll | None = None

    def load(self) -> None:
        """The runner, with its cold-start rows. Raises RobotPerfError."""
        before = parts.thread_count()
        self.runner = parts.load_runner(self.order, self.report, self.entered_ns)
        self.report["threads"] = {"before": before, "after": parts.thread_count()}
        self.synthetic: Observations = open_observations(
            self.runner.spec, seed=self.order.seed, path=self.order.observations, cast=self.order.cast
        )
        self.clock = MonotonicClock(self.loop.wait, spin_margin_ns=self.loop.spin_margin_ns, stop=self.stop)
        self.report["timer_granularity_ns"] = parts.timer_granularity(self.loop, self.stop)
        self.report["observations"] = {"source": self.synthetic.source, "steps": self.synthetic.steps}
        self.report["notes"] += [*self.runner.spec.notes, *self.synthetic.notes]
        self.report["policy"] = to_json(self.runner.spec)
        self.report["backend_facts"] = dict(self.runner.facts())
        self.collections.__enter__()
        self._stamping = True
        self.noise = host_noise(self.collections.total_ns)
        self.thread_id = threading.get_native_id()
        assert self.runner.spec.action is not None
        self.watch = ActionWatch(self.runner.spec.action, self.runner.spec.outputs[self.runner.spec.action])

    def attach(self, path: Path) -> StepMap:
        """A map that the keeper made, with what is known of this process written into it. Callable from any thread."""
        stepmap = StepMap.open(path, writable=True)
        with contextlib.ExitStack() as opened:
            opened.callback(stepmap.close)
            stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN] = os.getpid(), process_born(os.getpid())
            stepmap.write_report(self.report)
            _prefault(stepmap)
            stepmap[Word.PHASE] = Phase.LOADED
            opened.pop_all()
        return stepmap

    def warm_up(self, stepmap: StepMap) -> None:
        """At the control rate on the desk's observations, into the first map; nothing is published."""
        assert self.runner is not None
        session = Session(self.order, stepmap, self.report, self.runner, self.synthetic, self.clock, self.stop)
        recorder = Recorder(stepmap, self.noise)
        session.prepare(recorder, make_step(self.runner, self.synthetic, recorder, self.clock, session.watch))
        stepmap.write_report(self.report)

    def make_block(self, stepmap: StepMap, feed: Feed, edge: Edge) -> Block:
        """A map made ready for the loop. Callable from any thread."""
        stepmap[Word.WARMUP_ROWS] = max(stepmap[Word.WARMUP_ROWS], 0)
        rows = Recorder(stepmap, self.noise)
        sink = _Sink(rows) if edge.poll is not None else rows
        return Block(stepmap, rows, self._step(rows, feed, edge, sink), sink)

    def _step(self, rows: Rows, feed: Feed, edge: Edge, sink: Any = None) -> Step:
        """Poll, look at the age, step, publish, note. Publishing is own work after the step's end, with a stamp of its own."""
        assert self.runner is not None
        inner = make_step(self.runner, feed, rows, self.clock, self.watch)  # type: ignore[arg-type]
        live = feed if isinstance(feed, LiveObservations) else None
        now, watch, later, publish, poll = self.clock.now, self.watch, rows.later, edge.publish, edge.poll
        mode, stages, stop = edge.on_stale, self._no_stages(), self.stop

        def step(k: int, release_ns: int, wake_ns: int) -> tuple[int, int]:
            if poll is not None:
                poll()
                if stop[0]:  # a service that the poll served asked the loop to end: no step, no row
                    if sink is not None:
                        sink.muted = True
                    moment = now()
                    return moment, moment
            flags = 0
            if live is not None:
                moment = now()
                flags = live.look(moment)
                if flags & STALE and mode != "hold":
                    # No call: the release has no finish, so it counts as a miss, and the row says why.
                    rows.begin(k, release_ns, wake_ns, moment)
                    rows.finish(moment, NOT_MEASURED, NOT_MEASURED, NOT_MEASURED, stages)
                    later(live.oldest_ns, NOT_MEASURED, live.header_age_ns, flags)
                    if mode == "stop":
                        self.stopped_stale = self.stop[0] = True
                    return moment, moment
            start, end = inner(k, release_ns, wake_ns)
            if not watch.usable:
                later(live.oldest_ns if live else NOT_MEASURED, NOT_MEASURED, NOT_MEASURED, flags | WITHHELD)
                return start, end
            action = watch.latest
            if live is None:
                published = now() if publish(action, NOT_MEASURED) else NOT_MEASURED
                later(NOT_MEASURED, published, NOT_MEASURED, flags)
                return start, end
            published = now() if publish(action, live.stamp_ns) else NOT_MEASURED
            later(live.oldest_ns, published, live.header_age_ns, flags)
            live.remember(action)
            return start, end

        return step

    def _no_stages(self) -> list[int] | None:
        return [NOT_MEASURED] * len(self.runner.stage_names) if isinstance(self.runner, StagedRunner) else None

    def prepare_activation(self, feed: Feed, edge: Edge) -> None:
        """Fresh counts and state before `run`."""
        self.stop[0], self.failure, self.stopped_stale = False, None, False
        self._poll = edge.poll
        if isinstance(feed, LiveObservations):
            feed.forget()
        idle = NoRows()
        snapshot = usage_snapshot(self.thread_id, threading.main_thread().ident or 0, self._gc_totals)
        self.blocks = BlockLoop(self.loop, self.clock, self.stop, snapshot, (idle, self._step(idle, feed, edge)))

    def _gc_totals(self) -> tuple[int, int]:
        return self.collections.count, self.collections.total_ns[0]

    def run(self, first: Block, feed: Feed) -> None:
        """The active loop. Whatever the policy raises ends it and is kept in `failure`."""
        assert self.runner is not None and self.blocks is not None
        real_time = RealTimeSettings(self.loop.real_time)
        blocks = self.blocks
        try:
            self.runner.reset()
            self._wait_for_first(feed)
            if self.stop[0]:
                return
            with CollectorMode(self.loop.gc):
                real_time.apply()
                self.report["real_time"] = real_time.effective()
                blocks.snapshot = self._snapshot()
                blocks.run(first, self.clock.now() + max(self.loop.period_ns, 1_000_000))
        except BaseException as error:  # noqa: BLE001 - a policy may raise anything; the executor's thread turns it into a transition
            self.failure = error
            if blocks.current is not None:
                blocks.current.facts["failure"] = parts.failure_report(blocks.current.stepmap, error)
                blocks.current.facts["after"] = blocks.snapshot()
                blocks.ended.append(blocks.current)
                blocks.current = None
        finally:
            real_time.restore()

    def _wait_for_first(self, feed: Feed) -> None:
        if isinstance(feed, LiveObservations):
            while feed.missing and not self.stop[0]:
                if self._poll is not None:
                    self._poll()
                time.sleep(0.002)

    def _snapshot(self) -> Callable[[], dict[str, Any]]:
        """Counts at a block's boundary, in the loop thread."""
        usage = usage_snapshot(self.thread_id, threading.get_ident(), self._gc_totals)
        runner, watch = self.runner, self.watch
        assert runner is not None

        def read() -> dict[str, Any]:
            facts = usage()
            facts["events"] = dict(runner.counters())
            facts["nonfinite"], facts["first_nonfinite"], facts["pending"] = (
                watch.nonfinite_steps,
                watch.first_nonfinite,
                watch.pending_steps,
            )
            watch.first_nonfinite = -1
            return facts

        return read

    def close(self) -> None:
        """Frees the policy and what it holds on a device. In the loop thread."""
        runner, self.runner = self.runner, None
        self.failure = None  # its frames hold what the policy worked with
        try:
            if runner is not None:
                runner.close()
        finally:
            if self._stamping:
                self.collections.__exit__(None, None, None)
                self._stamping = False


class _Sink:
    """Where the loop leaves its own work, until no step was made."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.muted = rows, False

    def own(self, own_ns: int) -> None:
        """The harness's own work around the last row."""
        if not self.muted:
            self.rows.own(own_ns)


class Edge:
    """What the ROS side gives the loop: publish, poll (polled place alone) and what a stale observation does."""

    def __init__(self, publish: Publish, *, poll: Poll | None = None, on_stale: str = "hold") -> None:
        self.publish, self.poll, self.on_stale = publish, poll, on_stale


def _prefault(stepmap: StepMap) -> None:
    """Maps the pages that a new Recorder touches, while the loop may run.

    Through ctypes, which lets go of the interpreter lock; mmap.madvise keeps it, and made this 0.55 ms instead of 0.19 ms under the
    lock (medians of 30). A kernel before 5.14 refuses: then the Recorder does it, as on the command line.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    first = ctypes.c_char.from_buffer(stepmap.memory)
    madvise(ctypes.addressof(first), min(len(stepmap.memory), stepmap.rows_at + _FIRST_BYTES), _MADV_POPULATE_WRITE)
