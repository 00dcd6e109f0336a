"""Reads temperatures and clocks once a second beside a long run: thermal zones and processor clocks, and the device's meter."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_perf.measure.watch.nvml import HARMLESS, Meter
from robot_perf.run.stepmap import StepMap

EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class HostReader:
    """The files of a host's temperatures (thousandths of a degree) and processor clocks (kHz)."""

    zones: tuple[tuple[str, Path], ...]
    clocks: tuple[Path, ...]

    @classmethod
    def find(cls, root: Path = Path("/")) -> HostReader:
        """What this host shows; empty where it shows nothing (virtual machines)."""
        zones = []
        for folder in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
            name = _text(folder / "type")
            if name and (folder / "temp").exists():
                zones.append((name, folder / "temp"))
        cpus = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        return cls(tuple(zones), tuple(sorted(cpus)))

    def read(self) -> dict[str, Any]:
        """`host_c` of the hottest zone, `cpu_hz` of the slowest processor; None where not readable."""
        warm = [v / 1000 for _, path in self.zones if (v := _number(path)) is not None]
        clocks = [v * 1000 for path in self.clocks if (v := _number(path)) is not None]
        return {"host_c": max(warm) if warm else None, "cpu_hz": min(clocks) if clocks else None}


class SoakSampler:
    """A progress callback that keeps one sample a second. `samples` are JSON, times in ns of CLOCK_MONOTONIC."""

    def __init__(self, host: HostReader, meter: Meter | None, reason: str) -> None:
        self._host, self._meter, self._reason = host, meter, reason
        self._next_s = 0.0
        self.samples: list[dict[str, Any]] = []

    def look(self, _stepmap: StepMap) -> None:
        """Reads when a second has passed."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        sample = {"at_ns": time.monotonic_ns(), **self._host.read()}
        if self._meter is not None:
            seen = self._meter.sample()
            sample |= {
                "device_c": seen.temperature_c,
                "device_hz": seen.sm_hz,
                "power_w": seen.power_w,
                "throttle": [r for r in seen.throttle if r not in HARMLESS] if seen.throttle_read else None,
            }
        self.samples.append(sample)

    def conditions(self) -> dict[str, Any]:
        """The samples and where they came from, for the Run."""
        source = self._meter.source if self._meter is not None else self._reason
        zones = sorted({name for name, _ in self._host.zones})
        return {"samples": self.samples, "device": source, "zones": zones, "cpu_clocks": len(self._host.clocks)}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> float | None:
    text = _text(path)
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
