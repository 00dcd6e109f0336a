"""`selftest`: policies whose duration, stalls and faults are known are measured, and the readings are checked.

It answers whether this installation on this machine can be believed before it is pointed at a real policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robot_perf.analyze.verdict import judge
from robot_perf.run.model import Run
from robot_perf.run.scratch import Scratch
from robot_perf.tasks.deadline import DeadlineRequest, prepare, run_deadline
from robot_perf.tasks.interrupted import whole
from robot_perf.units import US, format_us

SPIN_US = (50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
SPIN_US_QUICK = (50, 1000, 5000)


@dataclass(frozen=True)
class Reading:
    """One check: what was expected, what was read, and whether it holds. `n` is the number of steps behind it."""

    name: str
    expected: str
    read: str
    n: int
    holds: bool


def selftest(*, quick: bool = False, on_reading: Callable[[Reading], None] | None = None) -> list[Reading]:
    """All readings, in order."""
    readings: list[Reading] = []

    def add(reading: Reading) -> None:
        readings.append(reading)
        if on_reading is not None:
            on_reading(reading)

    with Scratch("selftest-") as folder:
        add(_harness(folder, 500 if quick else 5000))
        for microseconds in SPIN_US_QUICK if quick else SPIN_US:
            add(_known_duration(folder, microseconds, 100 if quick else 400))
        add(_stalls(folder, 300 if quick else 3000))
        add(_nan(folder))
    return readings


def _run(folder: Path, policy: str, rate: str, steps: int, **options: object) -> Run:
    request = DeadlineRequest(
        policy=policy,
        rate_hz=rate,
        steps=steps,
        policy_options=dict(options),
        output=folder / "run.parquet",
        force=True,
    )
    return whole(run_deadline(prepare(request))[0])


def _harness(folder: Path, steps: int) -> Reading:
    run = _run(folder, "null", "1000", steps)
    own = run.measured["own_ns"]
    p50, p99 = (int(np.quantile(own, q, method="inverted_cdf")) for q in (0.5, 0.99))
    return Reading(
        "null policy at 1 kHz: the harness's own work per period",
        "p50 at most 50 µs",
        f"p50 {format_us(p50)} µs, p99 {format_us(p99)} µs",
        len(own),
        p50 <= 50 * US,
    )


def _known_duration(folder: Path, microseconds: int, steps: int) -> Reading:
    period_us = max(2000, 2 * microseconds)
    run = _run(folder, f"spin:{microseconds}", f"{1e6 / period_us:g}", steps)
    execution = run.measured["end_ns"] - run.measured["start_ns"]
    p50 = int(np.quantile(execution, 0.5, method="inverted_cdf"))
    tolerance = max(5 * US, microseconds * US // 100)
    return Reading(
        f"spin:{microseconds}",
        f"p50 {microseconds} µs ± {tolerance / US:g}",
        f"p50 {p50 / US:.1f} µs",
        len(execution),
        abs(p50 - microseconds * US) <= tolerance,
    )


def _stalls(folder: Path, steps: int) -> Reading:
    # 1 % of the calls take 1.5 periods: each is late and covers one release, two misses an overrun. The policy counts its
    # calls from loading on, so that the calls of the window that stall follow from the number of warm-up calls alone.
    every = 100
    run = _run(folder, "robot_perf.policies.scripted:stalls", "200", steps, base_us=100, every=every, stall_us=7500)
    verdict = judge(run)
    warmup, executed = len(run.warmup["step"]), len(run.measured["step"])
    stalled = [call - warmup for call in range(warmup, warmup + executed) if call % every == 0]
    expected = sum(2 if run.measured["step"][row] + 1 < steps else 1 for row in stalled)
    return Reading(
        "1 % of the steps stalled for 1.5 periods",
        f"{expected} misses",
        f"{verdict.misses} misses ({verdict.late} late, {verdict.skipped} skipped)",
        verdict.releases,
        verdict.misses == expected,
    )


def _nan(folder: Path) -> Reading:
    run = _run(folder, "robot_perf.policies.scripted:not_finite", "200", 50, at=30)
    verdict = judge(run)
    return Reading("an action that turns NaN", "INVALID", verdict.status, verdict.releases, verdict.status == "INVALID")
