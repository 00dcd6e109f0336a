"""What a running measurement looks like from outside: figures of the rows so far, read from the step map."""

from __future__ import annotations

import time
from dataclasses import dataclass
from shlex import quote

import numpy as np

from robot_perf.analyze.distribution import point
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.stepmap import Phase, StepMap, Word
from robot_perf.stats.ranks import Sample

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
    """A look at a live map. Times in ns; None where there is no value.

    A release that was skipped or never finished is a miss and lies above every percentile, as in the verdict; why one has
    no value is told in `p50_reason` and `p99_reason`. `executed`, `rate_hz` and `max_ns` are of the steps that finished.
    """

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
    p50_reason: str | None = None
    p99_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A measurement whose processes are gone and whose map is still there: when it was last seen to live, and what to do."""

    last_alive_utc: str
    ago_ns: int
    do: str


def ended(stepmap: StepMap) -> Ended:
    """Of a map whose processes are gone. The newest stamp in its rows, or where that is of another boot or there is none its file's."""
    now, clock = time.time(), time.monotonic_ns()
    modified = stepmap.path.stat().st_mtime
    stamps = [v for v in _stamps(stepmap) if 0 < v <= clock]
    # writing into a map in memory leaves its file's time as it was
    of_this_boot = bool(stamps) and modified >= now - clock / 1e9
    last = now - (clock - max(stamps)) / 1e9 if of_this_boot else modified
    return Ended(
        last_alive_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last)),
        ago_ns=max(0, round((now - last) * 1e9)),
        do=f"robot-perf recover {quote(str(stepmap.path))}",
    )


def _stamps(stepmap: StepMap) -> list[int]:
    """Times of the newest row and of the step that was in flight, ns of CLOCK_MONOTONIC."""
    committed = stepmap[Word.COMMITTED]
    rows = stepmap.rows(committed - 1, committed) if committed else {}
    flying = stepmap.row_in_flight() or {}
    names = ("release_ns", "wake_ns", "start_ns", "end_ns")
    return [int(v) for n in names for v in (*rows.get(n, ()), *([flying[n]] if n in flying else ()))]


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
                # a node that withholds a stale observation leaves a row without a finish
                finished = rows["end_ns"] != NOT_MEASURED
                starts = rows["start_ns"][finished]
                self._responses.append((rows["end_ns"] - rows["release_ns"])[finished])
                if self._first_start < 0 and len(starts):
                    self._first_start = int(starts[0])
                self._last_start = int(starts[-1]) if len(starts) else self._last_start
        response = np.concatenate(self._responses) if self._responses else np.empty(0, np.int64)
        if len(self._responses) > 64:
            self._responses = [response]
        reached = stepmap.reached()
        executed = len(response)
        lost = max(0, reached - executed)
        sample = Sample.of(response, lost)
        (p50, no_p50), (p99, no_p99) = point(sample, "p50"), point(sample, "p99")
        elapsed = self._last_start - self._first_start
        origin = stepmap[Word.ORIGIN]
        return Live(
            phase=_PHASES.get(phase, "starting"),
            reached=reached,
            scheduled=steps,
            executed=executed,
            rate_hz=(executed - 1) / elapsed * 1e9 if executed > 1 and elapsed > 0 else None,
            p50_ns=p50,
            p99_ns=p99,
            max_ns=int(sample.finite[-1]) if executed else None,
            misses=int((response > deadline).sum()) + lost,
            left_ns=max(0, origin + steps * period - time.monotonic_ns()) if origin >= 0 else None,
            p50_reason=no_p50,
            p99_reason=no_p99,
        )
