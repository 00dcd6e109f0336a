"""What a running measurement looks like from outside: figures of the rows so far, read from the step map."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from robot_perf.run.stepmap import Phase, StepMap, Word

_PHASES: dict[int, str] = {
    Phase.CREATED: "starting",
    Phase.LOADING: "loading",
    Phase.LOADED: "loaded",
    Phase.WARMUP: "warm-up",
    Phase.RUNNING: "measuring",
    Phase.DONE: "done",
    Phase.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class Live:
    """A look at a live map. Times in ns; None before there is a step. Percentiles are of executed steps so far."""

    phase: str
    reached: int
    scheduled: int
    executed: int
    rate_hz: float | None
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    misses: int
    left_ns: int | None


class LiveView:
    """Reads only the rows that are new since the last look."""

    def __init__(self) -> None:
        self._read = 0
        self._responses: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        self._first_start = -1
        self._last_start = -1

    def look(self, stepmap: StepMap) -> Live:
        """Figures of the window so far."""
        loop = stepmap.request["loop"]
        steps, period, deadline = int(loop["steps"]), int(loop["period_ns"]), int(loop["deadline_ns"])
        phase = stepmap[Word.PHASE]
        warmup = stepmap[Word.WARMUP_ROWS]
        if warmup >= 0 and stepmap[Word.ORIGIN] >= 0:
            start = max(self._read, warmup)
            rows = stepmap.rows(start)
            self._read = start + len(rows["step"])
            if len(rows["step"]):
                self._responses.append(rows["end_ns"] - rows["release_ns"])
                if self._first_start < 0:
                    self._first_start = int(rows["start_ns"][0])
                self._last_start = int(rows["start_ns"][-1])
        response = np.concatenate(self._responses) if self._responses else np.empty(0, np.int64)
        if len(self._responses) > 64:
            self._responses = [response]
        reached = stepmap.reached()
        executed = len(response)
        ordered = np.sort(response)
        elapsed = self._last_start - self._first_start
        origin = stepmap[Word.ORIGIN]
        return Live(
            phase=_PHASES.get(phase, "starting"),
            reached=reached,
            scheduled=steps,
            executed=executed,
            rate_hz=(executed - 1) / elapsed * 1e9 if executed > 1 and elapsed > 0 else None,
            p50_ns=int(ordered[-(-executed // 2) - 1]) if executed else None,
            p99_ns=int(ordered[-(-executed * 99 // 100) - 1]) if executed else None,
            max_ns=int(ordered[-1]) if executed else None,
            misses=int((response > deadline).sum()) + max(0, reached - executed),
            left_ns=max(0, origin + steps * period - time.monotonic_ns()) if origin >= 0 else None,
        )
