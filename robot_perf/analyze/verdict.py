"""PASS, FAIL, INCONCLUSIVE or INVALID: does the policy keep its deadline, how surely (measurement.md §9, §10).

The miss rate by `judge_misses`, then the other limits and what makes a measurement invalid; the worst of them decides.
"""

from __future__ import annotations

from robot_perf.analyze.checks import limit_checks
from robot_perf.analyze.evidence import MissEvidence, assumption, judge_misses
from robot_perf.analyze.explain.attribute import worst_cause
from robot_perf.analyze.timeline import Timeline, timeline
from robot_perf.analyze.types import Check, Verdict
from robot_perf.analyze.validity import invalid_reasons
from robot_perf.errors import UsageError
from robot_perf.run.model import Run
from robot_perf.specs import Budget
from robot_perf.stats.binomial import Thresholds, thresholds
from robot_perf.stats.burst import miss_runs, probability_of_run
from robot_perf.stats.plan import steps_to_pass
from robot_perf.units import format_bound, format_count, format_duration, format_probability

__all__ = ["judge", "judge_misses"]

_WORST_FIRST = ("INVALID", "FAIL", "INCONCLUSIVE", "PASS")


def judge(run: Run) -> Verdict:
    """The verdict on a Run against its budget.

    Raises UsageError for a back-to-back run (period 0): it has no releases to miss, so no deadline verdict.
    """
    if run.loop.period_ns == 0:
        raise UsageError(
            "a back-to-back Run has no deadline verdict",
            why="Its steps were not released on a grid.",
            do="Measure at a control rate: robot-perf deadline POLICY --rate HZ.",
        )
    budget, line = run.budget, timeline(run)
    evidence = judge_misses(miss_runs(line.miss), line.releases, budget)
    invalid = invalid_reasons(run)
    checks = limit_checks(line, budget)
    status = _worst([evidence.status, *(check.status for check in checks), *(["INVALID"] if invalid else [])])
    decides = _thresholds(evidence, budget)
    return Verdict(
        status=status,
        reason=_reason(status, invalid, evidence, checks, budget),
        next_step=_next_step(status, evidence, budget, line),
        cause=worst_cause(run) if status == "FAIL" else "",
        state=str(run.conditions["state"]),
        scheduled=line.scheduled,
        releases=line.releases,
        misses=evidence.runs.misses,
        late=int(line.late.sum()),
        skipped=line.skipped,
        unfinished=line.unfinished,
        miss_rate=evidence.runs.misses / line.releases if line.releases else None,
        miss_rate_upper=evidence.upper,
        miss_rate_lower=evidence.lower,
        plain_upper=evidence.plain_upper,
        plain_lower=evidence.plain_lower,
        allowed_miss_rate=budget.miss_rate,
        deadline_ns=run.loop.deadline_ns,
        period_ns=run.loop.period_ns,
        confidence=budget.confidence,
        assumed_burst=budget.assumed_burst,
        observed_burst=evidence.runs.mean_length,
        deff=evidence.deff,
        cluster_window=evidence.window,
        miss_runs=evidence.runs.runs,
        longest_miss_run=evidence.runs.longest,
        pass_at_most=decides.pass_at_most,
        fail_at_least=decides.fail_at_least,
        # what the counts would mean is no remark on a run that no verdict follows from
        notes=() if status == "INVALID" else _notes(evidence, budget),
        checks=checks,
        invalid=invalid,
    )


def _worst(statuses: list[str]) -> str:
    return next(status for status in _WORST_FIRST if status in statuses)


def _thresholds(evidence: MissEvidence, budget: Budget) -> Thresholds:
    if not evidence.releases:
        return Thresholds(None, None)
    return thresholds(budget.miss_rate, evidence.releases, budget.confidence, deff=evidence.deff)


def _reason(
    status: str, invalid: tuple[str, ...], evidence: MissEvidence, checks: tuple[Check, ...], budget: Budget
) -> str:
    if status == "INVALID":
        return "; ".join(invalid)
    parts = [check.reason for check in checks if check.status == status]
    misses = _miss_sentence(evidence, budget)
    parts = [misses, *parts] if evidence.status == status else [*parts, misses]
    return "; ".join([*parts, assumption(evidence, budget)])


def _miss_sentence(evidence: MissEvidence, budget: Budget) -> str:
    if evidence.upper is None or evidence.lower is None:
        return "no release was reached"
    seen = f"{format_count(evidence.runs.misses)} of {format_count(evidence.releases)} releases missed"
    sure, allowed = f"{budget.confidence * 100:g} % confidence", format_probability(budget.miss_rate)
    low = format_bound(evidence.lower, budget.miss_rate, upper=False)
    high = format_bound(evidence.upper, budget.miss_rate, upper=True)
    if evidence.status == "PASS":
        return f"{seen}: the miss rate is at most {high} with {sure}, allowed {allowed}"
    if evidence.status == "FAIL":
        return f"{seen}: the miss rate is at least {low} with {sure}, allowed {allowed}"
    return f"{seen}: the miss rate may be anywhere from {low} to {high} ({sure} each way), allowed {allowed}"


def _notes(evidence: MissEvidence, budget: Budget) -> tuple[str, ...]:
    runs, notes = evidence.runs, []
    if runs.few:
        notes.append("few miss runs, bound may be optimistic")
    if evidence.clustered and runs.misses:
        notes.append("misses are clustered: with as many independent misses it would PASS")
    if evidence.clustered and not runs.misses:
        notes.append("the run is too short for the burst it assumes; with independent misses it would PASS")
    if runs.longest > budget.assumed_burst:
        chance = probability_of_run(evidence.releases, runs.misses / evidence.releases, runs.longest)
        if chance < 0.01:
            notes.append(
                f"a run of {runs.longest} misses is evidence of bursts: independent misses would show one with"
                f" probability {chance:.1e}"
            )
    if runs.misses == 0 and budget.assumed_burst > 1:
        notes.append("no miss was seen, so nothing is known about how misses cluster")
    return tuple(notes)


def _next_step(status: str, evidence: MissEvidence, budget: Budget, line: Timeline) -> str:
    if status == "INVALID":
        return "remove the cause and measure again"
    if status != "INCONCLUSIVE" or evidence.status != "INCONCLUSIVE":
        return ""
    steps = steps_to_pass(evidence.runs.misses, budget.miss_rate, budget.confidence, evidence.deff)
    clustered = ", no more clustered," if evidence.window is not None else ""
    text = (
        f"a new run of {format_count(steps)} releases ({format_duration(steps * line.period_ns)}) with no more misses"
        f" than this{clustered} would PASS"
    )
    if evidence.runs.misses > budget.miss_rate * evidence.releases:
        text += "; more than the allowed share was missed here, so expect a longer run to FAIL"
    return text
