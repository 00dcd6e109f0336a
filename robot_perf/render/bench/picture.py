"""The picture of one policy's bench: percentile curves per backend at each rate, and paced against tight. matplotlib."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

from robot_perf.errors import RobotPerfError, install_line
from robot_perf.render.bench.remarks import rate_words
from robot_perf.render.lines import clean
from robot_perf.run.bench_report import OK, TIGHT, BenchReport, Row

__all__ = ["bench_picture"]

_COLOURS = ("#2a6f97", "#d1495b", "#2d8a4e", "#c98a00", "#7b2d8b", "#5a636e", "#00798c", "#8d5a2b")
CONFIDENCE = 0.95
_PERCENTILES = ((0.5, "p50"), (0.1, "p90"), (0.01, "p99"), (0.001, "p99.9"), (0.0001, "p99.99"))


def bench_picture(report: BenchReport, policy: str, kind: str = "png") -> bytes | None:
    """PNG or SVG bytes; None where no point has figures. Raises RobotPerfError with the install line without matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError as error:
        raise RobotPerfError(
            f"a drawing needs {error.name}, which is not installed", do=f"Install it: {install_line('report')}"
        ) from None
    rows = [r for r in report.rows if r.policy == policy and any(p.status == OK and p.curve for p in r.points)]
    if not rows:
        return None
    count = len(report.rates)
    columns = min(count, 4)
    lines = -(-count // columns)
    figure = Figure(figsize=(3.6 * columns + 0.6, 3.3 * lines + 3.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    halves: Any = figure.subfigures(2, 1, height_ratios=(3.3 * lines + 0.4, 3.2))
    top, bottom = halves
    plots = top.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axes, rate in zip(plots, report.rates, strict=False):
        _curves(axes, rows, rate)
    for axes in plots[count:]:
        axes.set_visible(False)
    plots[0].set_ylabel("execution, µs")
    _paced_and_tight(bottom_axes := bottom.subplots(), report.rates, rows)
    _durations(plots[0], [v for r in rows for p in r.points for _, v in p.curve if p.keep_warm == "none"])
    _durations(bottom_axes, [v for r in rows for p in r.points if p.keep_warm == "none" and (v := p.p("p50"))])
    # above the curves, not on them: with six backends it would hide the slowest
    marks = [Line2D([], [], color=_colour(i), label=_label(row.backend)) for i, row in enumerate(rows)]
    marks.append(Line2D([], [], color="0.4", linestyle=":", label="dotted: too few steps to tell"))
    top.legend(
        handles=marks, loc="outside upper center", ncols=min(len(marks), 2 * columns), fontsize="small", frameon=False
    )
    buffer = io.BytesIO()
    # names stay text in the SVG, and its ids do not change from run to run
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "robot-perf"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks is drawn as boxes
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": "robot-perf"})
    return buffer.getvalue()


def _colour(i: int) -> str:
    return _COLOURS[i % len(_COLOURS)]


def _label(text: str) -> str:
    """A name that matplotlib neither reads as mathematics nor hides from the legend."""
    return clean(text).replace("$", r"\$").lstrip("_")


def _curves(axes: Any, rows: Sequence[Row], rate: str) -> None:
    for i, row in enumerate(rows):
        point = row.point(rate)
        if point is not None and point.status == OK and point.curve:
            known, rest = _estimable(point.curve, point.n)
            axes.plot(*_microseconds(known), color=_colour(i), label=_label(row.backend), linewidth=1.4)
            axes.plot(*_microseconds(rest), color=_colour(i), label="_", linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="percentile of the steps that ran", title=rate_words(rate))
    smallest = min((t for row in rows if (p := row.point(rate)) is not None for t, _ in p.curve), default=1.0)
    shown = [(tail, name) for tail, name in _PERCENTILES if tail >= smallest] or [_PERCENTILES[0]]
    axes.set_xticks([tail for tail, _ in shown], [name for _, name in shown])
    axes.xaxis.set_minor_formatter("")
    axes.invert_xaxis()
    axes.grid(alpha=0.25)


Curve = Sequence[tuple[float, int]]


def _estimable(curve: Curve, n: int) -> tuple[Curve, Curve]:
    """The part whose percentiles n steps can tell, as in the tables (95 %), and the rest, which begins where the first ends."""
    least = 1 - ((1 - CONFIDENCE) / 2) ** (1 / n)  # of the tail 1 - p: p**n <= alpha / 2
    count = sum(tail >= least for tail, _ in curve)
    return curve[:count], curve[max(0, count - 1) :]


def _microseconds(curve: Curve) -> tuple[list[float], list[float]]:
    return [tail for tail, _ in curve], [value / 1000 for _, value in curve]


def _durations(axes: Any, values_ns: Sequence[int]) -> None:
    """Labels of a logarithmic axis that don't run into each other: 1, 2, 5 of a decade; round steps where it is short."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    low, high = min(values_ns, default=1) / 1000, max(values_ns, default=1) / 1000
    marks = [m * 10.0**e for e in range(-4, 8) for m in (1, 2, 5) if low <= m * 10.0**e <= high]
    axes.yaxis.set_major_locator(FixedLocator(marks) if len(marks) > 2 else MaxNLocator(5))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")


def _paced_and_tight(axes: Any, rates: Sequence[str], rows: Sequence[Row]) -> None:
    """The median by rate, each backend a line: flat is what a tight loop promises."""
    ordered = [*sorted((r for r in rates if r != TIGHT), key=float), *[r for r in rates if r == TIGHT]]
    for i, row in enumerate(rows):
        pairs = [(x, p.p("p50")) for x, r in enumerate(ordered) if (p := row.point(r)) is not None and p.status == OK]
        known = [(x, v / 1000) for x, v in pairs if v is not None]
        if known:
            axes.plot(*zip(*known, strict=True), "o-", color=_colour(i), label=_label(row.backend), linewidth=1.2)
    axes.set_xticks(range(len(ordered)), [rate_words(r) for r in ordered])
    axes.set(yscale="log", ylabel="p50 execution, µs", title="Paced against tight")
    axes.grid(alpha=0.25)
