"""The distributions of a Run, each with the text of its definition (measurement.md §3; docs/metrics.md)."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from robot_perf.analyze.distribution import JITTER_PERCENTILES, distribution, suppressed
from robot_perf.analyze.timeline import Ints, Timeline
from robot_perf.analyze.types import Distribution, ReleaseJitter
from robot_perf.run.columns import NOT_MEASURED, stage_column
from robot_perf.run.model import Run
from robot_perf.stats.ranks import Sample, parse_percentile

__all__ = [
    "OVERLOAD",
    "Distributions",
    "distributions",
    "harness",
    "offered_load",
    "release_jitter",
    "response",
    "response_executed",
]

OVERLOAD = "offered load exceeds capacity"
OBSERVATION_COLUMN = "observation_ns"  # monotonic stamp at which the observation arrived in this process


class Distributions(TypedDict):
    """The distributions of a Summary, by field name."""

    response: Distribution
    response_executed: Distribution
    start_latency: Distribution
    execution: Distribution
    device: Distribution | None
    wakeup: Distribution
    period_jitter: Distribution
    period_jitter_without_gaps: Distribution
    output_jitter: Distribution
    output_jitter_without_gaps: Distribution
    lateness: Distribution
    staleness: Distribution
    observation_age: Distribution | None
    harness: Distribution


def distributions(run: Run, line: Timeline, missing: dict[str, str], *, overloaded: bool) -> Distributions:
    """All of them; `missing` receives the metrics this Run can't have, with the reason.

    Under `queue` with an offered load above capacity the backlog grows for as long as the run lasts: response, start
    latency, lateness and staleness then say how long it lasted, and are suppressed.
    """
    growing = overloaded and line.overrun == "queue"
    gapless = ~line.has_gap
    after = line.step[1:]
    return Distributions(
        response=response(line, growing=growing),
        response_executed=response_executed(line, growing=growing),
        start_latency=_of(
            "start latency", "s - r: wake-up, backlog, work before the call", line.start_latency_ns, line, growing
        ),
        execution=distribution(
            "execution time", "f - s on the host, device work complete", line.execution_ns, line.step
        ),
        device=_device(run, line, missing),
        wakeup=wakeup(line),
        period_jitter=_jitter("period jitter", "(s - s_prev) - T", line.period_jitter_ns, after),
        period_jitter_without_gaps=_jitter(
            "period jitter", "(s - s_prev) - T, no skip between", line.period_jitter_ns[gapless], after[gapless]
        ),
        output_jitter=_jitter("output jitter", "(f - f_prev) - T", line.output_jitter_ns, after),
        output_jitter_without_gaps=_jitter(
            "output jitter", "(f - f_prev) - T, no skip between", line.output_jitter_ns[gapless], after[gapless]
        ),
        lateness=_of("lateness", "f - r - D: negative is slack", line.lateness_ns, line, growing, line.infinite),
        staleness=_staleness(line, growing),
        observation_age=_observation_age(run, line, missing),
        harness=harness(run, line),
    )


def response(line: Timeline, *, growing: bool = False) -> Distribution:
    """Response time over all releases: one that was skipped or never finished is +infinity."""
    text = "f - r, from the intended release; a skipped release is infinite"
    return _of("response time", text, line.response_ns, line, growing, line.infinite)


def response_executed(line: Timeline, *, growing: bool = False) -> Distribution:
    """Response time of the jobs that ran: better than `response` where releases were dropped, so it never decides."""
    text = "f - r of jobs that ran"
    return _of("response time, executed jobs only", text, line.response_ns, line, growing)


def wakeup(line: Timeline) -> Distribution:
    """Wake-up latency of the jobs that waited."""
    return distribution("wake-up latency", "w - r, only steps that waited", line.wakeup_ns, line.step[line.waited])


def harness(run: Run, line: Timeline) -> Distribution:
    """The harness's own work per step; shown, never subtracted."""
    own, steps = _column(run, line, "own_ns")
    return distribution("harness overhead", "wake to start plus end to ready, never subtracted", own, steps)


def stages(run: Run, line: Timeline) -> tuple[Distribution, ...]:
    """Execution time of each stage of a pipeline, from the end of the one before; empty for a single policy."""
    found = []
    begin = line.start
    for stage in run.policy.stages:
        name = stage_column(stage.name)
        if name not in run.columns:
            return ()
        end, steps = _column(run, line, name)
        if len(end) != len(begin):
            return ()
        text = f"end of stage {stage.name} minus the end of what came before it in the step"
        found.append(distribution(f"stage {stage.name}", text, end - begin, steps))
        begin = end
    return tuple(found)


def _of(metric: str, text: str, values: Ints, line: Timeline, growing: bool, infinite: int = 0) -> Distribution:
    if growing:
        return suppressed(metric, text, len(values) + infinite, OVERLOAD)
    return distribution(metric, text, values, line.step, infinite=infinite)


def _jitter(metric: str, text: str, values: Ints, steps: Ints) -> Distribution:
    return distribution(metric, text, values, steps, percentiles=JITTER_PERCENTILES)


def _staleness(line: Timeline, growing: bool) -> Distribution:
    text = "r - s of the newest job finished by the release r"
    if growing:
        return suppressed("action staleness", text, line.releases, OVERLOAD)
    values = line.staleness_ns
    releases = np.arange(line.releases - len(values), line.releases, dtype=np.int64)
    return distribution("action staleness", text, values, releases)


def _column(run: Run, line: Timeline, name: str) -> tuple[Ints, Ints]:
    """(values, steps) of the executed jobs in which a column was measured."""
    if name not in run.columns:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    values = run.columns[name][line.rows]
    keep = values != NOT_MEASURED
    return values[keep], line.step[keep]


def _device(run: Run, line: Timeline, missing: dict[str, str]) -> Distribution | None:
    values, steps = _column(run, line, "device_ns")
    if not len(values):
        missing["device time"] = "no device marks were recorded"
        return None
    return distribution("device time", "between adjacent device events", values, steps)


def _observation_age(run: Run, line: Timeline, missing: dict[str, str]) -> Distribution | None:
    stamps, steps = _column(run, line, OBSERVATION_COLUMN)
    if not len(stamps):
        missing["observation age"] = missing["starved steps"] = "observations were made in the worker, none arrived"
        return None
    age = line.start[np.searchsorted(line.step, steps)] - stamps
    return distribution("observation age", "s minus the observation's arrival in this process", age, steps)


def offered_load(line: Timeline) -> tuple[float, float] | None:
    """Utilisation: (mean, p99) of execution time over the period; None without a job or a period."""
    if not line.executed or line.period_ns == 0:
        return None
    p99 = Sample.of(line.execution_ns).percentile(parse_percentile("p99"))
    return float(line.execution_ns.mean()) / line.period_ns, p99 / line.period_ns


def release_jitter(line: Timeline) -> ReleaseJitter:
    """Spread of the wake-up latency (metric 2)."""
    values = line.wakeup_ns
    if len(values) < 2:
        return ReleaseJitter(len(values), None, None, None)
    sample = Sample.of(values)
    spread = int(sample.percentile(parse_percentile("p99")) - sample.percentile(parse_percentile("p1")))
    return ReleaseJitter(len(values), int(values.max() - values.min()), spread, float(values.std()))
