"""A device of the table: what its vendor says it can do, each number with its source; and what a probe of it
reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PowerMode:
    """One nvpmodel mode of a Jetson module: bandwidth belongs to module, flash and mode. None is unknown or not
    capped.
    """

    name: str
    bandwidth_bytes_s: float
    gpu_hz: float
    emc_hz: float
    bus_bits: int
    mode_id: int
    default: bool = False
    power_w: float | None = None
    cpu_cores: int | None = None
    gpu_tpc: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device and memory size. None is unknown, never zero. Peaks are dense, in FLOP/s (or OP/s) by dtype name.

    `memory_gb` is the marketing size, part of the key; `memory_bytes` is that number times 1e9. `not_used` holds
    figures that vendors print and that bound nothing here (2:4-sparse, accelerators beside the GPU), FLOP/s by label.
    `sources` and `derived` say where a number is from, by the table's own key: bandwidth_gb_s, l2_mib, sm_count,
    memory_gb, power_w, a dtype.
    """

    name: str
    vendor: str = ""
    peaks: dict[str, float] = field(default_factory=dict)
    bandwidth_bytes_s: float | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    sources: dict[str, str] = field(default_factory=dict)
    memory_gb: float | None = None
    aliases: tuple[str, ...] = ()
    runtime_names: tuple[str, ...] = ()
    device_tree_models: tuple[str, ...] = ()
    module_ids: tuple[str, ...] = ()
    device_class: str = ""  # jetson | desktop | datacenter | cpu | apple
    flash: str | None = None  # standard | super, Jetson only
    compute_capability: str | None = None
    soc: str | None = None
    memory_type: str | None = None
    unified_memory: bool | None = None
    sm_count: int | None = None
    power_min_w: float | None = None
    power_max_w: float | None = None
    not_used: dict[str, float] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)
    modes: tuple[PowerMode, ...] = ()
    modes_source: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """One rate that a probe reached. `kind` says which; bandwidths in bytes/s, matrix rates in FLOP/s, never mixed.

    `median` over `repeats` timed batches, `low` and `high` their extremes; `working_set_bytes` is what one pass
    touches.
    """

    kind: str  # copy | read | write | gemv | matmul
    unit: str  # bytes/s | FLOP/s | OP/s
    median: float
    low: float
    high: float
    repeats: int
    working_set_bytes: int
    dtype: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe reached on one machine, beside the device's name and the conditions. `skipped` maps a reading to
    why.
    """

    device: str  # runtime name as reported
    table_name: str | None  # the table's row, where it was recognised
    memory_bytes: int | None
    l2_bytes: int | None
    readings: tuple[ProbeReading, ...]
    skipped: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    schema: str = "robot-perf/probe-1"
