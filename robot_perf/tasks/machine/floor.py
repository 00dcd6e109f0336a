"""`doctor --floor`: how late a policy that does nothing is released on this machine, as found and with every right used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robot_perf.analyze.types import Summary
from robot_perf.run.scratch import Scratch
from robot_perf.specs import RealTime

__all__ = ["RATE_HZ", "STEPS", "Floor", "measure_floor"]

RATE_HZ, STEPS = 1000, 5000


@dataclass(frozen=True, slots=True)
class Floor:
    """One measured row. `settings` are the options of `deadline` that repeat it; `refused` what the kernel did not grant."""

    settings: str
    summary: Summary
    refused: tuple[str, ...]


def measure_floor(*, rate_hz: int = RATE_HZ, steps: int = STEPS) -> tuple[Floor, ...]:
    """The `null` policy without and with real-time settings, one after the other; nothing is left on disk or changed."""
    real_time = RealTime(fifo_priority=80, mlock=True, hold_cpu_dma_latency=True)
    rows = (("as found", RealTime()), ("--fifo 80 --mlock --hold-cpu-dma-latency", real_time))
    return tuple(_measure(settings, asked, rate_hz, steps) for settings, asked in rows)


def _measure(settings: str, asked: RealTime, rate_hz: int, steps: int) -> Floor:
    from robot_perf.analyze.summary import summarize
    from robot_perf.tasks.deadline import DeadlineRequest, prepare, run_deadline
    from robot_perf.tasks.interrupted import whole

    with Scratch("floor-") as folder:
        request = DeadlineRequest(
            policy="null", rate_hz=str(rate_hz), steps=steps, real_time=asked, output=folder / "floor.parquet"
        )
        run = whole(run_deadline(prepare(request))[0])
    effective: Mapping[str, Any] = run.conditions.get("real_time") or {}
    return Floor(settings, summarize(run), tuple(effective.get("refused") or ()))
