"""Where the response time of a device policy goes: a pass of its own after the window, with events between the phases.

The marks cost a few µs, so the window carries none of them; the pass runs at the window's own rate, since spaced-out copies and
kernels take longer than crowded ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robot_perf.backends.protocol import PhasedRunner, Runner, StagedRunner
from robot_perf.errors import RobotPerfError
from robot_perf.measure.clock import Clock
from robot_perf.measure.loop import run_window
from robot_perf.measure.step import PHASE_COLUMNS, Observations, phase_step
from robot_perf.specs import LoopSpec

STEPS = 50
DROPPED = 5  # the first marked steps: another graph, cold events
LONGEST_NS = 3_000_000_000


class _NoSink:
    def own(self, own_ns: int) -> None:
        """The pass keeps no rows."""


def phase_pass(
    loop: LoopSpec,
    runner: Runner,
    observations: Observations,
    clock: Clock,
    stop: list[bool],
    before: Callable[[int], bool] | None = None,
) -> dict[str, Any] | None:
    """`{"steps", "columns": {name: [ns, …]}, "note"}` of a runner that has phases; None for one that has not.

    Columns: `host_prepare_ns`, `launch_ns`, `wait_ns`, `host_finish_ns` by the host's clock; `h2d_ns`, `policy_ns`, `d2h_ns` by
    adjacent event pairs on the device. A runner that can't be marked gives `{"reason": …}`, and so does a step so long that
    only unsteady ones fit the pass. `before` keeps warm, as in the window. The state is reset after the pass.
    """
    if isinstance(runner, StagedRunner) and str(runner.facts().get("device", "cpu")) != "cpu":
        return {"reason": "a pipeline has no marks: its stages are stamped one by one on the host"}
    if not isinstance(runner, PhasedRunner):
        return None
    steps = STEPS + DROPPED
    if loop.period_ns:
        steps = max(DROPPED + 5, min(steps, LONGEST_NS // loop.period_ns))
    rows: list[tuple[int, ...]] = []
    try:
        runner.mark_phases(True)
        step = phase_step(runner, observations, clock, rows)
        origin = clock.now() + max(loop.period_ns, 1_000_000)
        run_window(loop, origin, step, _NoSink(), clock, stop, steps=steps, before=before)
        runner.mark_phases(False)
    except RobotPerfError as error:
        return {"reason": str(error)}
    finally:
        runner.reset()
    kept = rows[DROPPED:]
    if not kept:
        why = "it was ended" if stop[0] else "a step lasts many periods"
        return {"reason": f"{len(rows)} steps in {steps} releases, and the first {DROPPED} are left out: {why}"}
    return {
        "steps": len(kept),
        "columns": {name: [row[i] for row in kept] for i, name in enumerate(PHASE_COLUMNS)},
        "note": "a pass of its own after the window, at its rate, with events between the phases",
    }
