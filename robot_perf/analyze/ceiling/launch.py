"""Launch overhead, busy fraction and concurrency as arithmetic: what a step pays besides bytes and FLOP."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robot_perf.errors import UsageError

_LONG_NS = 1e18  # beyond this an input is a slip of the unit


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """Launches of one step against its GPU work, ns. `step_ns` is the larger: launching and running overlap."""

    launches: int
    launch_ns: float  # all of them together
    gpu_ns: float
    step_ns: float
    busy_fraction: float
    limited_by: str  # launch | GPU

    @property
    def idle_fraction(self) -> float:
        """Share of the step in which the GPU waits for the next launch."""
        return 1.0 - self.busy_fraction


def launch_cost(launches: int, cost_ns: float, gpu_ns: float) -> LaunchCost:
    """A step of `launches` kernels at `cost_ns` of host work each, and `gpu_ns` of GPU work in total.

    The host queues kernel after kernel while the GPU runs, so neither waits for the other until one is the slower:
    step >= max(launches x cost, GPU). Example: 15 kernels x 32 layers = 480 launches x 5 us = 2.4 ms.
    """
    if launches < 1 or not 0 < cost_ns < _LONG_NS or not 0 < gpu_ns < _LONG_NS:
        raise UsageError("launches, cost per launch and GPU time must be above 0, and times under 30 years")
    launch_ns = launches * cost_ns
    step_ns = max(launch_ns, gpu_ns)
    return LaunchCost(launches, launch_ns, gpu_ns, step_ns, gpu_ns / step_ns, "launch" if launch_ns > gpu_ns else "GPU")


@dataclass(frozen=True, slots=True)
class BusyFraction:
    """GPU share of a step and the step rate it gives, Hz."""

    busy_fraction: float
    step_ns: float
    steps_hz: float
    overlapped: bool


def busy_fraction(gpu_ns: float, cpu_ns: float, *, overlapped: bool = False) -> BusyFraction:
    """GPU / (GPU + CPU that isn't overlapped); overlapped, the step is the larger of the two.

    `cpu_ns` is host work on the step's path. Example: 12 ms and 28 ms give 30 % and 25 steps/s, overlapped 43 % and 36.
    """
    if not 0 < gpu_ns < _LONG_NS or not 0 <= cpu_ns < _LONG_NS:
        raise UsageError("GPU time must be above 0, CPU time at least 0, and both under 30 years")
    step_ns = max(gpu_ns, cpu_ns) if overlapped else gpu_ns + cpu_ns
    return BusyFraction(gpu_ns / step_ns, step_ns, 1e9 / step_ns, overlapped)


@dataclass(frozen=True, slots=True)
class InFlight:
    """Mean number of requests in flight (Little's law) against the slots there are."""

    in_flight: float
    slots: int | None
    filled: float | None  # share of the slots in use; above 1 a queue grows
    rate_to_fill_hz: float | None


def in_flight(rate_hz: float, duration_s: float, slots: int | None = None) -> InFlight:
    """Little's law: L = rate x duration. Example: 1/s x 10 s = 10 of 64 slots; 6.4/s fill 64."""
    if not rate_hz > 0 or not duration_s > 0 or (slots is not None and slots < 1):
        raise UsageError("rate, duration and slots must be above 0")
    if not math.isfinite(rate_hz * duration_s) or not math.isfinite(1 / duration_s):
        raise UsageError("rate and duration are out of range")
    mean = rate_hz * duration_s
    if slots is None:
        return InFlight(mean, None, None, None)
    return InFlight(mean, slots, mean / slots, slots / duration_s)
