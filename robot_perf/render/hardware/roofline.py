"""A roofline as words, as an offline HTML page with sliders, and as a picture."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from robot_perf.analyze.ceiling.roofline import Placement, Roof, rmsnorm
from robot_perf.devices import FALLBACK_DTYPE, modes_of, table
from robot_perf.devices.roof import clock_share
from robot_perf.errors import BackendUnavailableError, install_line
from robot_perf.render.grid import grid
from robot_perf.specs.device import DeviceSpec, PowerMode
from robot_perf.units import format_bandwidth, format_bytes, format_duration, format_flop_s

__all__ = ["page", "picture", "preset_rows", "share", "text"]

_MISSING = f"Install it: {install_line('report')}"


def text(
    p: Placement,
    *,
    power_mode: str | None = None,
    hidden: int | None = None,
    tokens: int | None = None,
    crossover: float | None = None,
    crossover_weights: float | None = None,
    parts: Sequence[Placement] = (),
    uncounted: dict[str, int] | None = None,
    resident: bool = False,
    notes: Sequence[str] = (),
    lower_bound: str = "",
) -> str:
    """What limits the work, by how much, and where it would change sides; the answer in the first line.

    With `lower_bound` (what wasn't counted) there is no such answer: the first line says why, and figures are "at least".
    """
    roof = p.roof
    where = f"{roof.name}{f', {power_mode}' if power_mode else ''}"
    below = p.ridge_factor < 1
    distance = (
        f"{_times(1 / p.ridge_factor)} below it" if below and p.work.flop else f"{_times(p.ridge_factor)} past it"
    )
    what = f"{p.work.name} in {roof.dtype} on {where}"
    work = f"{_flop(p.work.flop)} over {format_bytes(p.work.bytes)}: {p.work.intensity:,.4g} FLOP/byte"
    if lower_bound:
        work = f"at least {_flop(p.work.flop)} and {format_bytes(p.work.bytes)}"
    least = "at least " if lower_bound else ""
    lines = [
        f"{what}: {not_whole(lower_bound)}" if lower_bound else _answer(p, what, resident, len(parts)),
        f"  work       {work}",
        f"  ridge      {format_flop_s(roof.peak_flop_s)} / {format_bandwidth(roof.bandwidth_bytes_s)} = {roof.ridge:.1f} FLOP/byte; "
        + ("where the work lies is unknown" if lower_bound else f"the work lies {distance}"),
        f"  bounds     memory {least}{format_duration(p.memory_ns)}, compute {least}{format_duration(p.compute_ns)}",
    ]
    lines += _crossover(roof, hidden, tokens, crossover, crossover_weights)
    if parts:
        lines += ["", _operators(parts)]
    if uncounted:
        lines.append(f"not counted (shapes unknown): {', '.join(f'{n} x {k}' for k, n in uncounted.items())}")
    lines += [f"  note       {n}" for n in notes]
    return "\n".join(lines)


def not_whole(lower_bound: str) -> str:
    """The sentence about figures that leave work out."""
    return f"what limits it can't be said, all figures are a lower bound ({lower_bound})"


def _answer(p: Placement, what: str, resident: bool, launches: int) -> str:
    if resident:
        return (
            f"{what}: DRAM does not bound it (L2-resident); launches do: {launches} operators x 5 µs = "
            f"{format_duration(launches * 5000)} unless fused or graphed, arithmetic at least {format_duration(p.compute_ns)}"
        )
    return (
        f"{what}: {p.limited_by}-bound, at least {format_duration(p.least_ns)}, "
        f"at most {format_flop_s(p.attainable_flop_s)} ({share(p.peak_share)} of peak)"
    )


def _times(factor: float) -> str:
    return f"{factor:,.0f} x" if factor >= 100 else f"{factor:.3g} x"


def share(value: float) -> str:
    """A share as percent with two significant digits: `0.34 %`, `3.4 %`, `81 %`."""
    percent = 100 * value
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.1f} %" if percent >= 0.995 else f"{percent:.2g} %"


def _crossover(
    roof: Roof, hidden: int | None, tokens: int | None, crossover: float | None, weights: float | None
) -> list[str]:
    if hidden is None or crossover is None or weights is None:
        return []
    if math.isinf(crossover):
        reached = hidden / 2  # BF16 limit of N d / (d + 2 N); other widths differ by the same factor on both sides
        return [
            f"  crossover  never: at hidden {hidden:,} activations alone keep the intensity under about {reached:.4g}"
        ]
    lines = [
        f"  crossover  N = {_tokens(crossover)} tokens; counting weights alone it would seem {_tokens(weights)}",
        f"             because activations move too: N d / (d + 2 N) reaches {roof.ridge:.1f} later than N does",
    ]
    if tokens:
        lines.append(f"             N = {tokens:,} is {_times(tokens / weights)} the weights-only crossover")
    return lines


def _tokens(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _operators(parts: Sequence[Placement]) -> str:
    ordered = sorted(parts, key=lambda p: -p.least_ns)[:20]
    rows = [
        (
            p.work.name,
            _flop(p.work.flop),
            format_bytes(p.work.bytes),
            f"{p.work.intensity:.3g}",
            p.limited_by,
            format_duration(p.least_ns),
        )
        for p in ordered
    ]
    table_text = grid(("operator", "FLOP", "bytes", "FLOP/byte", "bound", "at least"), rows)
    total = sum(p.least_ns for p in parts)
    more = f"\n… and {len(parts) - len(ordered)} smaller ones" if len(parts) > len(ordered) else ""
    return f"{table_text}{more}\none by one, nothing fused: at least {format_duration(total)} in {len(parts)} operators"


def _flop(value: float) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}FLOP"
    return f"{value:.0f} FLOP"


def preset_rows(dtype: str) -> list[dict[str, Any]]:
    """Every device (and power mode) whose bandwidth and dense peak at `dtype` are known: GB/s and TFLOP/s."""
    rows = []
    for device in table():
        peak = device.peaks.get(dtype) or device.peaks.get(FALLBACK_DTYPE.get(dtype, ""))
        for mode in modes_of(device):
            bandwidth = mode.bandwidth_bytes_s if mode else device.bandwidth_bytes_s
            if peak is None or bandwidth is None:
                continue
            name = f"{device.name} {mode.name}" if mode else device.name
            rows.append({"name": name, "gb_s": bandwidth / 1e9, "tflop_s": peak * clock_share(device, mode) / 1e12})
    return rows


def page(
    p: Placement,
    device: DeviceSpec,
    mode: PowerMode | None,
    *,
    hidden: int,
    tokens: int,
    summary: str,
    parts: Sequence[Placement] = (),
    element_bytes: float = 2.0,
) -> str:
    """One HTML file that needs no network: log axes, device presets, four sliders, a dot for the layer and one for
    RMSNorm.

    `summary` is the answer in words, `parts` are drawn as further dots (operators of a policy). Raises
    BackendUnavailableError without jinja2 and plotly.
    """
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise BackendUnavailableError(f"the HTML page needs {error.name}", do=_MISSING) from error
    state = {
        "dtype": p.roof.dtype,
        "element_bytes": element_bytes,
        "tokens": tokens,
        "hidden": hidden,
        "gb_s": p.roof.bandwidth_bytes_s / 1e9,
        "tflop_s": p.roof.peak_flop_s / 1e12,
        "device": f"{device.name} {mode.name}" if mode else device.name,
        "presets": preset_rows(p.roof.dtype),
        "parts": [
            {"name": x.work.name, "intensity": x.work.intensity, "flop": x.work.flop, "bytes": x.work.bytes}
            for x in sorted(parts, key=lambda q: -q.least_ns)[:40]
            if x.work.flop
        ],
    }
    template = (files("robot_perf") / "render" / "templates" / "roofline.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(
        title=f"Roofline of {p.work.name} on {state['device']}",
        summary=summary,
        state=_script_json(state),
        plotly=_Script(get_plotlyjs()),
        presets=state["presets"],
        device=state["device"],
    )


class _Script(str):
    """Text that is placed inside a script element as it is: our own bundle, never a user's."""

    def __html__(self) -> str:
        return self.replace("</script", "<\\/script")


def _script_json(value: Any) -> _Script:
    """JSON that can't end its script element, whatever a policy's names hold."""
    plain = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return _Script(plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def picture(
    p: Placement,
    *,
    hidden: int | None,
    tokens: int | None,
    parts: Sequence[Placement] = (),
    form: str = "png",
    whole: bool = True,
) -> bytes:
    """The same chart as PNG or SVG bytes, without a point of the work that isn't `whole`. Raises BackendUnavailableError
    without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendUnavailableError("the picture needs matplotlib", do=_MISSING) from error
    roof = p.roof
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    low, high = min(0.05, p.work.intensity / 4 or 0.05), max(2e4, 4 * roof.ridge)
    axes.loglog([low, roof.ridge, high], [roof.attainable(i) / 1e12 for i in (low, roof.ridge, high)], color="#1f4e79")
    axes.axvline(roof.ridge, color="#888888", linestyle=":", linewidth=1)
    axes.annotate(
        f"ridge {roof.ridge:.1f} FLOP/byte",
        (roof.ridge, roof.peak_flop_s / 1e12),
        xytext=(6, -14),
        textcoords="offset points",
    )
    for part in parts:
        if part.work.flop:
            axes.plot(part.work.intensity, part.attainable_flop_s / 1e12, "o", color="#bbbbbb", markersize=4)
    if p.work.flop and whole:
        axes.plot(p.work.intensity, p.attainable_flop_s / 1e12, "o", color="#c03030", markersize=9, label=p.work.name)
    if hidden and tokens:
        norm = roof.place(rmsnorm(tokens, hidden))
        axes.plot(
            norm.work.intensity,
            norm.attainable_flop_s / 1e12,
            "o",
            color="#c03030",
            markersize=9,
            fillstyle="none",
            label=norm.work.name,
        )
    axes.set_xlabel("operational intensity, FLOP/byte")
    axes.set_ylabel(f"attainable, TFLOP/s ({roof.dtype}, dense)")
    partial = "" if whole else f"\n{p.work.name}: not all work could be counted, so the whole has no point"
    axes.set_title(
        f"{roof.name}: {format_flop_s(roof.peak_flop_s)}, {format_bandwidth(roof.bandwidth_bytes_s)}{partial}"
    )
    axes.grid(True, which="both", linewidth=0.3)
    axes.legend(loc="lower right")
    out = io.BytesIO()
    # fixed hash salt and no date: the same input gives the same bytes
    metadata = {"Date": None} if form == "svg" else {"Software": "robot-perf"}
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "robot-perf"}):
        figure.savefig(out, format=form, dpi=150, metadata=metadata)
    return out.getvalue()
