"""What the conductor asks of a worker: one JSON file. The worker reads it with the standard library alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from robot_perf.specs import LoopSpec, PolicySpec


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """One measurement. `spawned_ns` is CLOCK_MONOTONIC just before the process was started.

    `reference` is an .npz of inputs and of the outputs that a float32 CPU run gave for them: the truth gate's.
    `hold`: once loaded, wait for the conductor's GO in the step map (several policies begin together).
    """

    map_path: str
    policy: PolicySpec
    backend: str
    loop: LoopSpec
    options: dict[str, Any] = field(default_factory=dict)
    observations: str | None = None
    cast: bool = False
    seed: int = 0
    conductor_pid: int = 0
    spawned_ns: int = 0
    hold: bool = False
    reference: str | None = None
