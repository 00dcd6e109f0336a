"""A soak in words: a row a minute, first stretch against the last, where throttling began."""

from __future__ import annotations

from rich.text import Text

from robot_perf.analyze.explain.soak import Minute, Soak
from robot_perf.render.cells import NO_VALUE
from robot_perf.render.grid import columns_that_fit, grid
from robot_perf.render.lines import clean, hanging
from robot_perf.units import format_count, format_duration

__all__ = ["soak_answers", "soak_lines", "soak_table"]

_HEAD = (
    "minute", "p50 ms", "p99 ms", "max ms", "misses", "device °C", "host °C", "device MHz", "CPU MHz", "W", "throttled",
)  # fmt: skip
_KEPT = 5  # columns that stand whether or not anything was read
_GAP = 2


def soak_table(soak: Soak) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Head and rows, without the columns that nothing could fill: those are named in an answer."""
    rows = [_row(m) for m in soak.minutes]
    full = [i for i in range(len(_HEAD)) if i < _KEPT or any(row[i] not in (NO_VALUE, "") for row in rows)]
    return tuple(_HEAD[i] for i in full), tuple(tuple(row[i] for i in full) for row in rows)


def soak_answers(soak: Soak) -> list[str]:
    """First against last, the throttle onset, what could not be read."""
    answers = ["first against last: too few steps" if soak.stretch is None else _stretch(soak)]
    if soak.onset is not None and soak.onset_s is not None:
        answers.append(f"throttle onset: after {format_duration(soak.onset_s * 1e9)}, {clean(soak.onset)}")
    elif soak.watched:
        answers.append(f"throttle onset: none seen in {' and '.join(soak.watched)}")
    else:
        answers.append("throttle onset: not known, for neither a device's clock nor its throttle reasons could be read")
    if soak.unread:
        answers.append(f"not readable here: {', '.join(soak.unread)}")
    return answers


def soak_lines(soak: Soak, width: int) -> list[Text | str]:
    """The table and the answers, for a screen of `width` columns."""
    head, rows = soak_table(soak)
    left = {i for i, word in enumerate(head) if word == "throttled"}
    lines: list[Text | str] = ["soak, by minute: response of the steps that ran"]
    for chosen in columns_that_fit([head, *rows], range(len(head)), 1, width, gap=_GAP):
        first, *others = [tuple(row[i] for i in chosen) for row in (head, *rows)]
        lines += grid(first, others, left=[at for at, i in enumerate(chosen) if i in left], gap=_GAP).split("\n")
    for words in soak_answers(soak):
        first_line, *more = hanging(words, width, 2)
        lines += [first_line, *[f"  {line}" for line in more]]
    return lines


def _stretch(soak: Soak) -> str:
    s = soak.stretch
    assert s is not None
    ratio = s.last_p50_ns / max(s.first_p50_ns, 1)
    words = (
        f"first against last {format_duration(s.seconds * 1e9)}: p50 {_ms(s.first_p50_ns)} and {_ms(s.last_p50_ns)} ms ({ratio:.2f} ×;"
        f" last - first {s.difference_low_ns / 1000:+,.0f} to {s.difference_high_ns / 1000:+,.0f} µs, 95 %)"
    )
    if s.first_p99_ns is None or s.last_p99_ns is None:
        return f"{words}, too few steps for a p99"
    return f"{words}, p99 {_ms(s.first_p99_ns)} and {_ms(s.last_p99_ns)} ms"


def _row(m: Minute) -> tuple[str, ...]:
    return (
        str(m.minute),
        _ms(m.p50_ns),
        _ms(m.p99_ns),
        _ms(m.max_ns),
        format_count(m.misses),
        _whole(m.device_c),
        _whole(m.host_c),
        _whole(None if m.device_hz is None else m.device_hz / 1e6),
        _whole(None if m.cpu_hz is None else m.cpu_hz / 1e6),
        _whole(m.power_w),
        clean(", ".join(m.throttle)),
    )


def _ms(ns: int | None) -> str:
    return NO_VALUE if ns is None else f"{ns / 1e6:.3f}"


def _whole(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:.0f}"
