"""Blocks: the window of a node that runs for weeks, cut into Runs of `steps` releases on one unbroken grid.

Two maps exist at a time: the one being filled and the next, made ready outside the loop. At a boundary the loop changes two
references and two header words. Where the next map isn't ready the robot goes on and those steps are counted as unrecorded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from robot_perf.measure.clock import Clock
from robot_perf.measure.loop import Sink, run_window
from robot_perf.measure.recorder import Recorder
from robot_perf.measure.step import Step
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.stepmap import Phase, StepMap, Word
from robot_perf.specs import LoopSpec


class Rows(Protocol):
    """The writer's end of a block: a Recorder, or nothing."""

    def begin(self, step: int, release_ns: int, wake_ns: int, start_ns: int) -> None:
        """Head of a row."""
        ...

    def finish(self, start_ns: int, enqueue_end_ns: int, end_ns: int, device_ns: int = ..., stages: Any = ...) -> None:
        """Rest of a row."""
        ...

    def later(self, *values: int) -> None:
        """The node's own columns."""
        ...

    def own(self, own_ns: int) -> None:
        """The harness's own work."""
        ...


class NoRows:
    """Takes rows and keeps none: the robot goes on while no map is ready. `steps` counts them."""

    def __init__(self) -> None:
        self.steps = 0

    def begin(self, step: int, release_ns: int, wake_ns: int, start_ns: int) -> None:
        """Nothing."""

    def finish(
        self, start_ns: int, enqueue_end_ns: int, end_ns: int, device_ns: int = NOT_MEASURED, stages: Any = None
    ) -> None:
        """Counts."""
        self.steps += 1

    def later(self, *values: int) -> None:
        """Nothing."""

    def own(self, own_ns: int) -> None:
        """Nothing."""


@dataclass(eq=False)
class Block:
    """One map and the step function that fills it. `number` counts from activation."""

    stepmap: StepMap
    rows: Recorder
    step: Step
    sink: Sink
    number: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


Snapshot = Callable[[], dict[str, Any]]


class BlockLoop:
    """Runs block after block until `stop[0]`. Other threads set `following` and empty `ended`; no lock is shared."""

    def __init__(
        self, loop: LoopSpec, clock: Clock, stop: list[bool], snapshot: Snapshot, idle: tuple[NoRows, Step]
    ) -> None:
        self.loop, self.clock, self.stop = loop, clock, stop
        self.snapshot = snapshot  # what is counted since the process began, taken at each boundary
        self.current: Block | None = None
        self.following: Block | None = None
        self.ended: deque[Block] = deque()
        self.idle_rows, self.idle_step = idle
        self.lost_blocks = self._untold = 0  # without a Run; of these, those that no block's facts tell of yet
        self.origin_ns = NOT_MEASURED

    def run(self, first: Block, origin_ns: int) -> None:
        """From the release at `origin_ns` until told to stop. The last block ends as it is."""
        steps, period = self.loop.steps, self.loop.period_ns
        block: Block | None = first
        number = skip = 0
        while not self.stopped():
            self.origin_ns = origin_ns
            if block is None:
                following, origin_ns = self._unrecorded(origin_ns, skip)
                block, self.following, skip = following, None, 0
                number += 1
                continue
            self._begin(block, number, origin_ns)
            k = run_window(self.loop, origin_ns, block.step, block.sink, self.clock, self.stop, steps=steps, first=skip)
            self._end(block)
            if self.stopped():
                return
            origin_ns, skip, number = origin_ns + steps * period, k - steps, number + 1
            while skip >= steps:  # one job ran longer than a whole block
                origin_ns, skip, number = origin_ns + steps * period, skip - steps, number + 1
                self.lost_blocks, self._untold = self.lost_blocks + 1, self._untold + 1
            block, self.following = self.following, None

    def stopped(self) -> bool:
        """Whether the loop was told to end."""
        return self.stop[0]

    def _begin(self, block: Block, number: int, origin_ns: int) -> None:
        block.number, block.facts = number, {"before": self.snapshot(), "lost_before": self._untold}
        self._untold = 0
        self.current = block
        block.stepmap[Word.ORIGIN] = origin_ns
        block.stepmap[Word.PHASE] = Phase.RUNNING

    def _end(self, block: Block) -> None:
        block.facts["after"] = self.snapshot()
        self.current = None
        self.ended.append(block)

    def _unrecorded(self, origin_ns: int, skip: int) -> tuple[Block | None, int]:
        """Steps without a map, 16 at a time, until one is there. Returns it and the origin of its first release."""
        period = self.loop.period_ns
        while not self.stop[0]:
            k = run_window(
                self.loop, origin_ns, self.idle_step, self.idle_rows, self.clock, self.stop, steps=skip + 16, first=skip
            )
            origin_ns, skip = origin_ns + k * period, 0
            if self.following is not None:
                return self.following, origin_ns
        return None, origin_ns


def usage_snapshot(thread: int, ident: int, gc_totals: Callable[[], tuple[int, int]]) -> Snapshot:
    """Clocks and processor time of the process and of the loop thread (kernel id `thread`, Python's `ident`), ns.

    Cheap enough for a block boundary: four clock reads. Call it in the loop thread.
    """
    clock = time.pthread_getcpuclockid(ident)

    def read() -> dict[str, Any]:
        collections, gc_ns = gc_totals()
        return {
            "window_ns": time.monotonic_ns(),
            "process_cpu_ns": time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID),
            "loop_thread_cpu_ns": time.clock_gettime_ns(clock),
            "gc_collections": collections,
            "gc_ns": gc_ns,
        }

    return read
