"""The table of counts: releases, misses and their kinds, bounds, bursts, windows, utilisation, gaps."""

from __future__ import annotations

from robot_perf.analyze.types import Summary, Verdict
from robot_perf.render.cells import percent
from robot_perf.stats.ranks import parse_percentile, smallest_n
from robot_perf.units import format_bound, format_count, format_duration, format_probability

__all__ = ["Pairs", "count_pairs"]

_P99, _CONFIDENCE = parse_percentile("p99"), 0.95
Pairs = tuple[tuple[str, str], ...]


def count_pairs(summary: Summary, verdict: Verdict | None) -> Pairs:
    """(word, value) of the counts, the bounds, the windows and the loop's own figures."""
    pairs = [
        ("releases scheduled", format_count(summary.scheduled)),
        ("releases reached", format_count(summary.releases)),
        ("steps executed", format_count(summary.executed)),
        ("misses", format_count(summary.misses)),
        ("of them late", format_count(summary.late)),
        ("of them skipped", format_count(summary.skipped)),
        ("of them never finished", format_count(summary.unfinished)),
        ("runs of misses", format_count(summary.miss_runs)),
        ("longest run", _at(summary.longest_miss_run, summary.longest_miss_run_at)),
    ]
    if verdict is not None:
        pairs += _bounds(verdict)
    for window in summary.windows:
        words = (
            _at(window.misses, window.first_release)
            if window.misses is not None
            else "no value: fewer releases than that"
        )
        pairs.append((f"worst window of {format_count(window.window)} releases", words))
    if summary.utilisation_mean is not None and summary.utilisation_p99 is not None:
        mean, p99 = (percent(float(f"{u:.3g}")) for u in (summary.utilisation_mean, summary.utilisation_p99))
        # executed jobs: as many as the p99 beside it in the table needs
        tail = f", p99 {p99}" if summary.executed >= smallest_n(_P99, _CONFIDENCE) else ""
        pairs.append(("utilisation", f"mean {mean}{tail}"))
    jitter = summary.release_jitter
    if jitter.peak_to_peak is not None and jitter.p99_minus_p1 is not None and jitter.std is not None:
        words = f"{format_duration(jitter.peak_to_peak)} peak to peak"
        if jitter.n >= smallest_n(_P99, _CONFIDENCE):
            words += f", {format_duration(jitter.p99_minus_p1)} from p1 to p99"
        pairs.append(("release jitter", f"{words}, standard deviation {format_duration(jitter.std)}"))
    if summary.max_gap is not None:
        pairs.append(
            ("max gap", f"{format_duration(summary.max_gap.value_ns)} at release {format_count(summary.max_gap.step)}")
        )
    if summary.queue is not None and summary.queue.without_wait:
        words = f"{format_count(summary.queue.without_wait)} steps started without waiting"
        pairs.append(
            ("backlog", f"{words}, at most {format_count(summary.queue.deepest_backlog)} releases due at once")
        )
    return (
        *pairs,
        ("warm-up steps", format_count(summary.warmup_steps)),
        ("lasted", format_duration(summary.duration_ns)),
    )


def _at(count: int, release: int | None) -> str:
    return (
        f"{format_count(count)} from release {format_count(release)} on"
        if count and release is not None
        else format_count(count)
    )


def _away(verdict: Verdict, low: float, high: float) -> tuple[str, str]:
    """Two bounds, rounded as the headline rounds them: away from what they claim."""
    allowed = verdict.allowed_miss_rate
    return format_bound(low, allowed, upper=False), format_bound(high, allowed, upper=True)


def _bounds(verdict: Verdict) -> list[tuple[str, str]]:
    if verdict.miss_rate is None or verdict.miss_rate_upper is None or verdict.miss_rate_lower is None:
        return []
    low, high = _away(verdict, verdict.miss_rate_lower, verdict.miss_rate_upper)
    plain_low, plain_high = _away(verdict, verdict.plain_lower or 0, verdict.plain_upper or 0)
    seen = "none seen" if verdict.observed_burst is None else f"{verdict.observed_burst:.3g} seen"
    if verdict.cluster_window is not None:
        seen += f", together within {format_count(verdict.cluster_window)} releases"
    passes = (
        "can't pass"
        if verdict.pass_at_most is None
        else f"passes at {format_count(verdict.pass_at_most)} misses or fewer"
    )
    fails = (
        "can't fail"
        if verdict.fail_at_least is None
        else f"fails at {format_count(verdict.fail_at_least)} misses or more"
    )
    return [
        (
            "miss rate",
            f"{format_probability(verdict.miss_rate)}, allowed {format_probability(verdict.allowed_miss_rate)}",
        ),
        ("bounds, corrected for bursts", f"{low} to {high}, each with {percent(verdict.confidence)} confidence"),
        ("bounds, independent misses", f"{plain_low} to {plain_high}"),
        ("burst", f"{verdict.assumed_burst:g} assumed, {seen}; design effect {verdict.deff:.3g}"),
        ("a run of this length", f"{passes}, {fails}"),
    ]
