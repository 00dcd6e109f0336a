"""Two Runs side by side: faster, slower, no difference or can't say, and who misses more (measurement.md §13).

A difference counts only beyond the noise floor: the largest of the drift within the two Runs, 5 % of A and, where there is
one, an A/A pair (two Runs of the same thing). A pair can only raise it: that two identical runs happened to lie close says
little, for the next two lie further apart in half of all cases. No floor makes two Runs enough for a difference of the size
by which runs of the same thing differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.comparison.comparable import Difference, checked_differences, named_differences
from robot_perf.analyze.timeline import Timeline, timeline
from robot_perf.analyze.validity import invalid_reasons
from robot_perf.errors import UsageError
from robot_perf.run.model import Run
from robot_perf.stats import contrast
from robot_perf.stats.burst import miss_runs
from robot_perf.stats.ranks import not_estimable, parse_percentile, smallest_n
from robot_perf.units import format_duration

__all__ = ["Comparison", "DutyCycle", "LatencyContrast", "MissContrast", "compare", "duty_cycle_penalty"]

FASTER, SLOWER, NO_DIFFERENCE, CANT_SAY = "faster", "slower", "no difference", "can't say"
_LEAST_FLOOR = 0.05  # of A: identical runs are known to differ by more


@dataclass(frozen=True, slots=True)
class LatencyContrast:
    """B against A in one percentile of response time, all releases; ns. None where a side is a skipped release."""

    percentile: str
    answer: str  # faster | slower | no difference | can't say: B, seen from A
    reason: str
    a_ns: int | None
    b_ns: int | None
    difference_ns: int | None
    low_ns: int | None
    high_ns: int | None
    floor_ns: int | None
    floor_source: str
    mann_whitney_p: float | None
    n_a: int
    n_b: int
    confidence: float
    ratio_low: float | None  # interval of B over A; None: without bound, for B's percentile is a skipped release there
    ratio_high: float | None


@dataclass(frozen=True, slots=True)
class MissContrast:
    """B's misses against A's by Fisher's exact test, one-sided. The p-values of overruns hold where misses cluster."""

    answer: str  # "more", "fewer" or "no difference shown": B, seen from A
    misses_a: int
    releases_a: int
    misses_b: int
    releases_b: int
    overruns_a: int
    overruns_b: int
    p_more: float
    p_fewer: float
    p_more_overruns: float
    p_fewer_overruns: float

    @property
    def higher(self) -> bool:
        """Whether B's share of misses is above A's, shown or not."""
        return self.misses_b * self.releases_a > self.misses_a * self.releases_b


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answers on two comparable Runs, and what else differs between them. `misses` None for back-to-back Runs."""

    latency: LatencyContrast
    tail: LatencyContrast
    misses: MissContrast | None
    differs: tuple[Difference, ...]


def compare(
    a: Run, b: Run, *, same: tuple[Run, Run] | None = None, confidence: float = 0.95, allow: tuple[str, ...] = ()
) -> Comparison:
    """B seen from A. `same` is an A/A pair; `allow` names checked conditions that may differ.

    Raises UsageError "not comparable" with the fields, both values and the options that allow them, or with the reason
    why a Run is INVALID.
    """
    _refuse(a, b, allow)
    line_a, line_b = timeline(a), timeline(b)
    pair = None
    if same is not None:
        _refuse(*same, allow)
        _refuse(a, same[0], allow)
        pair = (timeline(same[0]), timeline(same[1]))
    return Comparison(
        latency=_latency("p50", line_a, line_b, pair, confidence),
        tail=_latency("p99", line_a, line_b, pair, confidence),
        misses=_misses(line_a, line_b, confidence) if a.loop.period_ns else None,
        differs=named_differences(a, b),
    )


def _refuse(a: Run, b: Run, allow: tuple[str, ...]) -> None:
    differing = [d for d in checked_differences(a, b) if d.field not in allow]
    if differing:
        fields = [d.field for d in differing]
        raise UsageError(
            f"not comparable: {', '.join(fields)} {'differs' if len(fields) == 1 else 'differ'}",
            why="; ".join(str(d) for d in differing),
            do="Measure both under the same conditions, or compare in spite of it: "
            + " ".join(f"--allow {field}" for field in fields),
        )
    for name, run in (("A", a), ("B", b)):
        reasons = invalid_reasons(run)
        if reasons:
            raise UsageError(f"not comparable: {name} is INVALID", why=reasons[0], do="Measure it again.")


def _responses(line: Timeline) -> NDArray[np.float64]:
    """One value per release in order of release; +infinity where there is no finish."""
    values = np.full(line.releases, math.inf)
    values[line.step] = line.response_ns
    return values


def _contrast(percentile: str, a: Timeline, b: Timeline, confidence: float) -> contrast.Difference | None:
    """The interval of B - A; None where a side has too few releases for the percentile."""
    p = parse_percentile(percentile)
    if min(a.releases, b.releases) < smallest_n(p, confidence):
        return None
    x, y = _responses(a), _responses(b)
    if p == Fraction(1, 2):
        return contrast.median_difference(x, y, confidence=confidence)
    return contrast.quantile_difference(x, y, p, confidence=confidence)


def _latency(
    percentile: str, a: Timeline, b: Timeline, same: tuple[Timeline, Timeline] | None, confidence: float
) -> LatencyContrast:
    found = _contrast(percentile, a, b, confidence)
    floor, source = _floor(percentile, a, b, same, confidence)
    p_value = contrast.mann_whitney(_responses(a), _responses(b)) if a.releases and b.releases else None
    if found is None:
        answer, reason = CANT_SAY, f"{percentile} {not_estimable(parse_percentile(percentile), confidence)}"
    else:
        answer, reason = _answer(percentile, found, floor, p_value)
    return LatencyContrast(
        percentile=percentile,
        answer=answer,
        reason=reason,
        a_ns=_whole(found.a) if found else None,
        b_ns=_whole(found.b) if found else None,
        difference_ns=_whole(found.value) if found else None,
        low_ns=_whole(found.low) if found else None,
        high_ns=_whole(found.high) if found else None,
        floor_ns=_whole(floor),
        floor_source=source,
        mann_whitney_p=p_value,
        n_a=a.releases,
        n_b=b.releases,
        confidence=confidence,
        ratio_low=found.ratio_low if found and math.isfinite(found.ratio_low) else None,
        ratio_high=found.ratio_high if found and math.isfinite(found.ratio_high) else None,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value)


def _floor(
    percentile: str, a: Timeline, b: Timeline, same: tuple[Timeline, Timeline] | None, confidence: float
) -> tuple[float | None, str]:
    """The largest difference that is taken for noise, ns, and which of its sources that is."""
    p = parse_percentile(percentile)
    shifts, level = [0.0], math.inf
    for line in (a, b):
        values = _responses(line)
        half = len(values) // 2
        if half < smallest_n(p, confidence):
            continue
        first, second = contrast.quantile(values[:half], p), contrast.quantile(values[half:], p)
        shifts.append(0.0 if first == second else abs(second - first))
    if a.releases:
        level = contrast.quantile(_responses(a), p)
    sources = {"drift within the Runs": max(shifts), "5 % of A": _LEAST_FLOOR * level}
    if same is not None:
        noise = _contrast(percentile, *same, confidence)
        if noise is None or not math.isfinite(max(abs(noise.low), abs(noise.high))):
            return None, "the A/A pair has no finite interval"
        sources["A/A pair"] = max(abs(noise.low), abs(noise.high))
    source = max(sources, key=lambda name: sources[name])
    if not math.isfinite(sources[source]):
        return None, "a skipped release has no finite noise floor"
    others = " and ".join(name for name in sources if name != source)
    return sources[source], f"{source}, the largest of it, {others}" if same else f"{source}, more than {others}"


def _answer(percentile: str, d: contrast.Difference, floor: float | None, p_value: float | None) -> tuple[str, str]:
    """Three-valued: wholly beyond the floor, wholly inside it, or neither."""
    if not (math.isfinite(d.a) and math.isfinite(d.b)):
        return CANT_SAY, f"{percentile} is a skipped release in {'both' if d.a == d.b else 'A' if d.b < d.a else 'B'}"
    if floor is None:
        return CANT_SAY, "the noise floor is unknown"
    interval = f"B - A is {_signed(d.low)} to {_signed(d.high)} ({d.confidence * 100:g} %)"
    limit = f"noise floor {format_duration(floor)}"
    sure = p_value is None or percentile != "p50" or p_value < 1 - d.confidence
    if d.high < -floor and sure:
        return FASTER, f"{interval}, beyond the {limit}"
    if d.low > floor and sure:
        return SLOWER, f"{interval}, beyond the {limit}"
    if -floor <= d.low and d.high <= floor:
        return NO_DIFFERENCE, f"not distinguishable: {interval}, inside the {limit}"
    return CANT_SAY, f"{interval} reaches across the {limit}"


def _signed(ns: float) -> str:
    if not math.isfinite(ns):
        return "without bound"
    return format_duration(ns) if ns < 0 else f"+{format_duration(ns)}"


def _misses(a: Timeline, b: Timeline, confidence: float) -> MissContrast:
    runs_a, runs_b = miss_runs(a.miss), miss_runs(b.miss)
    k_a, n_a, k_b, n_b = runs_a.misses, a.releases, runs_b.misses, b.releases
    more, fewer = contrast.fisher_more(k_a, n_a, k_b, n_b), contrast.fisher_more(k_b, n_b, k_a, n_a)
    more_runs = contrast.fisher_more(runs_a.runs, n_a, runs_b.runs, n_b)
    fewer_runs = contrast.fisher_more(runs_b.runs, n_b, runs_a.runs, n_a)
    level = 1 - confidence
    if max(more, more_runs) < level:
        answer = "more"
    elif max(fewer, fewer_runs) < level:
        answer = "fewer"
    else:
        answer = "no difference shown"
    return MissContrast(answer, k_a, n_a, k_b, n_b, runs_a.runs, runs_b.runs, more, fewer, more_runs, fewer_runs)


@dataclass(frozen=True, slots=True)
class DutyCycle:
    """Median execution at the control rate over median execution back to back (metric 19), with both and their n."""

    paced_ns: int
    tight_ns: int
    ratio: float
    n_paced: int
    n_tight: int


def duty_cycle_penalty(paced: Run, tight: Run) -> DutyCycle | None:
    """How much longer a spaced-out call takes; None where a Run has too few steps for a median.

    Raises UsageError unless `tight` is a back-to-back Run of the same policy on the same host.
    """
    if tight.loop.period_ns != 0 or paced.loop.period_ns == 0:
        raise UsageError("the duty-cycle penalty needs a paced and a back-to-back Run")
    grid = ("loop.period_ns", "loop.deadline_ns", "loop.overrun", "loop.shape")
    _refuse(paced, tight, grid)
    values = [timeline(run).execution_ns for run in (paced, tight)]
    if min(len(v) for v in values) < smallest_n(Fraction(1, 2), 0.95):
        return None
    medians = [int(contrast.quantile(v, Fraction(1, 2))) for v in values]
    return DutyCycle(medians[0], medians[1], medians[0] / max(medians[1], 1), len(values[0]), len(values[1]))
