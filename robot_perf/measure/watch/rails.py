"""A Jetson's power rails: INA3221 monitors under /sys/class/hwmon, read as millivolts times milliamperes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from robot_perf.measure.watch.sample import DeviceSample

# The rail that feeds the whole module, by board; where none is named so, the rails are added up.
TOTAL_RAILS = ("VDD_IN", "VIN_SYS_5V0", "POM_5V_IN")
_GPU_CLOCKS = ("17000000.gpu", "17000000.ga10b", "gpu-gpc-0")


class Rails:
    """Power rails found under a root. There is no energy counter: samples are integrated by the reader."""

    source = "INA3221 power rails"

    def __init__(self, rails: dict[str, tuple[Path, Path]], root: Path) -> None:
        self._rails, self._root = rails, root

    @classmethod
    def find(cls, root: Path = Path("/")) -> Rails | None:
        """The rails of a Jetson; None on any other machine."""
        rails = {}
        for monitor in sorted((root / "sys/class/hwmon").glob("hwmon*")):
            if _text(monitor / "name") != "ina3221":
                continue
            for label in sorted(monitor.glob("in[0-9]_label")):
                number = label.name[2]
                voltage, current = monitor / f"in{number}_input", monitor / f"curr{number}_input"
                if current.exists() and (name := _text(label)):
                    rails[name] = (voltage, current)
        return cls(rails, root) if rails else None

    def sample(self) -> DeviceSample:
        """Watts of each rail and of the module, the GPU's clock and temperature."""
        watts = {}
        for name, (voltage, current) in self._rails.items():
            mv, ma = _number(voltage), _number(current)
            if mv is not None and ma is not None:
                watts[name] = mv * ma / 1e6
        total = next((watts[name] for name in TOTAL_RAILS if name in watts), sum(watts.values()) if watts else None)
        clocks = [_number(self._root / "sys/class/devfreq" / name / "cur_freq") for name in _GPU_CLOCKS]
        hertz = next((c for c in clocks if c is not None), None)
        return DeviceSample(
            at_ns=time.monotonic_ns(),
            sm_hz=None if hertz is None else int(hertz),
            temperature_c=self._gpu_temperature(),
            power_w=total,
            rails_w=watts,
        )

    def _gpu_temperature(self) -> float | None:
        for zone in sorted((self._root / "sys/class/thermal").glob("thermal_zone*")):
            if "gpu" in (_text(zone / "type") or "").lower():
                value = _number(zone / "temp")
                return None if value is None else value / 1000
        return None

    def energy_j(self) -> float | None:
        """None: the monitors count no energy."""
        return None

    def identity(self) -> dict[str, Any]:
        """The module's name from its device tree, and the rails."""
        return {"name": _text(self._root / "proc/device-tree/model"), "rails": sorted(self._rails)}

    def close(self) -> None:
        """Nothing is held."""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return None


def _number(path: Path) -> float | None:
    text = _text(path)
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
