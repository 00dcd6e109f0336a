"""The paced loop: an absolute release grid, what to do after an overrun, and the loop shapes that deployments ship.

Releases are origin + k * period, by multiplication, in integer ns. The grid is never re-anchored at "now": that would turn
each late wake-up into a lasting rate error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from robot_perf.measure.clock import Clock
from robot_perf.measure.step import Step
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.specs import LoopSpec


class Sink(Protocol):
    """The part of the recorder that the loop itself needs."""

    def own(self, own_ns: int) -> None:
        """The harness's own work around the last row."""
        ...


def run_window(
    loop: LoopSpec,
    origin_ns: int,
    step: Step,
    sink: Sink,
    clock: Clock,
    stop: list[bool],
    *,
    steps: int | None = None,
    before: Callable[[int], bool] | None = None,
    first: int = 0,
) -> int:
    """Runs the releases 0 … steps-1 and returns the grid index that would come next. Stops early when `stop[0]` is set.

    `first`, on the absolute shape alone, is the release to begin with: those before it were skipped by a job of the window before.

    `before(release_ns)` runs in the idle time before each release that the loop waits for, on the absolute shape alone; it
    returns True when it has waited to the release itself (keep-warm). Own work of a period: from the wake-up to the policy
    call, and from the action to being ready for the next wait; keep-warm is no part of it.
    """
    last = loop.steps if steps is None else steps
    if loop.period_ns == 0:
        return _tight(last, step, sink, clock, stop)
    if loop.shape != "absolute":
        return _relative(loop, last, origin_ns, step, sink, clock, stop)
    period, skip = loop.period_ns, loop.overrun == "skip"
    now, wait, own = clock.now, clock.wait, sink.own
    k = first
    ready = now()
    while k < last:
        release = origin_ns + k * period
        if ready < release:
            wake = base = wait(release) if before is None or not before(release) else now()
        else:
            wake, base = NOT_MEASURED, ready
        if stop[0]:
            break
        start, end = step(k, release, wake)
        k += 1
        if skip:
            # The first grid point at or after the finish: a finish exactly on a grid point skips nothing.
            k = max(k, -((origin_ns - end) // period))
        ready = now()
        own(start - base + ready - end)
    return k


def _tight(last: int, step: Step, sink: Sink, clock: Clock, stop: list[bool]) -> int:
    """Back to back: each release is the moment the loop is ready."""
    now, own = clock.now, sink.own
    k = 0
    ready = now()
    while k < last and not stop[0]:
        base = ready
        start, end = step(k, ready, NOT_MEASURED)
        k += 1
        ready = now()
        own(start - base + ready - end)
    return k


def _relative(loop: LoopSpec, last: int, origin_ns: int, step: Step, sink: Sink, clock: Clock, stop: list[bool]) -> int:
    """`sleep-after` sleeps a whole period after the work, `sleep-rest` what is left of it: neither keeps the grid.

    The rows keep the grid's release, so the growing response is the drift that such a loop has on a robot.
    """
    period, after = loop.period_ns, loop.shape == "sleep-after"
    now, wait, own = clock.now, clock.wait, sink.own
    k = 0
    target = origin_ns
    ready = now()
    while k < last:
        if ready < target:
            wake = base = wait(target)
        else:
            wake, base = NOT_MEASURED, ready
        if stop[0]:
            break
        start, end = step(k, origin_ns + k * period, wake)
        k += 1
        target = end + period if after else base + period
        ready = now()
        own(start - base + ready - end)
    return k
