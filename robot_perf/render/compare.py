"""A comparison of two Runs as text: the answer first, the figures under it, what else differs last."""

from __future__ import annotations

from rich.text import Text

from robot_perf.analyze.comparison.compare import Comparison, LatencyContrast, MissContrast
from robot_perf.render.cells import percent
from robot_perf.render.lines import clean, join, labelled
from robot_perf.units import format_count, format_duration

__all__ = ["comparison_text"]

_STYLE = {"faster": "bold green", "slower": "bold red", "no difference": "bold", "can't say": "bold yellow"}

_BETWEEN = "two Runs can't tell a difference of the size by which runs of the same thing differ"
_NEXT = (
    "to be sure of a small difference, measure A and B in turns, six times: six differences of one sign are chance in 3 %; "
    "longer runs only narrow the interval"
)


def comparison_text(comparison: Comparison, a: str, b: str, *, width: int = 100) -> Text:
    """B seen from A; `a` and `b` are the names of the two Run files."""
    latency = comparison.latency
    words = latency.reason
    if latency.answer in ("faster", "slower"):
        words = f"B is {latency.answer} than A at {latency.percentile}: {latency.reason}"
    lines = labelled(latency.answer.upper(), words, width, style="bold", label_style=_STYLE[latency.answer])
    lines += [
        *labelled("A", clean(a), width, label_style="dim"),
        *labelled("B", clean(b), width, label_style="dim"),
        Text(""),
    ]
    for figure in (latency, comparison.tail):
        lines += labelled(figure.percentile, _figure(figure), width)
    if comparison.misses is not None:
        lines += labelled("misses", _misses(comparison.misses), width)
    noise = f"floor {_ns(latency.floor_ns)}: {latency.floor_source}; {_BETWEEN}"
    lines += labelled("noise", noise, width, label_style="dim")
    for difference in comparison.differs:
        lines += labelled("differs", clean(difference), width, label_style="dim")
    if latency.answer != "no difference":
        lines += labelled("next", _NEXT, width)
    return join(lines)


def _figure(figure: LatencyContrast) -> str:
    if figure.a_ns is None or figure.b_ns is None:
        return f"{figure.answer}: {figure.reason}"
    ratio = f", {figure.b_ns / figure.a_ns:.3g} ×" if figure.a_ns > 0 else ""
    words = f"A {format_duration(figure.a_ns)}, B {format_duration(figure.b_ns)}{ratio}"
    if figure.low_ns is not None and figure.high_ns is not None:
        words += f"; B - A {_signed(figure.low_ns)} to {_signed(figure.high_ns)} ({percent(figure.confidence)} interval"
        words += f", n {format_count(figure.n_a)} and {format_count(figure.n_b)})"
    return f"{words}: {figure.answer}"


def _misses(m: MissContrast) -> str:
    counts = f"A {format_count(m.misses_a)} of {format_count(m.releases_a)}, B {format_count(m.misses_b)} of {format_count(m.releases_b)}"
    p = min(m.p_more, m.p_fewer)
    overruns = min(m.p_more_overruns, m.p_fewer_overruns)
    answer = {"more": "B misses more", "fewer": "B misses less"}.get(m.answer, m.answer)
    if m.higher and m.answer != "more":
        answer = "B's rate is higher, which may be chance; longer runs would tell (five overruns against none do)"
    return f"{counts}: {answer} (Fisher exact, one-sided: p {p:.2g} of misses, {overruns:.2g} of overruns)"


def _signed(ns: int) -> str:
    return format_duration(ns) if ns < 0 else f"+{format_duration(ns)}"


def _ns(ns: int | None) -> str:
    return "not known" if ns is None else format_duration(ns)
