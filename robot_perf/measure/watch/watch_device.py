"""Watches a device while a block runs: the energy at both ends of the window, samples once a second between them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from robot_perf.measure.watch.nvml import HARMLESS, Meter
from robot_perf.measure.watch.sample import DeviceSample
from robot_perf.run.stepmap import Phase, StepMap, Word

_EVERY_S = 1.0
SHORTEST_NS = 500_000_000  # the counters move every 20 to 100 ms: a shorter window has no energy that can be told


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a device did in one window. `power_w` is the mean over the part of the window that was seen."""

    power_w: float | None
    power_reason: str  # why there is no power
    samples: tuple[DeviceSample, ...]

    @property
    def throttle(self) -> tuple[str, ...]:
        """Every reason that was seen and means a lowered clock, in the order seen."""
        return tuple(dict.fromkeys(r for s in self.samples for r in s.throttle if r not in HARMLESS))


class DeviceWatch:
    """`look` belongs to the conductor's polling; `use` ends the watch. Without a meter every answer is the reason.

    What the worker does after its last release (the pass with marked phases) is no part of the window.
    """

    def __init__(self, meter: Meter | None, reason: str) -> None:
        self._meter, self._reason = meter, reason
        self._samples: list[DeviceSample] = []
        self._energy: list[tuple[int, float]] = []
        self._next_s = 0.0
        self._over = False

    def look(self, stepmap: StepMap) -> None:
        """Reads when the window begins, every second after, and when its last release is over; nothing outside the window."""
        if self._meter is None or self._over or stepmap[Word.PHASE] != Phase.RUNNING:
            return
        if stepmap.reached() >= stepmap.request["loop"]["steps"]:
            self._over = True
            if self._samples:
                self._read()
            return
        if time.monotonic() >= self._next_s:
            self._read()
            self._next_s = time.monotonic() + _EVERY_S

    def _read(self) -> None:
        assert self._meter is not None
        energy = self._meter.energy_j()
        if energy is not None:
            self._energy.append((time.monotonic_ns(), energy))
        self._samples.append(self._meter.sample())

    def use(self) -> DeviceUse:
        """The mean power: from the energy counter where there is one, else from samples of power."""
        if self._meter is None:
            return DeviceUse(None, self._reason, ())
        if self._samples and not self._over:  # it ended early, or before a look saw its end
            self._read()
        samples = tuple(self._samples)
        power: float | None = None
        reason = ""
        if len(samples) < 2 or samples[-1].at_ns - samples[0].at_ns < SHORTEST_NS:
            reason = f"the window is shorter than {SHORTEST_NS / 1e9:g} s: too short for the device's counters"
        elif len(self._energy) > 1:
            (t0, e0), (t1, e1) = self._energy[0], self._energy[-1]
            power = (e1 - e0) / ((t1 - t0) / 1e9)
        else:
            watts = [s.power_w for s in samples if s.power_w is not None]
            power = sum(watts) / len(watts) if watts else None
            reason = "" if watts else f"{self._meter.source} reads no power here"
        return DeviceUse(power, reason, samples)


def idle_power(meter: Meter | None, seconds: float = 2.0) -> float | None:
    """Mean power while nothing is asked of the device, W: what a step's energy is held against."""
    if meter is None:
        return None
    begin, first = time.monotonic(), meter.energy_j()
    watts = []
    while time.monotonic() - begin < seconds:
        if (power := meter.sample().power_w) is not None:
            watts.append(power)
        time.sleep(min(0.5, seconds))
    last = meter.energy_j()
    if first is not None and last is not None:
        return (last - first) / (time.monotonic() - begin)
    return sum(watts) / len(watts) if watts else None
