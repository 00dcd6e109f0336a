"""The device table, one row, a detection and a probe in words. Spec, probe and achieved are columns of their own."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from robot_perf.devices.detect import Detection
from robot_perf.devices.nvpmodel import bandwidth_range
from robot_perf.render.grid import grid
from robot_perf.render.hardware.roofline import share
from robot_perf.render.lines import clean, hanging
from robot_perf.specs.device import DeviceSpec, ProbeReading, ProbeReport
from robot_perf.units import format_bandwidth, format_flop_s

__all__ = ["detection_text", "device_text", "list_text", "probe_markdown", "probe_text"]

UNKNOWN = "unknown"
_FIELDS = {"bandwidth_gb_s": "bandwidth", "l2_mib": "L2", "sm_count": "SMs", "memory_gb": "memory", "power_w": "power"}


def list_text(devices: Sequence[DeviceSpec], *, width: int | None = None) -> str:
    """One line per device: memory, bandwidth, dense bf16 (or fp16), ridge, L2, class.

    `width` in cells, None for no limit: the columns that a narrow terminal has no room for are left out, and said.
    """
    rows = []
    for d in devices:
        peak = d.peaks.get("bf16") or d.peaks.get("fp16")
        dtype = "bf16" if "bf16" in d.peaks else "fp16" if "fp16" in d.peaks else ""
        bandwidth = d.bandwidth_bytes_s
        rows.append(
            (
                d.name,
                ", ".join(d.aliases),
                f"{d.memory_gb:g}" if d.memory_gb else "?",
                f"{bandwidth / 1e9:g}" if bandwidth else "?",
                f"{peak / 1e12:g} {dtype}" if peak else "?",
                f"{peak / bandwidth:.1f}" if peak and bandwidth else "?",
                f"{d.l2_bytes / 2**20:g}" if d.l2_bytes else "?",
            )
        )
    head = ("device", "aliases", "GB", "GB/s", "dense TFLOP/s", "ridge", "L2 MiB")
    table, left_out = _fitting(head, rows, width)
    words = f"{len(rows)} devices; ? is unknown, never zero. One of them: robot-perf devices show NAME"
    words += f". Left out for want of width: {', '.join(left_out)}" if left_out else ""
    return "\n".join([table, *(hanging(words, width, 0) if width else [words])])


def _fitting(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> tuple[str, list[str]]:
    """The table, and the columns left out of it so that it fits; names, memory and rates stay."""
    table, left_out = grid(head, rows, left=(0, 1)), []
    for name in ("aliases", "L2 MiB", "ridge"):
        if not _too_wide(table, width):
            break
        left_out.append(name)
        kept = [i for i, column in enumerate(head) if column not in left_out]
        table = grid([head[i] for i in kept], [[row[i] for i in kept] for row in rows], gap=2)
    return table, left_out


def _too_wide(table: str, width: int | None) -> bool:
    return width is not None and max(map(cell_len, table.splitlines())) > width


def device_text(d: DeviceSpec, *, width: int | None = None) -> str:
    """One row in full: each number with its source, what is derived and how, what is printed elsewhere and not used.

    Where the table is wider than `width` cells (None: no limit), the sources stand under it by number.
    """
    lines = [f"{d.name}   {d.device_class}{f', {d.flash} flash' if d.flash else ''}"]
    rows = [("  " + a, b, c) for a, b, c in _spec_rows(d)]
    table = grid(("", "spec", "source"), rows, left=(0, 2))
    lines += _numbered(rows, width) if _too_wide(table, width) else [table]
    if d.modes:
        where, modes = f"  power modes ({bandwidth_range(d)}; {d.modes_source})", _modes(d)
        if _too_wide(where, width):
            where = f"  power modes ({bandwidth_range(d)})\n  {d.modes_source}"
        lines += ["", where, _modes(d, gap=2) if _too_wide(modes, width) else modes]
    names = [
        ("aliases", d.aliases),
        ("runtime names", d.runtime_names),
        ("module ids", d.module_ids),
        ("device tree", d.device_tree_models),
    ]
    words = [f"{label}: {', '.join(values)}" for label, values in names if values]
    words += [d.note] if d.note else []
    if not d.bandwidth_bytes_s or not d.peaks:
        words.append("unknown numbers: give --bandwidth-gb-s or --peak bf16=…")
    for text in words:
        lines += _indented(text, width, "  ")
    return "\n".join(lines)


def _spec_rows(d: DeviceSpec) -> list[tuple[str, str, str]]:
    """(what, value, source) of every number of the row."""
    rows = [
        ("memory", f"{d.memory_gb:g} GB {d.memory_type}" if d.memory_gb else UNKNOWN, _source(d, "memory_gb")),
        (
            "bandwidth",
            format_bandwidth(d.bandwidth_bytes_s) if d.bandwidth_bytes_s else UNKNOWN,
            _source(d, "bandwidth_gb_s"),
        ),
    ]
    rows += [(f"{t}, dense", _ops(v, t), _source(d, t)) for t, v in d.peaks.items()]
    peak = d.peaks.get("bf16") or d.peaks.get("fp16")
    if peak and d.bandwidth_bytes_s:
        name = "bf16" if "bf16" in d.peaks else "fp16"
        rows.append(("ridge", f"{peak / d.bandwidth_bytes_s:.1f} FLOP/byte", f"{name} peak / bandwidth"))
    rows += [
        ("L2", f"{d.l2_bytes / 2**20:g} MiB" if d.l2_bytes else UNKNOWN, _source(d, "l2_mib")),
        ("SMs", str(d.sm_count) if d.sm_count else UNKNOWN, _source(d, "sm_count")),
        ("capability", d.compute_capability or UNKNOWN, ""),
        ("power", _power(d), _source(d, "power_w")),
    ]
    return rows + [
        ("not used", f"{_ops(v, label)} {label}", "no bound of dense arithmetic on this GPU")
        for label, v in d.not_used.items()
    ]


def _numbered(rows: Sequence[tuple[str, str, str]], width: int | None) -> list[str]:
    """The table with a number for each source, and the sources under it. A long address stays whole: it is to be copied."""
    sources = list(dict.fromkeys(source for _, _, source in rows if source))
    numbers = {source: f"[{i}]" for i, source in enumerate(sources, 1)}
    table = [(what, value, numbers.get(source, "")) for what, value, source in rows]
    lines = [grid(("", "spec", "source"), table, left=(0, 2), gap=2)]
    for source, number in numbers.items():
        lines += _indented(source, width, f"  {number} ")
    return lines


def _indented(text: str, width: int | None, first: str) -> list[str]:
    """`text` behind `first`, wrapped under itself."""
    if width is None:
        return [first + text]
    pieces = hanging(text, width, len(first))
    return [(first if i == 0 else " " * len(first)) + piece for i, piece in enumerate(pieces)]


def _ops(value: float, dtype: str) -> str:
    """Integer arithmetic is counted in OP/s, as vendors print it."""
    text = format_flop_s(value)
    return text.replace("FLOP/s", "OP/s") if dtype.startswith("int") else text


def _modes(d: DeviceSpec, *, gap: int = 3) -> str:
    rows = [
        (
            "    " + m.name + (" (default)" if m.default else ""),
            f"{m.bandwidth_bytes_s / 1e9:g} GB/s",
            f"{m.emc_hz / 1e6:.0f} MHz",
            f"{m.gpu_hz / 1e6:g} MHz",
            f"{m.gpu_tpc}" if m.gpu_tpc else "?",
            f"{m.cpu_cores}" if m.cpu_cores else "?",
            f"{m.power_w:g} W" if m.power_w else "-",
        )
        for m in d.modes
    ]
    return grid(("    mode", "bandwidth", "EMC", "GPU", "TPC", "CPU cores", "budget"), rows, gap=gap)


def _power(d: DeviceSpec) -> str:
    if d.power_max_w is None:
        return UNKNOWN
    return f"{d.power_max_w:g} W" if d.power_min_w is None else f"{d.power_min_w:g} to {d.power_max_w:g} W"


def _source(d: DeviceSpec, field: str) -> str:
    return f"derived: {d.derived[field]}" if field in d.derived else d.sources.get(field, "")


def detection_text(found: Sequence[Detection]) -> str:
    """What this machine is, on which evidence, and its bandwidth in the mode that it is in."""
    lines = []
    for d in found:
        lines.append(f"{clean(d.answer)}")
        lines += [f"  evidence   {clean(e)}" for e in d.evidence]
        if d.mode is not None:
            lines.append(f"  mode       {d.mode.name}: {format_bandwidth(d.mode.bandwidth_bytes_s)}")
        elif d.mode_note:
            lines.append(f"  mode       {clean(d.mode_note)}")
        elif d.device is not None and d.device.bandwidth_bytes_s:
            lines.append(f"  bandwidth  {format_bandwidth(d.device.bandwidth_bytes_s)} (spec)")
        if d.device is None:
            lines.append("  next       name one of them with --on, or read the device tree outside the container")
    return "\n".join(lines)


def probe_text(probe: ProbeReport, device: DeviceSpec | None) -> str:
    """Spec and probe side by side; a probe above spec is flagged, never clamped."""
    head = f"{clean(probe.device)}   {device.name if device else 'not in the device table: no spec column'}"
    rows = [("  " + a, *rest) for a, *rest in _probe_rows(probe, device)]
    lines = [head, grid(("  probe", "dtype", "spec", "reached", "range", "share of spec"), rows, left=(0, 1))]
    lines += _flags(probe, device)
    lines += [f"  skipped    {clean(k)}: {clean(v)}" for k, v in probe.skipped.items()]
    width = max((len(k) for k in probe.conditions), default=0) + 2
    lines += [f"  {k.replace('_', ' '):<{width}}{clean(v)}" for k, v in probe.conditions.items()]
    return "\n".join(lines)


def probe_markdown(probe: ProbeReport, device: DeviceSpec | None) -> str:
    """The same as a markdown page, to be committed beside the JSON."""
    lines = [f"# Probe of {_cell(clean(probe.device))}", ""]
    lines += [
        f"Spec is the table's row `{device.name}`, the only bound. Reached is this probe's median: an achievable line, named"
        if device
        else "This device is not in the table, so there is no spec column. Reached is this probe's median, an achievable line, named",
        "by kind. What a policy achieves is a third number, printed by `robot-perf ceiling --run`; the three are never mixed.",
        "",
        "| probe | dtype | spec | reached | range | share of spec | detail |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, reading in zip(_probe_rows(probe, device), probe.readings, strict=True):
        lines.append("| " + " | ".join(_cell(c) for c in (*row, reading.detail)) + " |")
    lines.append("")
    if probe.l2_bytes:
        lines.append(
            f"- last-level cache: {probe.l2_bytes / 2**20:g} MiB; every bandwidth probe works on at least 4 times that"
        )
    lines += [f"- {_cell(flag.strip())}" for flag in _flags(probe, device)]
    lines += [f"- skipped {_cell(k)}: {_cell(v)}" for k, v in probe.skipped.items()]
    lines += [f"- {k.replace('_', ' ')}: {_cell(v)}" for k, v in probe.conditions.items()]
    return "\n".join(lines) + "\n"


def _probe_rows(probe: ProbeReport, device: DeviceSpec | None) -> list[tuple[str, str, str, str, str, str]]:
    rows = []
    for r in probe.readings:
        spec = _spec(device, r)
        rows.append(
            (
                r.kind,
                r.dtype,
                _rate(spec, r.unit) if spec else UNKNOWN,
                _rate(r.median, r.unit),
                f"{_rate(r.low, r.unit)} to {_rate(r.high, r.unit)}",
                share(r.median / spec) if spec else "-",
            )
        )
    return rows


def _spec(device: DeviceSpec | None, r: ProbeReading) -> float | None:
    if device is None:
        return None
    return device.peaks.get(r.dtype) if r.kind == "matmul" else device.bandwidth_bytes_s


def _rate(value: float, unit: str) -> str:
    return format_bandwidth(value) if unit == "bytes/s" else _ops(value, "int" if unit == "OP/s" else "")


def _flags(probe: ProbeReport, device: DeviceSpec | None) -> list[str]:
    above = [r for r in probe.readings if (s := _spec(device, r)) is not None and r.median > s]
    return [
        f"  above spec {r.kind} {r.dtype}: {'a boost clock above the official one' if r.kind == 'matmul' else 'a cache effect or the wrong device'}"
        for r in above
    ]


def _cell(text: str) -> str:
    """Text that can't break out of a markdown table cell or become HTML."""
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
    return " ".join(escaped.split())
