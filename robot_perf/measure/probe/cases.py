"""How a probe is timed: cases of known work, warm, past the cache, interleaved.

A probe is an "achievable" line beside the spec, never a bound. Every reading states its kind: a copy, a read, a write
and a weight-streaming matrix-vector product reach different shares of the same memory, so no two of them may be mixed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from robot_perf.errors import UsageError
from robot_perf.specs.device import ProbeReading

# A working set must be this many times the last-level cache, or the cache would serve part of it.
CACHE_FACTOR = 4
WARM_S = 0.4  # long enough for clocks to rise: a cold compute probe read 28 TOPS where the warm one read 61
ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to time. `run` executes it `calls` times and returns the ns they took together, device work
    included.
    """

    kind: str
    unit: str
    work_per_call: float  # bytes or FLOP
    working_set_bytes: int
    run: Callable[[int], float]
    dtype: str = ""
    detail: str = ""


@dataclass(slots=True)
class Timed:
    """A case while it is measured: calls per timed batch and the ns per call of each batch."""

    case: Case
    calls: int = 1
    ns_per_call: list[float] = field(default_factory=list)


def measure(cases: Sequence[Case], seconds: float) -> tuple[ProbeReading, ...]:
    """Times the cases in turn, the order reversed from round to round, so that a drift of clocks falls on all alike.

    Every case is warmed first and its batch sized from the warm calls; the readings are medians over the rounds.
    """
    if not cases:
        return ()
    batch_ns = seconds * 1e9 / (ROUNDS * len(cases))
    timed = [Timed(case, _warm(case, batch_ns)) for case in cases]
    for round_number in range(ROUNDS):
        for item in timed if round_number % 2 == 0 else reversed(timed):
            item.ns_per_call.append(item.case.run(item.calls) / item.calls)
    return tuple(_reading(item) for item in timed)


def _warm(case: Case, batch_ns: float) -> int:
    """Runs the case until its clocks have risen; the calls that fill a batch at the warm rate."""
    case.run(1)  # library handles, code loading, first touch of the output
    end = time.perf_counter() + WARM_S
    per_call = case.run(1)
    while time.perf_counter() < end:
        calls = max(1, int(5e7 / max(per_call, 1.0)))
        per_call = case.run(calls) / calls
    return max(1, round(batch_ns / max(per_call, 1.0)))


def _reading(item: Timed) -> ProbeReading:
    case, ns = item.case, sorted(item.ns_per_call)
    return ProbeReading(
        kind=case.kind,
        unit=case.unit,
        median=case.work_per_call / statistics.median(ns) * 1e9,
        low=case.work_per_call / ns[-1] * 1e9,
        high=case.work_per_call / ns[0] * 1e9,
        repeats=len(ns),
        working_set_bytes=case.working_set_bytes,
        dtype=case.dtype,
        detail=f"{case.detail}{'; ' if case.detail else ''}{item.calls} calls a batch",
    )


def working_set(cache_bytes: int | None, free_bytes: int, *, wanted: int) -> int:
    """Bytes of one buffer: past the cache by CACHE_FACTOR, at most an eighth of the free memory.

    Raises UsageError where the memory does not suffice: a smaller set would measure the cache.
    """
    least = CACHE_FACTOR * (cache_bytes or 64 * 2**20)
    most = free_bytes // 8
    if most < least:
        raise UsageError(
            f"too little free memory for a probe: {free_bytes / 2**30:.1f} GiB",
            why=f"One buffer must hold {least / 2**20:.0f} MiB, {CACHE_FACTOR} times the last-level cache.",
            do="Free memory and try again.",
        )
    return max(least, min(wanted, most)) // 4096 * 4096
