"""Requirements beside the miss rate: percentile limits, (m,K), consecutive misses, release jitter (measurement.md §9).

A percentile limit has three answers, those of the miss rate for the releases above it. For the others a violation seen is
FAIL, and none seen is "not violated in N releases", which never lifts an INCONCLUSIVE to PASS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from robot_perf.analyze.evidence import MissEvidence, assumption, judge_misses
from robot_perf.analyze.timeline import Timeline
from robot_perf.analyze.types import Check
from robot_perf.specs import Budget
from robot_perf.stats.burst import miss_runs, worst_window
from robot_perf.stats.ranks import Sample, lower_rank, not_estimable, parse_percentile, upper_rank
from robot_perf.units import format_bound, format_count, format_duration, format_probability

__all__ = ["NOT_VIOLATED", "limit_checks"]

NOT_VIOLATED = "NOT VIOLATED"


def limit_checks(line: Timeline, budget: Budget) -> tuple[Check, ...]:
    """One Check for each optional limit of the budget. Raises UsageError for a limit on no percentile."""
    return (*_percentiles(line, budget), *_windows(line, budget), *_consecutive(line, budget), *_jitter(line, budget))


def _percentiles(line: Timeline, budget: Budget) -> Iterator[Check]:
    """pX within its limit says that at most 1 - X of releases are above it: judged as misses are, bursts and all.

    With independent releases that is the same as: PASS iff the one-sided upper order statistic is within the limit, FAIL
    iff the lower one is beyond it. Those are the figures in the words. A release without a finish is above any limit.
    """
    if not budget.percentile_limits_ns:
        return
    sample = Sample.of(line.response_ns, line.infinite)
    for name, limit_ns in budget.percentile_limits_ns.items():
        p = parse_percentile(name)
        upper = upper_rank(p, sample.n, budget.confidence)
        lower = lower_rank(p, sample.n, budget.confidence)
        sure = f"{budget.confidence * 100:g} % confidence, independent steps"
        above = np.ones(line.releases, np.bool_)
        above[line.step] = line.response_ns > limit_ns
        asked = replace(budget, miss_rate=float(1 - p))
        found = judge_misses(miss_runs(above), line.releases, asked)
        limit = f"limit {format_duration(limit_ns)}"
        title = f"response {name}"
        if lower is not None and sample.at(lower) > limit_ns:
            plain, words = "FAIL", f"is at least {_value(sample.at(lower))} ({sure})"
        elif upper is None:
            plain, words = "INCONCLUSIVE", f"has no upper bound: {not_estimable(p, budget.confidence, two_sided=False)}"
        elif sample.at(upper) <= limit_ns:
            plain, words = "PASS", f"is at most {_value(sample.at(upper))} ({sure})"
        else:
            low = "0" if lower is None else _value(sample.at(lower))
            plain, words = "INCONCLUSIVE", f"may be anywhere from {low} to {_value(sample.at(upper))} ({sure})"
        bursts = "" if found.status == plain else f"; {_share(found, asked)}"
        yield Check(title, found.status, f"{title} {words}, {limit}{bursts}")


def _share(found: MissEvidence, asked: Budget) -> str:
    """What bursts make of the limit, where independent steps would decide: the share of releases above it."""
    low = format_bound(found.lower or 0.0, asked.miss_rate, upper=False)
    high = format_bound(1.0 if found.upper is None else found.upper, asked.miss_rate, upper=True)
    allowed = format_probability(asked.miss_rate)
    return f"but {low} to {high} of releases may be above it, allowed {allowed}: {assumption(found, asked)}"


def _value(ns: float) -> str:
    return "a skipped release" if ns == float("inf") else format_duration(ns)


def _windows(line: Timeline, budget: Budget) -> Iterator[Check]:
    if budget.m_in_k is None:
        return
    m, k = budget.m_in_k
    rule = f"at most {m} misses in any {k} releases"
    worst = worst_window(line.miss, min(k, line.releases)) if line.releases else None
    if worst is not None and worst[0] > m:
        yield Check(rule, "FAIL", f"{worst[0]} misses in {k} releases from release {worst[1]} on, allowed {m}")
    elif line.releases < k:
        yield Check(rule, "INCONCLUSIVE", f"{rule}: no value, only {format_count(line.releases)} releases")
    else:
        yield Check(rule, NOT_VIOLATED, f"{rule}: not violated in {format_count(line.releases)} releases")


def _consecutive(line: Timeline, budget: Budget) -> Iterator[Check]:
    allowed = budget.max_consecutive_misses
    if allowed is None:
        return
    rule = f"at most {allowed} consecutive misses"
    runs = miss_runs(line.miss)
    if runs.longest > allowed:
        word = "miss" if runs.longest == 1 else "misses"
        reason = f"{runs.longest} consecutive {word} from release {runs.longest_at} on, allowed {allowed}"
        yield Check(rule, "FAIL", reason)
    else:
        yield Check(rule, NOT_VIOLATED, f"{rule}: not violated in {format_count(line.releases)} releases")


def _jitter(line: Timeline, budget: Budget) -> Iterator[Check]:
    limit_ns = budget.release_jitter_limit_ns
    if limit_ns is None:
        return
    rule = f"release jitter (max - min wake-up latency) at most {format_duration(limit_ns)}"
    wakeup = line.wakeup_ns
    if len(wakeup) < 2:
        yield Check(rule, "INCONCLUSIVE", f"{rule}: no value, {len(wakeup)} steps waited for their release")
        return
    spread = int(wakeup.max() - wakeup.min())
    if spread > limit_ns:
        reason = f"release jitter was {format_duration(spread)}, allowed {format_duration(limit_ns)}"
        yield Check(rule, "FAIL", reason)
    else:
        yield Check(rule, NOT_VIOLATED, f"{rule}: not violated in {format_count(line.releases)} releases")
