"""A soak as text: a line a minute, first stretch against the last, where throttling began."""

from __future__ import annotations

from robot_perf.analyze.explain.soak import Minute, Soak
from robot_perf.render.cells import NO_VALUE
from robot_perf.render.grid import grid
from robot_perf.units import format_count, format_duration

__all__ = ["soak_text"]


def soak_text(soak: Soak) -> str:
    """The table and the two answers."""
    head = (
        "minute",
        "p50 ms",
        "p99 ms",
        "max ms",
        "misses",
        "device °C",
        "host °C",
        "device MHz",
        "CPU MHz",
        "W",
        "throttled",
    )
    lines = ["soak, by minute", grid(head, [_row(m) for m in soak.minutes], left=(10,))]
    if soak.stretch is None:
        lines.append("first against last: too few steps")
    else:
        s = soak.stretch
        ratio = s.last_p50_ns / max(s.first_p50_ns, 1)
        lines.append(
            f"first against last {format_duration(s.seconds * 1e9)}: p50 {_ms(s.first_p50_ns)} and {_ms(s.last_p50_ns)} ms ({ratio:.2f} ×;"
            f" last - first {s.difference_low_ns / 1000:+,.0f} to {s.difference_high_ns / 1000:+,.0f} µs, 95 %),"
            f" p99 {_ms(s.first_p99_ns)} and {_ms(s.last_p99_ns)} ms"
        )
    lines.append(
        "throttle onset: none seen"
        if soak.onset is None or soak.onset_s is None
        else f"throttle onset: after {format_duration(soak.onset_s * 1e9)}, {soak.onset}"
    )
    if soak.unread:
        lines.append(f"not readable here: {', '.join(soak.unread)}")
    return "\n".join(lines)


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
        ", ".join(m.throttle),
    )


def _ms(ns: int | None) -> str:
    return NO_VALUE if ns is None else f"{ns / 1e6:.3f}"


def _whole(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:.0f}"
