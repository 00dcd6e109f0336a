"""One line of tegrastats as numbers. A field that the line lacks, or shows without a value, is absent: never zero."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_RAM = re.compile(r"\bRAM (\d+)/(\d+)MB")
_EMC = re.compile(r"\bEMC_FREQ (\d+)%(?:@(\d+))?")
# `45%`, `45%@1300`, `45%@[1300,1300]` (JetPack 7 on Orin), `@[1575,1575]` (Thor: clocks, no utilisation)
_GR3D = re.compile(r"\bGR3D_FREQ (?:(\d+)%)?(?:@(?:\[([\d,]*)\]|(\d+)))?")
_CPU = re.compile(r"\bCPU \[([^\]]*)\]")
_CORE = re.compile(r"(\d+)%@(\d+)|off")
_TEMPERATURE = re.compile(r"\b([A-Za-z][\w-]*)@(-?\d+(?:\.\d+)?)C\b")
_RAIL = re.compile(r"\b(VDD_\w+|VIN_\w+|POM_\w+) (\d+)(?:mW)?/(\d+)(?:mW)?")


@dataclass(frozen=True, slots=True)
class TegraSample:
    """Percentages 0-100, clocks in Hz, temperatures in C, power in W (now, average)."""

    ram_used_bytes: int | None = None
    ram_total_bytes: int | None = None
    emc_percent: float | None = None
    emc_hz: float | None = None
    gpu_percent: float | None = None
    gpu_hz: tuple[float, ...] = ()
    cpu_percent: tuple[float | None, ...] = ()  # None: core switched off
    temperatures_c: dict[str, float] = field(default_factory=dict)
    rails_w: dict[str, tuple[float, float]] = field(default_factory=dict)


def parse_line(line: str) -> TegraSample:
    """The sample of one line. EMC_FREQ % is the cheapest independent reading of bandwidth use (all clients
    together).
    """
    ram, emc, gr3d, cpu = _RAM.search(line), _EMC.search(line), _GR3D.search(line), _CPU.search(line)
    clocks = [c for c in (gr3d[2] or gr3d[3] or "").split(",") if c] if gr3d else []
    return TegraSample(
        ram_used_bytes=int(ram[1]) * 2**20 if ram else None,
        ram_total_bytes=int(ram[2]) * 2**20 if ram else None,
        emc_percent=float(emc[1]) if emc else None,
        emc_hz=float(emc[2]) * 1e6 if emc and emc[2] else None,
        gpu_percent=float(gr3d[1]) if gr3d and gr3d[1] else None,
        gpu_hz=tuple(float(c) * 1e6 for c in clocks),
        cpu_percent=tuple(float(c[1]) if c[1] else None for c in _CORE.finditer(cpu[1])) if cpu else (),
        temperatures_c={m[1]: float(m[2]) for m in _TEMPERATURE.finditer(line)},
        rails_w={m[1]: (int(m[2]) / 1000, int(m[3]) / 1000) for m in _RAIL.finditer(line)},
    )
