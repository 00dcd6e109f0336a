"""The figures of a bench: what a point's blocks say together, its noise floor, which of two backends is faster.

A/A floor: the blocks of one backend at one rate are runs of the same thing, interleaved with the others'. By how far their
medians scatter, two means of as many of them differ by chance; a difference between two backends inside what chance exceeds
in 5 %, from the blocks of both, is "no difference" (measurement.md §13). More blocks make the floor smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.timeline import Timeline, timeline
from robot_perf.analyze.validity import invalid_reasons
from robot_perf.run.bench_report import INVALID, OK, TIGHT, Answer, BenchReport, Block, Figure, Point
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run
from robot_perf.stats import contrast
from robot_perf.stats.ranks import Sample, not_estimable, parse_percentile, smallest_n, two_sided_ranks
from robot_perf.units import format_duration

__all__ = ["block_figures", "judged_again", "median_answer", "point_of", "with_penalty", "within_noise"]

PERCENTILES = ("p50", "p90", "p99", "p99.9")
_CURVE = 80
_CONFIDENCE = 0.95
_HALF = Fraction(1, 2)

Ints = NDArray[np.int64]


def executions(run: Run) -> Ints:
    """Execution time of the executed steps of the window, ns, in order: host in to host out."""
    return timeline(run).execution_ns


def block_figures(run: Run, order: int, file: str) -> Block:
    """What one block says on its own; the device's part is added by whoever watched the device."""
    values = executions(run)
    sample = Sample.of(values)
    usage = run.conditions.get("usage") or {}
    warm = run.conditions.get("warmup") or {}
    window = int(usage.get("window_ns", 0))
    own = run.measured["own_ns"]
    own = own[own >= 0]
    return Block(
        order=order,
        n=len(values),
        p50_ns=_value(sample, "p50"),
        p99_ns=_value(sample, "p99"),
        max_ns=int(values.max()) if len(values) else None,
        window_ns=window,
        warmup_calls=int(warm.get("calls", 0)),
        settled=bool(warm.get("settled", False)),
        cpu_share=usage["process_cpu_ns"] / window if window and "process_cpu_ns" in usage else None,
        run=file,
        own_p50_ns=int(np.median(own)) if len(own) else None,
    )


def _value(sample: Sample, name: str) -> int | None:
    p = parse_percentile(name)
    return int(sample.percentile(p)) if sample.n >= smallest_n(p, _CONFIDENCE) else None


def point_of(rate: str, period_ns: int, keep_warm: str, runs: Sequence[Run], blocks: Sequence[Block]) -> Point:
    """All blocks of a point together. INVALID when one block is: a backend that failed once has no figures."""
    reasons = [reason for run in runs for reason in invalid_reasons(run)]
    if reasons or not runs:
        why = reasons[0] if reasons else "no block of it was run"
        return Point(rate, period_ns, keep_warm, INVALID, why, blocks=tuple(blocks))
    lines = [timeline(run) for run in runs]
    series = [line.execution_ns for line in lines]
    pooled = np.concatenate(series)
    if not len(pooled):
        return Point(rate, period_ns, keep_warm, INVALID, "no step finished in the window", blocks=tuple(blocks))
    floor, floor_reason = noise_floor(series)
    shares = [b.cpu_share for b in blocks if b.cpu_share is not None]
    notes = [
        f"warm-up of block {b.order} did not settle within {b.warmup_calls} calls" for b in blocks if not b.settled
    ]
    return Point(
        rate=rate,
        period_ns=period_ns,
        keep_warm=keep_warm,
        status=OK,
        n=len(pooled),
        execution=figures(pooled),
        execution_max_ns=int(pooled.max()),
        response=figures(np.concatenate([line.response_ns for line in lines]), sum(line.infinite for line in lines)),
        wakeup_p50_ns=_median(np.concatenate([_wakeup(line) for line in lines])),
        device_p50_ns=_median(np.concatenate([_device(run) for run in runs])),
        releases=sum(line.releases for line in lines),
        misses=sum(int(line.miss.sum()) for line in lines) if period_ns else 0,
        floor=floor,
        floor_reason=floor_reason,
        cpu_share=sum(shares) / len(shares) if shares else None,
        curve=curve(pooled),
        blocks=tuple(blocks),
        notes=tuple(notes),
    )


