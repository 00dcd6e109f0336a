"""The figures of a report as one PNG for markdown, drawn with matplotlib from the same curves as the HTML page."""

from __future__ import annotations

import io

import numpy as np

from robot_perf.errors import RobotPerfError, install_line
from robot_perf.render.parts.curves import Curves, curves_of
from robot_perf.run.model import Run
from robot_perf.units import MS, US

__all__ = ["report_png"]


def report_png(run: Run) -> bytes | None:
    """Distribution, percentile curve and timeline; None where no step finished.

    Raises RobotPerfError with the install line if matplotlib is absent.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RobotPerfError(
            f"a drawing needs {error.name}, which is not installed", do=f"Install it: {install_line('report')}"
        ) from None
    curves = curves_of(run)
    if curves.largest is None:
        return None
    deadline = run.loop.deadline_ns
    unit, name = (MS, "ms") if (deadline or curves.largest) >= 2 * MS else (US, "µs")
    figure = Figure(figsize=(10, 10), dpi=110, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    draws = (_distribution, _percentiles, _timeline)
    for axes, draw in zip(figure.subplots(3, 1), draws, strict=True):
        draw(axes, curves, unit)
        if deadline:
            line = axes.axvline if draw is _distribution else axes.axhline
            line(deadline / unit, color="#d1495b", linestyle="--", label=f"deadline {deadline / unit:g} {name}")
        (axes.set_xlabel if draw is _distribution else axes.set_ylabel)(f"response time, {name}")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.25)
        axes.legend(loc="best", fontsize="small")
    buffer = io.BytesIO()
    canvas.print_png(buffer, metadata={"Software": "robot-perf"})
    return buffer.getvalue()


def _distribution(axes, c: Curves, unit: int) -> None:  # type: ignore[no-untyped-def]
    axes.stairs(c.counts, c.edges / unit, fill=True, color="#2a6f97", alpha=0.6, label=f"{int(c.counts.sum()):,} steps")
    axes.set(xscale="log", yscale="log", ylabel="steps in the bin", ylim=(0.5, None))


def _percentiles(axes, c: Curves, unit: int) -> None:  # type: ignore[no-untyped-def]
    high = np.where(np.isnan(c.high), float(c.largest or 0), c.high)
    axes.fill_between(
        c.tail, c.low / unit, high / unit, color="#2a6f97", alpha=0.2, label="95 % interval, were steps independent"
    )
    axes.plot(c.tail, c.value / unit, color="#2a6f97", label="percentile")
    axes.set(xscale="log", yscale="log", xlabel="1 - p (of all releases)", xlim=(1, 0.7 / max(c.n, 2)))
    if not len(c.tail) and c.largest:
        axes.set_ylim(
            c.largest / unit / 2, c.largest / unit * 2
        )  # too few steps for any interval: an axis needs values


def _timeline(axes, c: Curves, unit: int) -> None:  # type: ignore[no-untyped-def]
    if c.on_time_thinned:
        axes.fill_between(
            c.on_time_step, c.on_time_low / unit, c.on_time_high / unit, color="#2a6f97", alpha=0.5, label="on time"
        )
    else:
        axes.plot(c.on_time_step, c.on_time_low / unit, ".", markersize=2, color="#2a6f97", label="on time")
    axes.plot(c.late_step, c.late / unit, ".", markersize=4, color="#d1495b", label=f"{c.late_total:,} late")
    if len(c.lost_first):
        top = np.full(len(c.lost_first), max(c.largest or 0, 1) / unit * 1.2)
        label = f"{c.infinite:,} skipped"
        axes.plot(c.lost_first, top, "|", markersize=9, color="#7b2d8b", label=label)
    axes.set(yscale="log", xlabel="release")
