"""The three figures of an HTML report: distribution, percentile curve, timeline. Numbers and our own words only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.render.parts.curves import MOST_SINGLE, Curves, curves_of
from robot_perf.run.model import Run
from robot_perf.units import MS, US, format_count

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["figures_of"]

_ON_TIME, _LATE, _LOST, _BAND, _LINE = "#2a6f97", "#d1495b", "#7b2d8b", "rgba(42,111,151,0.22)", "#444444"
_WEBGL_FROM = 20_000  # above this many marks SVG is slow


def figures_of(run: Run) -> list[tuple[str, str, go.Figure]]:
    """(title, what it shows and what was left out, figure) for each figure; empty for a Run without a finished step."""
    curves = curves_of(run)
    if curves.largest is None:
        return []
    deadline = run.loop.deadline_ns
    unit, name = (MS, "ms") if (deadline or curves.largest) >= 2 * MS else (US, "µs")
    return [
        _distribution(curves, deadline, unit, name),
        _percentiles(curves, deadline, run.budget.miss_rate if run.loop.period_ns else None, unit, name),
        _timeline(curves, deadline, unit, name),
    ]


def _distribution(c: Curves, deadline_ns: int, unit: int, name: str) -> tuple[str, str, go.Figure]:
    import plotly.graph_objects as go

    x = np.repeat(c.edges / unit, 2)
    y = np.concatenate(([0], np.repeat(c.counts, 2), [0])).astype(np.float64)
    y[y == 0] = 0.5  # the axis is logarithmic: an empty bin lies below one step
    figure = go.Figure(go.Scatter(x=_short(x), y=y, mode="lines", fill="tozeroy", line={"color": _ON_TIME, "width": 1}))
    _log_axis(figure.layout.yaxis, "steps in the bin", 0.5, max(2.0, y.max()) * 1.4, whole=True)
    _log_axis(figure.layout.xaxis, f"response time, {name}", x.min() * 0.9, max(x.max(), deadline_ns / unit) * 1.1)
    _deadline(figure, deadline_ns, unit, name, axis="x")
    words = f"{format_count(int(c.counts.sum()))} steps in {len(c.counts)} bins, both axes logarithmic"
    if c.infinite:
        words += f"; {format_count(c.infinite)} releases without a finish have no place on this axis"
    if c.undrawable:
        words += f"; {format_count(c.undrawable)} responses of zero or less are drawn at 1 ns"
    return "Response time", words, figure


def _percentiles(
    c: Curves, deadline_ns: int, allowed: float | None, unit: int, name: str
) -> tuple[str, str, go.Figure]:
    import plotly.graph_objects as go

    known = np.where(np.isnan(c.high), float(c.largest or 0), c.high)
    figure = go.Figure()
    figure.add_scatter(
        x=c.tail, y=_short(known / unit), mode="lines", line={"width": 0}, hoverinfo="skip", showlegend=False
    )
    figure.add_scatter(
        x=c.tail,
        y=_short(c.low / unit),
        mode="lines",
        line={"width": 0},
        fill="tonexty",
        fillcolor=_BAND,
        name="95 % interval, were steps independent",
    )
    figure.add_scatter(x=c.tail, y=_short(c.value / unit), mode="lines", line={"color": _ON_TIME}, name="percentile")
    end = min(c.tail.min(initial=1.0), allowed or 1.0) * 0.7
    ticks = [10.0**-k for k in range(1, 10) if 10.0**-k >= end]
    labels = [f"p{(1 - t) * 100:.7f}".rstrip("0").rstrip(".") for t in ticks]
    figure.update_xaxes(type="log", title="percentile of all releases", range=[0, np.log10(end)])
    figure.update_xaxes(tickvals=[0.5, *ticks], ticktext=["p50", *labels])
    low, high = c.value.min(initial=c.largest or 1), c.largest or 1
    _log_axis(figure.layout.yaxis, f"response time, {name}", low / unit * 0.8, max(high, deadline_ns) / unit * 1.5)
    _deadline(figure, deadline_ns, unit, name, axis="y")
    if allowed is not None:
        figure.add_vline(x=allowed, line={"color": _LINE, "dash": "dot", "width": 1})
        place = {"showarrow": False, "xanchor": "right", "yanchor": "bottom", "yref": "paper"}
        figure.add_annotation(x=np.log10(allowed), y=0, text=f"allowed miss rate {allowed:g} ", **place)
    words = "nearest rank, with order-statistic intervals; the deadline is kept where the curve stays below it up to the allowed rate"
    open_ended = int(np.isnan(c.high).sum())
    if open_ended:
        words += "; towards the end the band is cut at the largest step: no upper end is known there"
    if c.infinite:
        words += f"; the curve ends where skipped releases begin ({format_count(c.infinite)} of {format_count(c.n)})"
    return "Percentiles", words, figure


def _timeline(c: Curves, deadline_ns: int, unit: int, name: str) -> tuple[str, str, go.Figure]:
    import plotly.graph_objects as go

    figure = go.Figure()
    if c.on_time_thinned:
        line = {"color": _ON_TIME, "width": 0.5}
        figure.add_scatter(x=c.on_time_step, y=_short(c.on_time_low / unit), mode="lines", line=line, showlegend=False)
        figure.add_scatter(
            x=c.on_time_step,
            y=_short(c.on_time_high / unit),
            mode="lines",
            line=line,
            fill="tonexty",
            fillcolor=_BAND,
            name="on time",
        )
    else:
        _marks(figure, c.on_time_step, c.on_time_low / unit, _ON_TIME, 3, "on time")
    if len(c.late):
        _marks(figure, c.late_step, c.late / unit, _LATE, 5, "late")
    if len(c.lost_first):
        # a mark where a run begins stays visible however short it is; a run long enough to see is a line as well
        _marks(
            figure, c.lost_first, np.ones(len(c.lost_first)), _LOST, 14, "skipped", yaxis="y2", symbol="line-ns-open"
        )
        long = c.lost_last - c.lost_first >= max(1, c.n // 1000)
        ends = np.stack((c.lost_first[long], c.lost_last[long], np.full(long.sum(), np.nan)), axis=1).ravel()
        line = {"color": _LOST, "width": 10}
        figure.add_scatter(
            x=ends, y=np.ones(len(ends), np.int8), mode="lines", line=line, showlegend=False, yaxis="y2", hoverinfo="x"
        )
    if c.largest is not None:
        largest = np.array([c.largest / unit])
        _marks(figure, np.array([c.largest_step]), largest, _LINE, 11, "largest", symbol="circle-open")
    low = min(v.min() for v in (c.on_time_low, c.late) if len(v)) / unit
    high = max(c.largest or 0, deadline_ns) / unit
    figure.update_layout(
        xaxis={"title": "release", "zeroline": False},
        yaxis={"domain": [0, 0.9]},
        yaxis2={"domain": [0.93, 1], "visible": False, "range": [0.5, 1.5], "anchor": "x"},
    )
    _log_axis(figure.layout.yaxis, f"response time, {name}", low * 0.8, high * 1.4)
    _deadline(figure, deadline_ns, unit, name, axis="y")
    words = f"{format_count(c.n)} releases: {format_count(c.late_total)} late"
    words += f", {format_count(c.infinite)} skipped or unfinished in {format_count(c.lost_runs)} runs"
    if c.on_time_thinned:
        words += "; steps on time are drawn as the band from the smallest to the largest of each stretch"
    if c.late_total > MOST_SINGLE or c.lost_runs > MOST_SINGLE:
        words += f"; more than {format_count(MOST_SINGLE)} misses of a kind: the extremes of each stretch are drawn, and runs of one stretch as one"
    return "Timeline", words, figure


def _marks(
    figure: go.Figure,
    x: NDArray[Any],
    y: NDArray[Any],
    color: str,
    size: int,
    name: str,
    *,
    symbol: str = "circle",
    yaxis: str = "y",
) -> None:
    import plotly.graph_objects as go

    kind = go.Scattergl if len(x) > _WEBGL_FROM else go.Scatter
    marker = {
        "size": size,
        "color": color,
        "symbol": symbol,
        "line": {"width": 1.5 if symbol != "circle" else 0, "color": color},
    }
    figure.add_trace(kind(x=x.astype(np.int32), y=_short(y), mode="markers", marker=marker, name=name, yaxis=yaxis))


def _short(values: NDArray[Any]) -> NDArray[np.float32]:
    """Single precision: seven digits of a drawn value are more than a screen has, in half the bytes."""
    return values.astype(np.float32)


def _log_axis(axis: Any, title: str, low: float, high: float, *, whole: bool = False) -> None:
    """A logarithmic axis whose ticks are written out: 0.2, 0.5, 1, 2, 5, … or powers of ten alone where there are many."""
    low, high = max(low, 1e-6), max(high, low * 1.01)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(decades) > 5 or whole else (1, 2, 5) if len(decades) > 2 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    ticks = [t for t in (m * 10.0**k for k in decades for m in steps) if low <= t <= high]
    text = [f"{t:,.6g}" for t in ticks]
    axis.update(type="log", title=title, range=[math.log10(low), math.log10(high)], tickvals=ticks, ticktext=text)


def _deadline(figure: go.Figure, deadline_ns: int, unit: int, name: str, *, axis: str) -> None:
    if not deadline_ns:
        return
    at, line = deadline_ns / unit, {"color": _LATE, "dash": "dash", "width": 1.5}
    text = {"text": f"deadline {at:g} {name} ", "showarrow": False, "xanchor": "right"}
    if axis == "x":
        figure.add_vline(x=at, line=line)
        figure.add_annotation(x=np.log10(at), y=1, yref="paper", yanchor="top", **text)
    else:
        figure.add_hline(y=at, line=line)
        figure.add_annotation(x=1, xref="paper", y=np.log10(at), yanchor="bottom", **text)
