"""A bench's table of phases: where a device backend's execution goes at each rate."""

from __future__ import annotations

from collections.abc import Sequence

from robot_perf.render.bench.remarks import by_words, rate_words
from robot_perf.render.cells import NO_VALUE
from robot_perf.render.parts.phases import PHASE_WORDS
from robot_perf.run.bench_report import OK, Row

__all__ = ["GROUPS", "HEAD", "TITLE", "phase_notes", "phase_rows"]

TITLE = "Phases: p50 µs of a pass of their own after a block, without keep-warm"
# the host's four add up to its execution; the device works while the host queues and waits
_HOST, _DEVICE = ("host_prepare", "launch", "wait", "host_finish"), ("h2d", "policy", "d2h")
HEAD = ("backend", "rate", "prepare", "queue", "wait", "finish", *(PHASE_WORDS[n] for n in _DEVICE), "steps")
GROUPS = ("", "", "host", "", "", "", "device", "", "", "pass")


def phase_rows(rates: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[str, ...], ...]:
    """A row of cells by backend and rate; points without a median have none."""
    return tuple(
        (
            row.backend,
            rate_words(rate),
            *(_us(point.phases_p50_ns.get(name)) for name in (*_HOST, *_DEVICE)),
            str(point.phase_steps),
        )
        for row in rows
        if row.status == OK
        for rate in rates
        if (point := row.point(rate)) is not None and point.status == OK and point.phases_p50_ns
    )


def phase_notes(rates: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """(backend and rate, why it has no phases), where a pass was tried."""
    found = [
        (f"{row.backend} at {rate_words(rate)}", f"no phases: {point.phases_reason}")
        for row in rows
        if row.status == OK
        for rate in rates
        if (point := row.point(rate)) is not None and point.phases_reason
    ]
    return by_words(found)


def _us(ns: int | None) -> str:
    return NO_VALUE if ns is None else f"{ns / 1000:,.1f}" if ns < 1_000_000 else f"{ns / 1000:,.0f}"
