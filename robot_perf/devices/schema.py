"""One row of configs/devices/*.yaml as people write it, checked by pydantic, and its DeviceSpec in bytes and FLOP/s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, ValidationError

from robot_perf.errors import UsageError
from robot_perf.specs.device import DeviceSpec, PowerMode
from robot_perf.units import GB, MIB

Dtype = Literal["bf16", "fp16", "fp8", "int8", "fp4", "fp32"]
DTYPES: tuple[str, ...] = ("bf16", "fp16", "fp8", "int8", "fp4", "fp32")
CLASSES: tuple[str, ...] = ("jetson", "desktop", "datacenter", "cpu", "apple")
_TERA = 1e12
_MHZ = 1e6


class ModeRow(BaseModel):
    """One power mode: MHz and GB/s (decimal)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    id: int
    default: bool = False
    power_w: PositiveFloat | None = None
    cpu_cores: PositiveInt | None = None
    gpu_mhz: PositiveFloat
    gpu_tpc: PositiveInt | None = None
    emc_mhz: PositiveFloat
    bus_bits: PositiveInt
    bandwidth_gb_s: PositiveFloat


class Rule(BaseModel):
    """How a derived cell is computed (`recompute`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rule: Literal["clock", "times", "value", "emc", "pins"]
    per_sm: PositiveFloat | None = None
    ghz: PositiveFloat | None = None
    of: Dtype | None = None
    factor: PositiveFloat | None = None
    value: PositiveFloat | None = None
    mhz: PositiveFloat | None = None
    gbit_s: PositiveFloat | None = None
    bus_bits: PositiveInt | None = None


class DeviceRow(BaseModel):
    """One device and memory size: GB/s (decimal), dense TFLOP/s (int8: TOP/s), MiB of L2, W. An absent key is
    unknown.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    memory_gb: PositiveFloat | None = None
    aliases: tuple[str, ...] = ()
    runtime_names: tuple[str, ...] = ()
    device_tree_models: tuple[str, ...] = ()
    module_ids: tuple[str, ...] = ()
    flash: Literal["standard", "super"] | None = None
    compute_capability: str | None = None
    soc: str | None = None
    memory_type: str
    unified_memory: bool
    bandwidth_gb_s: PositiveFloat | None = None
    peaks: dict[Dtype, PositiveFloat] = {}
    not_used: dict[str, PositiveFloat] = {}
    l2_mib: PositiveFloat | None = None
    sm_count: PositiveInt | None = None
    power_w: tuple[PositiveFloat | None, PositiveFloat] | None = None
    source: str
    sources: dict[str, str] = {}
    derived: dict[str, Rule] = {}
    note: str = ""
    modes_source: str | None = None
    modes: tuple[ModeRow, ...] = ()


def parse_row(data: Any, *, where: str) -> DeviceRow:
    """The row, or one UsageError that names file, field, what was got and what is allowed."""
    try:
        return DeviceRow.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(p) for p in first["loc"]) or "row"
        name = data.get("name", "?") if isinstance(data, Mapping) else "?"
        raise UsageError(f"{where}: {name}: {field}: {first['msg']}", why=f"Got {first.get('input')!r:.100}.") from None


def recompute(row: DeviceRow, field: str) -> float:
    """The value of a derived cell by its rule, in the row's own unit (GB/s, TFLOP/s). Rules: docs/devices.md."""
    rule = row.derived[field]
    if rule.rule == "clock":  # FLOP per clock and SM x SMs x GHz
        return _need(rule.per_sm) * _need(row.sm_count) * _need(rule.ghz) / 1000
    if rule.rule == "times":
        return row.peaks[_of(rule)] * _need(rule.factor)
    if rule.rule == "value":
        return _need(rule.value) * _need(rule.factor)
    if rule.rule == "emc":  # LPDDR: two transfers a clock
        return _need(rule.mhz) * 2 * _need(rule.bus_bits) / 8 / 1000
    return _need(rule.gbit_s) * _need(rule.bus_bits) / 8


def to_spec(row: DeviceRow, device_class: str, links: Mapping[str, str]) -> DeviceSpec:
    """The row in bytes and FLOP/s, with the source of every number that it holds."""
    present = [
        f for f in ("bandwidth_gb_s", "l2_mib", "sm_count", "memory_gb", "power_w") if getattr(row, f) is not None
    ]
    sources = {f: row.sources.get(f, row.source) for f in present}
    sources |= {d: row.sources.get(d, row.sources.get("peaks", row.source)) for d in row.peaks}
    low, high = row.power_w or (None, None)
    return DeviceSpec(
        name=row.name,
        vendor="Apple" if device_class == "apple" else "" if device_class == "cpu" else "NVIDIA",
        peaks={d: v * _TERA for d, v in row.peaks.items()},
        bandwidth_bytes_s=None if row.bandwidth_gb_s is None else row.bandwidth_gb_s * GB,
        l2_bytes=None if row.l2_mib is None else round(row.l2_mib * MIB),
        memory_bytes=None if row.memory_gb is None else round(row.memory_gb * GB),
        sources={f: links.get(s, s) for f, s in sources.items()},
        memory_gb=row.memory_gb,
        aliases=row.aliases,
        runtime_names=row.runtime_names,
        device_tree_models=row.device_tree_models,
        module_ids=row.module_ids,
        device_class=device_class,
        flash=row.flash,
        compute_capability=row.compute_capability,
        soc=row.soc,
        memory_type=row.memory_type,
        unified_memory=row.unified_memory,
        sm_count=row.sm_count,
        power_min_w=low,
        power_max_w=high,
        not_used={k: v * _TERA for k, v in row.not_used.items()},
        derived={f: describe_rule(r) for f, r in row.derived.items()},
        modes=tuple(_mode(m) for m in row.modes),
        modes_source=None if row.modes_source is None else links.get(row.modes_source, row.modes_source),
        note=row.note.strip(),
    )


def describe_rule(rule: Rule) -> str:
    """The rule in words, for `devices show`."""
    if rule.rule == "clock":
        return f"{rule.per_sm:g} FLOP per SM and clock x SMs x {rule.ghz:g} GHz"
    if rule.rule == "times":
        return f"{rule.factor:g} x {rule.of}"
    if rule.rule == "value":
        return f"{rule.factor:g} x {rule.value:g}"
    if rule.rule == "emc":
        return f"EMC {rule.mhz:g} MHz x 2 x {rule.bus_bits} bit / 8"
    return f"{rule.gbit_s:g} Gbit/s x {rule.bus_bits} bit / 8"


def _mode(m: ModeRow) -> PowerMode:
    return PowerMode(
        name=m.name,
        bandwidth_bytes_s=m.bandwidth_gb_s * GB,
        gpu_hz=m.gpu_mhz * _MHZ,
        emc_hz=m.emc_mhz * _MHZ,
        bus_bits=m.bus_bits,
        mode_id=m.id,
        default=m.default,
        power_w=m.power_w,
        cpu_cores=m.cpu_cores,
        gpu_tpc=m.gpu_tpc,
    )


def _of(rule: Rule) -> Dtype:
    if rule.of is None:
        raise UsageError("a derived cell lacks `of`", do="Name the dtype that it is a multiple of.")
    return rule.of


def _need(value: float | None) -> float:
    if value is None:
        raise UsageError("a derived cell lacks what its rule needs", do="Complete its entry under `derived`.")
    return value