def _wakeup(line: Timeline) -> Ints:
    waited = line.wake != NOT_MEASURED
    latency: Ints = (line.wake - line.release)[waited]
    return latency


def _device(run: Run) -> Ints:
    values = run.measured["device_ns"] if "device_ns" in run.columns else np.zeros(0, np.int64)
    marked: Ints = values[values != NOT_MEASURED]
    return marked


def _median(values: Ints) -> int | None:
    return int(Sample.of(values).percentile(Fraction(1, 2))) if len(values) else None


def figures(values: Ints, infinite: int = 0) -> tuple[Figure, ...]:
    """Percentiles with their order-statistic intervals; skipped releases are +infinity above all values."""
    sample = Sample.of(values, infinite)
    found = []
    for name in PERCENTILES:
        p = parse_percentile(name)
        if sample.n < smallest_n(p, _CONFIDENCE):
            found.append(Figure(name, None, reason=not_estimable(p, _CONFIDENCE)))
            continue
        value = sample.percentile(p)
        ranks = two_sided_ranks(p, sample.n, _CONFIDENCE)
        low, high = (None if rank is None else _whole(sample.at(rank)) for rank in (ranks.lower, ranks.upper))
        found.append(Figure(name, _whole(value), low, high, "skipped" if math.isinf(value) else None))
    return tuple(found)


def _whole(value: float) -> int | None:
    return None if math.isinf(value) else int(value)


def curve(values: Ints) -> tuple[tuple[float, int], ...]:
    """(1 - p, value) at ranks that are dense towards the tail: what the percentile picture draws."""
    ordered, n = np.sort(values), len(values)
    if n < 2:
        return ()
    ranks = n - np.unique(np.geomspace(1, n - 1, _CURVE).astype(np.int64))[::-1]
    return tuple((round(1 - int(r) / n, 9), int(ordered[r - 1])) for r in ranks)


def noise_floor(series: Sequence[Ints]) -> tuple[float | None, str]:
    """A/A floor of one backend's blocks, as a share of the median: a best guess, `typical_floor`."""
    return _own_floor(_medians(series))


def _medians(series: Sequence[Ints]) -> list[int]:
    """Of each block that has steps enough for a median."""
    return [int(contrast.quantile(s, _HALF)) for s in series if len(s) >= smallest_n(_HALF, _CONFIDENCE)]


def _own_floor(medians: Sequence[int]) -> tuple[float | None, str]:
    if len(medians) < 2:
        return None, "one block says nothing about how far blocks of the same backend differ"
    if not min(medians) > 0:
        return None, "the median is zero"
    log_ratio = contrast.typical_floor(np.array(medians), _CONFIDENCE) or 0.0
    return -math.expm1(-log_ratio), f"{len(medians)} blocks of the same backend, interleaved"


