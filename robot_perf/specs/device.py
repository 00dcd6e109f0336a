"""A device of the table: what its vendor says it can do, each number with its source."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device and memory size. None is unknown, never zero. Peaks are dense, in FLOP/s (or OP/s) by dtype name."""

    name: str
    vendor: str = ""
    peaks: dict[str, float] = field(default_factory=dict)
    bandwidth_bytes_s: float | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    sources: dict[str, str] = field(default_factory=dict)
