"""The loop that runs the policy: its grid, its waits, its place on the machine."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RealTime:
    """Optional settings of the loop thread, applied in the worker after warm-up and read back."""

    fifo_priority: int | None = None
    cpus: tuple[int, ...] = ()
    mlock: bool = False
    hold_cpu_dma_latency: bool = False


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """One paced run. All times are integer ns. `period_ns` 0 means back to back (a tight loop, never a deadline verdict).

    `steps` counts scheduled releases and is fixed before the run. `spin_margin_ns` belongs to the wait `hybrid`.
    `keep_warm` is what the loop does before each release so that the call is not cold (`robot_perf.measure.window.keep_warm`).
    """

    period_ns: int
    deadline_ns: int
    steps: int
    warmup_min: int = 20
    warmup_max: int = 2000
    overrun: str = "skip"  # skip | queue
    wait: str = "sleep"  # sleep | hybrid | spin
    shape: str = "absolute"  # absolute | sleep-rest | sleep-after: the loop shape a deployment ships
    spin_margin_ns: int = 200_000
    gc: str = "freeze"  # freeze | off | default
    keep_warm: str = "none"
    real_time: RealTime = field(default_factory=RealTime)