def with_penalty(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points with their duty-cycle penalty: p50 over the p50 back to back without keep-warm (metric 19)."""
    tight = next((p.p("p50") for p in points if p.rate == TIGHT and p.status == OK), None)

    def one(point: Point) -> Point:
        value = point.p("p50")
        if point.rate == TIGHT or tight is None or not tight or value is None:
            return point
        return replace(point, penalty=value / tight)

    return tuple(one(p) for p in points)


def median_answer(
    policy: str, rate: str, a: tuple[str, Point, Sequence[Run]], b: tuple[str, Point, Sequence[Run]]
) -> Answer:
    """B seen from A: (label, point, runs) each. Three-valued against the A/A floor of their blocks."""
    (name_a, _, runs_a), (name_b, _, runs_b) = a, b
    bad = [f"{name} is {p.status}" for name, p, _ in (a, b) if p.status != OK]
    if bad:
        return Answer(policy, rate, name_a, name_b, "can't say", "; ".join(bad))
    blocks_a, blocks_b = ([executions(r) for r in runs] for runs in (runs_a, runs_b))
    x, y = np.concatenate(blocks_a), np.concatenate(blocks_b)
    if min(len(x), len(y)) < smallest_n(_HALF, _CONFIDENCE):
        return Answer(policy, rate, name_a, name_b, "can't say", f"the median is {not_estimable(_HALF)}")
    d = contrast.median_difference(x, y, confidence=_CONFIDENCE)
    found = Answer(policy, rate, name_a, name_b, "", "", round(d.value), round(d.low), round(d.high))
    return _judged(found, _floor_between(_medians(blocks_a), _medians(blocks_b)), max(d.a, d.b))


def _floor_between(a: Sequence[int], b: Sequence[int]) -> float | None:
    """The A/A floor between two backends, as a share of the larger median: there log(B / A) is as far in either direction.

    None where one block each leaves nothing to tell it from, or a median is zero.
    """
    if min((*a, *b), default=0) <= 0:
        return None
    log_ratio = contrast.block_floor(np.array(a), np.array(b), _CONFIDENCE)
    return None if log_ratio is None else -math.expm1(-log_ratio)


def _judged(found: Answer, share: float | None, median_ns: float) -> Answer:
    """The answer against the floor, a `share` of the larger median: the interval wholly beyond it, the difference inside it, or neither.

    Not the interval inside it: the blocks' scatter holds the noise within them already, and where there is no other the two
    are as wide, so that backends which are the same would be "can't say" the more often, the more blocks they have.
    """
    value, low, high = found.difference_ns or 0, found.low_ns or 0, found.high_ns or 0
    words = f"{found.b} - {found.a} is {_signed(value)} ({_signed(low)} to {_signed(high)}, 95 %)"
    if share is None:
        reason = f"{words}, and there is no A/A noise floor to hold it against: --blocks 2 or more would tell"
        return replace(found, answer="can't say", reason=reason, floor_ns=None)
    floor = share * median_ns
    limit = f"noise floor {format_duration(floor)}"
    if high < -floor:
        answer, reason = "faster", f"{words}, beyond the {limit}"
    elif low > floor:
        answer, reason = "slower", f"{words}, beyond the {limit}"
    elif abs(value) <= floor:
        answer, reason = "no difference", f"{words}, inside the {limit}"
    else:
        answer, reason = "can't say", f"{words}, reaches across the {limit}: more blocks would tell"
    return replace(found, answer=answer, reason=reason, floor_ns=round(floor))


def judged_again(report: BenchReport) -> BenchReport:
    """The report with its floors and answers by today's rules, from the medians of its blocks; the Runs are not needed."""
    rows = tuple(replace(row, points=tuple(_with_floor(p) for p in row.points)) for row in report.rows)
    points = {(row.policy, row.backend, p.rate): p for row in rows for p in row.points if p.keep_warm == "none"}

    def again(answer: Answer) -> Answer:
        a, b = (points.get((answer.policy, name, answer.rate)) for name in (answer.a, answer.b))
        if answer.low_ns is None or answer.high_ns is None or a is None or b is None or not (a.blocks and b.blocks):
            return answer
        share = _floor_between(_block_medians(a), _block_medians(b))
        return _judged(answer, share, max(a.p("p50") or 0, b.p("p50") or 0))

    return replace(report, rows=rows, answers=tuple(again(a) for a in report.answers))


def within_noise(a: Point, b: Point) -> bool | None:
    """Whether the medians of two points differ by no more than the floor of `median_answer`; None where there is none."""
    p50_a, p50_b = a.p("p50"), b.p("p50")
    if p50_a is None or p50_b is None or not (a.blocks and b.blocks):
        return None
    share = _floor_between(_block_medians(a), _block_medians(b))
    return None if share is None else abs(p50_a - p50_b) <= share * max(p50_a, p50_b)


def _block_medians(point: Point) -> list[int]:
    return [block.p50_ns for block in point.blocks if block.p50_ns is not None]


def _with_floor(point: Point) -> Point:
    if point.status != OK or not point.blocks:
        return point
    floor, reason = _own_floor(_block_medians(point))
    return replace(point, floor=floor, floor_reason=reason)


def _signed(ns: float) -> str:
    return format_duration(ns) if ns < 0 else f"+{format_duration(ns)}"
