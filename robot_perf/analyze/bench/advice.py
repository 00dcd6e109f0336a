"""What to use at a rate: the backend and the keep-warm whose median is smallest, and cheapest among those that equal it."""

from __future__ import annotations

from collections.abc import Sequence

from robot_perf.analyze.bench.figures import within_noise
from robot_perf.run.bench_report import OK, TIGHT, Advice, Point, Row
from robot_perf.units import format_us

__all__ = ["AFFORDABLE", "advise"]

AFFORDABLE = 0.05  # of one processor: what a keep-warm may add without being asked about
_UNKNOWN_FLOOR = 0.05  # taken for noise among candidates without a floor: one block each


def advise(policy: str, rate: str, rows: Sequence[Row]) -> Advice:
    """Advice for one policy at one rate over its rows. Keep-warm counts where it adds at most 5 % of a processor.

    One whose median is longer than the period is no candidate. Candidates that lie within the noise of the best are equal:
    the median of all candidates' A/A floors, for one whose own blocks lie far apart must not win by that. Among equals no cure is better than one, then less CPU (in whole per cent of a
    core), then fewer parts. Watts are shown and decide nothing: between two blocks of one thing they differ by more than a
    cure costs. What the advised one can't be told from, by the floor of the answers, is named beside it: the fastest of all
    where that is another one, and the backends next to it with the same keep-warm.
    """
    candidates = [
        (row, point)
        for row in rows
        for point in row.points
        if row.policy == policy and point.rate == rate and point.status == OK and point.p("p50") is not None
    ]
    if not candidates:
        return Advice(policy, rate, f"at {_rate(rate)}: no backend gave a valid measurement")
    period = candidates[0][1].period_ns
    if period:
        keeping = [(r, p) for r, p in candidates if (p.p("p50") or 0) <= period]
        if not keeping:
            return Advice(policy, rate, f"at {_rate(rate)}: none of these: {_too_slow(candidates)}")
        candidates = keeping
    affordable = [(r, p) for r, p in candidates if _added_share(r, p) <= AFFORDABLE]
    floors = sorted(_floor(point) for _, point in candidates)
    noise = floors[len(floors) // 2]
    row, point = _cheapest_of_the_best(affordable or candidates, noise)
    best_row, best = _cheapest_of_the_best(candidates, noise)
    tight = row.point(TIGHT)
    tight_p50 = None if tight is None else tight.p("p50")
    p50 = point.p("p50") or 0
    times = None if not tight_p50 else p50 / tight_p50
    words = f"at {_rate(rate)}: {row.backend}{_with(point)}, p50 {format_us(p50)} µs{_price(row, point, times)}"
    if point.misses:
        words += f"; it missed {point.misses:,} of {point.releases:,} releases"
    plain = row.point(rate)
    if point.keep_warm != "none" and plain is not None and (without := plain.p("p50")) is not None:
        words += f"; without keep-warm {format_us(without)} µs"
    words += _beside(point, affordable or candidates, noise)
    if len(candidates) > 1 and all(len(p.blocks) == 1 for _, p in candidates):
        words += "; one block each: whether the others are slower by more than chance is not known"
    if (best_row.backend, best.keep_warm) != (row.backend, point.keep_warm) and (least := best.p("p50")) is not None:
        words += f"; at any price {best_row.backend}{_with(best)}, {format_us(least)} µs{_price(best_row, best, None)}"
        words += _beside(best, candidates, noise)
    return Advice(
        policy=policy,
        rate=rate,
        words=words,
        backend=row.backend,
        keep_warm=point.keep_warm,
        p50_ns=p50,
        times_tight=times,
        cpu_share=point.cpu_share,
        power_w=point.power_w,
    )


def _too_slow(candidates: Sequence[tuple[Row, Point]]) -> str:
    row, point = min(candidates, key=lambda c: c[1].p("p50") or 0)
    took = f"{format_us(point.p('p50') or 0)} µs (p50) of a period of {format_us(point.period_ns)} µs"
    return f"the fastest, {row.backend}{_with(point)}, takes {took}"


def _cheapest_of_the_best(candidates: Sequence[tuple[Row, Point]], noise: float) -> tuple[Row, Point]:
    """`noise` is a share of the smallest median: candidates within it are equal."""
    best = min(candidates, key=lambda c: c[1].p("p50") or 0)
    level = best[1].p("p50") or 0
    return min(
        (c for c in candidates if (c[1].p("p50") or 0) - level <= noise * level),
        key=lambda c: (c[1].keep_warm != "none", round(c[1].cpu_share or 0.0, 2), _parts(c[1]), c[1].p("p50") or 0),
    )


def _beside(point: Point, candidates: Sequence[tuple[Row, Point]], noise: float) -> str:
    """What else it might be: the fastest where it was not chosen, and the next backends where they are not told from it."""
    fastest = min(candidates, key=lambda c: c[1].p("p50") or 0)
    near, words = [], ""
    if fastest[1] is not point:
        if within_noise(point, fastest[1]):
            near.append(fastest)
        else:
            known = any(p.floor is not None for _, p in candidates)
            limit = "the median noise floor, " if known else ""
            words = f"; the fastest, {_named(*fastest)}, is no further from it than {limit}{noise * 100:.0f} %"
    # as in the answers: backends with the same keep-warm, each against the next faster one
    same = sorted((c for c in candidates if c[1].keep_warm == point.keep_warm), key=lambda c: c[1].p("p50") or 0)
    at = next(i for i, c in enumerate(same) if c[1] is point)
    near += [
        c for c in (*same[max(at - 1, 0) : at], *same[at + 1 : at + 2]) if c not in near and within_noise(point, c[1])
    ]
    return words + (f"; within noise of {' and of '.join(_named(*c) for c in near)}" if near else "")


def _named(row: Row, point: Point) -> str:
    return f"{row.backend}{_with(point)}, {format_us(point.p('p50') or 0)} µs{_price(row, point, None)}"


def _parts(point: Point) -> int:
    return 1 + point.keep_warm.count("+")


def _floor(point: Point) -> float:
    return _UNKNOWN_FLOOR if point.floor is None else point.floor


def _added_share(row: Row, point: Point) -> float:
    """What the keep-warm adds to the same backend without it, of one processor."""
    plain = row.point(point.rate)
    if point.keep_warm == "none" or plain is None or plain.cpu_share is None or point.cpu_share is None:
        return 0.0
    return point.cpu_share - plain.cpu_share


def _with(point: Point) -> str:
    return "" if point.keep_warm == "none" else f" with --keep-warm {point.keep_warm}"


def _price(row: Row, point: Point, times: float | None) -> str:
    parts = [f"{times:.1f} × tight"] if times is not None else []
    if point.cpu_share is not None:
        parts.append(f"{point.cpu_share * 100:.1f} % of a core")
    plain = row.point(point.rate)
    if point.keep_warm != "none" and plain is not None and plain.power_w is not None and point.power_w is not None:
        parts.append(f"{point.power_w - plain.power_w:+.1f} W")
    return f" ({', '.join(parts)})" if parts else ""


def _rate(rate: str) -> str:
    return "back to back" if rate == TIGHT else f"{rate} Hz"
