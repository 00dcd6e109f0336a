"""What stands under a bench's tables: rows without figures and why, and what must be known of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robot_perf.analyze.bench.speeds import WHOSE, apart_with_ours
from robot_perf.run.bench_report import OK, TIGHT, Row
from robot_perf.units import format_count

__all__ = ["COMPILED", "by_words", "compile_ns", "rate_words", "reasons_of", "remarks_of"]

COMPILED = "* build: its first call less its third; torch compiles when it is first called. Part of the first action"
_CALLS = 3
_AT_LEAST = 10  # times the third call: less is a cold call, not a compile


def compile_ns(row: Row) -> int | None:
    """What compiling took, where a backend compiles in its first call and so has no build of its own."""
    calls = row.first_calls_ns
    if row.name != "compile" or row.build_ns is not None or len(calls) < _CALLS or calls[0] < _AT_LEAST * calls[2]:
        return None
    return calls[0] - calls[2]


def rate_words(rate: str) -> str:
    """`50 Hz`, or `tight`."""
    return TIGHT if rate == TIGHT else f"{rate} Hz"


def reasons_of(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """(backend, status, words) of rows and points without figures; refused keep-warms stand under their own table."""
    found = [(r.backend, r.status, r.reason) for r in rows if r.status != OK]
    for row in rows:
        if row.status == OK:
            found += [
                (f"{row.backend} at {rate_words(p.rate)}", p.status, p.reason)
                for p in row.points
                if p.status != OK and p.keep_warm == "none"
            ]
    return found


def remarks_of(rates: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """What a reader must know of the rows with figures, said once for all backends of which it is true."""
    found = [(row.backend, note) for row in rows if row.status == OK for note in row.notes]
    for row in rows:
        if row.status != OK:
            continue
        found += [(row.backend, words) for words in _counted(row)]
        for rate in [r for r in rates if r != TIGHT][1:]:  # the first rate's stand among the costs
            point = row.point(rate)
            if point is not None and point.status == OK and point.misses:
                missed = f"{format_count(point.misses)} of {format_count(point.releases)} releases missed"
                found.append((row.backend, f"at {rate_words(rate)} {missed}"))
        apart = [
            f"at {rate_words(p.rate)}{'' if p.keep_warm == 'none' else f' with {p.keep_warm}'} {words}"
            for p in row.points
            if p.status == OK and (words := apart_with_ours(p.blocks))
        ]
        if apart:
            words = f"blocks lie apart, and our own work between the steps with them: {', '.join(apart)}"
            found.append((row.backend, f"{words}: {WHOSE}"))
        blocks = [b for p in row.points if p.status == OK for b in p.blocks]
        restless = sum(not b.settled for b in blocks)
        if restless:
            found.append((row.backend, f"the warm-up had not settled before {restless} of {len(blocks)} blocks"))
    return by_words(found)


def _counted(row: Row) -> list[str]:
    """What a backend counted since it was loaded (compiles, graph breaks, skipped CUDA graphs), with its latest reason."""
    counted, reasons = row.facts.get("counted"), row.facts.get("counted_because")
    if not isinstance(counted, Mapping):
        return []
    why = reasons if isinstance(reasons, Mapping) else {}
    known = [(name, n, f" ({why[name]})" if name in why else "") for name, n in counted.items() if n]
    return [f"{name} since it was loaded: {n}{because}" for name, n, because in known]


def by_words(notes: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """(whose, words) with one entry for equal words: five cures refused for one reason are one line."""
    whose: dict[str, list[str]] = {}
    for who, words in notes:
        whose.setdefault(words, []).append(who)
    return tuple((", ".join(dict.fromkeys(who)), words) for words, who in whose.items())
