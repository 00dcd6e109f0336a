"""The summary of a Run: every figure a report prints, the verdict apart (measurement.md §15)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.explain.attribute import outliers
from robot_perf.analyze.explain.coldstart import cold_start
from robot_perf.analyze.explain.dependence import dependence, labels
from robot_perf.analyze.metrics import OVERLOAD, distributions, offered_load, release_jitter, stages
from robot_perf.analyze.timeline import Timeline, timeline
from robot_perf.analyze.types import Observation, QueueStats, Summary, WindowMisses
from robot_perf.run.model import SCHEMA, Run
from robot_perf.stats.burst import MissRuns, miss_runs, probability_of_run, probability_of_window, worst_window
from robot_perf.units import NS_PER_S

__all__ = ["summarize"]

_WINDOWS = (10, 100)


def summarize(run: Run) -> Summary:
    """All figures of a Run. Pure: the same Run gives the same Summary."""
    line = timeline(run)
    runs = miss_runs(line.miss)
    tight = line.period_ns == 0
    load = offered_load(line)
    overloaded = load is not None and load[0] > 1
    depends = dependence(run, line)
    missing: dict[str, str] = {}
    return Summary(
        schema=SCHEMA,
        state=str(run.conditions["state"]),
        scheduled=line.scheduled,
        releases=line.releases,
        executed=line.executed,
        skipped=line.skipped,
        unfinished=line.unfinished,
        late=int(line.late.sum()),
        misses=runs.misses,
        miss_rate=runs.misses / line.releases if line.releases and not tight else None,
        warmup_steps=len(run.warmup["step"]),
        duration_ns=int(line.end[-1] - line.release[0]) if line.executed else 0,
        period_ns=line.period_ns,
        deadline_ns=line.deadline_ns,
        rate_asked_hz=None if tight else NS_PER_S / line.period_ns,
        rate_achieved_hz=_rate_achieved(line),
        drift_ppm=line.drift_ppm,
        resistant_drift_ppm=line.resistant_drift_ppm,
        overrun=line.overrun,
        **distributions(run, line, missing, overloaded=overloaded),
        release_jitter=release_jitter(line),
        max_gap=Observation(*line.max_gap) if line.max_gap else None,
        utilisation_mean=load[0] if load else None,
        utilisation_p99=load[1] if load else None,
        miss_runs=runs.runs,
        misses_per_run=runs.mean_length,
        longest_miss_run=runs.longest,
        longest_miss_run_at=runs.longest_at,
        longest_run_probability=_longest_run_probability(runs, line.releases),
        windows=_windows(run, line, runs),
        queue=None if overloaded else _queue(line),
        dependence=depends,
        cold_start=cold_start(run),
        outliers=outliers(run),
        labels=(*([OVERLOAD] if overloaded else ()), *labels(run, runs, depends), *_pace_labels(line)),
        not_available=missing,
        stages=stages(run, line),
        early_steps=line.early_steps,
        bursts_after_stall=line.bursts_after_stall,
    )


def _pace_labels(line: Timeline) -> tuple[str, ...]:
    found = (("early steps", line.early_steps), ("burst after a stall", line.bursts_after_stall))
    return tuple(label for label, count in found if count)


def _rate_achieved(line: Timeline) -> float | None:
    """Executed jobs per second, from start to start."""
    if line.executed < 2 or line.start[-1] <= line.start[0]:
        return None
    return (line.executed - 1) * NS_PER_S / int(line.start[-1] - line.start[0])


def _longest_run_probability(runs: MissRuns, releases: int) -> float | None:
    """P(a run of misses at least this long) at the observed miss rate, if misses were independent."""
    return probability_of_run(releases, runs.misses / releases, runs.longest) if runs.misses else None


def _windows(run: Run, line: Timeline, runs: MissRuns) -> tuple[WindowMisses, ...]:
    asked = () if run.budget.m_in_k is None else (run.budget.m_in_k[1],)
    rows = []
    for window in sorted({*_WINDOWS, *asked}):
        worst = worst_window(line.miss, window)
        if worst is None:
            rows.append(WindowMisses(window, None, None, None))
            continue
        misses, at = worst
        rate = runs.misses / line.releases
        chance = probability_of_window(line.releases, rate, misses - 1, window) if misses else None
        rows.append(WindowMisses(window, misses, at if misses else None, chance))
    return tuple(rows)


def _queue(line: Timeline) -> QueueStats | None:
    """Backlog at each start under `queue`: releases due and not yet started, that job's own included."""
    if not line.executed or line.period_ns == 0 or line.overrun != "queue":
        return None
    depth: NDArray[np.int64] = line.start_latency_ns // line.period_ns + 1
    deepest = int(np.argmax(depth))
    return QueueStats(int(np.count_nonzero(~line.waited)), int(depth[deepest]), int(line.step[deepest]))
