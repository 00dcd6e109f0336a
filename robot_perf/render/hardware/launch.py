"""Launch overhead, busy fraction and Little's law in words."""

from __future__ import annotations

from robot_perf.analyze.ceiling.launch import BusyFraction, InFlight, LaunchCost
from robot_perf.render.hardware.roofline import share
from robot_perf.units import format_duration

__all__ = ["busy_text", "in_flight_text", "overhead_text"]


def overhead_text(cost: LaunchCost, launch_us: float) -> str:
    """Which side sets the step, and what the GPU does meanwhile."""
    sums = (
        f"{cost.launches:,} launches x {launch_us:g} µs = {format_duration(cost.launch_ns)} against "
        f"{format_duration(cost.gpu_ns)} of GPU work"
    )
    if cost.limited_by == "launch":
        answer = f"launches set the step: the GPU idles {share(cost.idle_fraction)} of it"
        todo = "next       fuse kernels, torch.compile, or capture a CUDA graph: one launch for the step"
    else:
        answer = f"the GPU sets the step: launches hide behind {share(cost.launch_ns / cost.gpu_ns)} of it"
        todo = "next       fewer bytes or FLOP (robot-perf ceiling); fewer launches would gain nothing"
    return f"{answer}\n  {sums}\n  step at least {format_duration(cost.step_ns)}\n{todo}"


def busy_text(serial: BusyFraction, overlapped: BusyFraction) -> str:
    """Busy fraction and step rate, one after the other and overlapped."""
    return "\n".join(
        [
            f"GPU busy {share(serial.busy_fraction)}, {serial.steps_hz:.0f} steps/s",
            f"  overlapped {share(overlapped.busy_fraction)}, {overlapped.steps_hz:.0f} steps/s",
            f"  step {format_duration(serial.step_ns)} one after the other, {format_duration(overlapped.step_ns)} overlapped",
        ]
    )


def in_flight_text(result: InFlight, rate_hz: float, duration_s: float) -> str:
    """How many are in flight, and what would fill the slots."""
    head = f"{result.in_flight:g} in flight: {rate_hz:g}/s x {duration_s:g} s"
    if result.slots is None or result.filled is None or result.rate_to_fill_hz is None:
        return head
    queue = "; a queue grows without end" if result.filled > 1 else ""
    return (
        f"{head}, {share(result.filled)} of {result.slots} slots{queue}\n  {result.rate_to_fill_hz:g}/s would fill them"
    )
