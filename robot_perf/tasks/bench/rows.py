"""From the blocks of one backend to its row: figures, energy, the backend's own facts. No process is touched here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from robot_perf.analyze.bench.figures import point_of, with_penalty
from robot_perf.analyze.explain.phases import phases_of
from robot_perf.measure.watch.watch_device import DeviceUse
from robot_perf.run.bench_report import INVALID, OK, REFUSED, TIGHT, Block, Point, Row
from robot_perf.run.model import Run
from robot_perf.tasks.bench.request import Target
from robot_perf.units import period_ns

__all__ = ["Measured", "PointKey", "first_calls", "row_of", "with_device"]


@dataclass(frozen=True, slots=True)
class PointKey:
    """Which figures a block belongs to."""

    label: str
    rate: str
    keep_warm: str = "none"

    @property
    def period_ns(self) -> int:
        """0 for a tight loop."""
        return 0 if self.rate == TIGHT else period_ns(self.rate)

    def __str__(self) -> str:
        rate = "back to back" if self.rate == TIGHT else f"{self.rate} Hz"
        return f"{self.label} {rate}" + ("" if self.keep_warm == "none" else f", keep-warm {self.keep_warm}")


@dataclass
class Measured:
    """What was measured of one point so far; `refused` says why no more came."""

    runs: list[Run] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    uses: list[DeviceUse] = field(default_factory=list)
    refused: str = ""
    status: str = REFUSED  # of the point, where it was refused

    def add(self, run: Run, use: DeviceUse, block: Block) -> None:
        """One block, its figures computed before anything of it is kept."""
        self.runs.append(run)
        self.uses.append(use)
        self.blocks.append(block)

    def whole(self) -> None:
        """Leaves out what an interruption within `add` left behind of a block."""
        blocks = len(self.blocks)
        del self.runs[blocks:], self.uses[blocks:]


def row_of(
    policy: str,
    target: Target,
    measured: Mapping[PointKey, Measured],
    report: Mapping[str, Any],
    first: tuple[int, ...],
    idle_w: float | None,
    notes: tuple[str, ...] = (),
    *,
    together: bool = False,
) -> Row:
    """The row of a backend that loaded. `report` is its worker's; `first` its first calls, ns; `idle_w` the idle power.

    `together`: workers loaded side by side, so that what the device's free memory shrank by is nobody's own.
    """
    mine = {key: found for key, found in measured.items() if key.label == target.label}
    points = with_penalty([_point(key, found, idle_w) for key, found in mine.items()])
    # `examined` was looked up once nothing was measured any more
    facts = {**(_newest_facts(mine) or report.get("backend_facts", {})), **report.get("examined", {})}
    plain = [p for p in points if p.keep_warm == "none"]
    bad = [p for p in plain if p.status != OK]
    status = INVALID if plain and len(bad) == len(plain) else OK
    return Row(
        policy=policy,
        backend=target.label,
        name=target.name,
        options=target.options,
        status=status,
        reason=bad[0].reason if status == INVALID else "",
        facts=facts,
        cold_start_ns=report.get("cold_start", {}),
        first_calls_ns=first,
        build_ns=_whole(facts.get("build_ns")),
        device_memory_bytes=None if together and _of_the_device(facts) else _whole(facts.get("device_memory_bytes")),
        launches_per_step=facts.get("launches_per_step"),
        resident_bytes=_whole(report.get("max_rss_bytes")),
        notes=(*report.get("notes", ()), *notes),
        points=points,
    )


def _of_the_device(facts: Mapping[str, Any]) -> bool:
    return "free memory shrank" in str(facts.get("device_memory_is", ""))


def _newest_facts(mine: Mapping[PointKey, Measured]) -> dict[str, Any]:
    """The backend's facts after its newest block; empty when none came so far."""
    known = [dict(run.conditions.get("backend_facts") or {}) for found in mine.values() for run in found.runs]
    return next((facts for facts in reversed(known) if facts), {})


def _point(key: PointKey, found: Measured, idle_w: float | None) -> Point:
    if found.refused:
        status = INVALID if found.runs else found.status
        return Point(key.rate, key.period_ns, key.keep_warm, status, found.refused)
    point = point_of(key.rate, key.period_ns, key.keep_warm, found.runs, found.blocks)
    return point if point.status != OK else _with_phases(_with_energy(point, found, idle_w), found)


def _with_phases(point: Point, found: Measured) -> Point:
    """The medians of the pass with marked phases: there is one for a loaded backend and a rate, whose blocks all carry it."""
    phases = next((p for run in found.runs if (p := phases_of(run.conditions)) is not None), None)
    if phases is None:
        return point
    return replace(point, phases_p50_ns=phases.p50_ns, phase_steps=phases.steps, phases_reason=phases.reason)


def with_device(block: Block, use: DeviceUse) -> Block:
    """The block with what the device did meanwhile."""
    sm = [s.sm_hz for s in use.samples if s.sm_hz is not None]
    memory = [s.memory_hz for s in use.samples if s.memory_hz is not None]
    warmth = [s.temperature_c for s in use.samples if s.temperature_c is not None]
    return replace(
        block,
        power_w=use.power_w,
        sm_hz=(min(sm), max(sm)) if sm else None,
        memory_hz=(min(memory), max(memory)) if memory else None,
        temperature_c=max(warmth) if warmth else None,
        throttle=use.throttle,
        throttle_read=any(s.throttle_read for s in use.samples),
        idle_seen=any("idle" in s.throttle for s in use.samples),
    )


def _with_energy(point: Point, found: Measured, idle_w: float | None) -> Point:
    """Energy per step: mean power times the mean window per executed step, the idle part told apart."""
    known = [(use.power_w, b) for use, b in zip(found.uses, found.blocks, strict=True) if use.power_w is not None]
    if not known or not sum(b.n for _, b in known):
        return replace(point, power_reason=found.uses[0].power_reason if found.uses else "")
    window_s = sum(b.window_ns for _, b in known) / 1e9
    joules = sum(power * b.window_ns / 1e9 for power, b in known)
    steps = sum(b.n for _, b in known)
    power_w = joules / window_s if window_s else None
    above = None if idle_w is None else (joules - idle_w * window_s) / steps
    return replace(point, power_w=power_w, energy_per_step_j=joules / steps, energy_above_idle_j=above)


def first_calls(run: Run) -> tuple[int, ...]:
    """Execution of the first three calls of a warm-up, ns."""
    warm = run.warmup
    done = warm["end_ns"] > 0
    return tuple(int(v) for v in (warm["end_ns"] - warm["start_ns"])[done][:3])


def quick_execution(run: Run) -> int | None:
    """The execution that one step in ten stays below, ns; None where no step was executed."""
    steps = run.measured
    took = (steps["end_ns"] - steps["start_ns"])[steps["end_ns"] > 0]
    return max(1, int(np.percentile(took, 10))) if len(took) else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
