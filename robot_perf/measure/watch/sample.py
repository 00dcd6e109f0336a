"""What every meter of a device answers with."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One look at a device. None = not readable there. Clocks in Hz, power in W, temperature in °C."""

    at_ns: int  # CLOCK_MONOTONIC
    sm_hz: int | None = None
    memory_hz: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    throttle_read: bool = False  # whether there are reasons to read: none found is not none readable
    rails_w: dict[str, float] = field(default_factory=dict)
