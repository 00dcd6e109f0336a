"""`deadline --plan`: how long a run must be to prove a miss rate, before anything runs (measurement.md §7 and §10)."""

from __future__ import annotations

from typing import Any

from robot_perf.render.cells import percent
from robot_perf.render.lines import labelled, pad_left
from robot_perf.run.model import SCHEMA
from robot_perf.specs import Budget
from robot_perf.stats.plan import PlanRow, plan_rows
from robot_perf.units import NS_PER_S, format_count, format_duration, format_ms, format_probability

__all__ = ["plan_document", "plan_text"]


def plan_document(period_ns: int, budget: Budget) -> dict[str, Any]:
    """The plan as JSON: one row per number of overruns that the run may have and still PASS."""
    return {
        "schema": SCHEMA,
        "rate_hz": NS_PER_S / period_ns,
        "period_ns": period_ns,
        "deadline_ns": budget.deadline_ns,
        "miss_rate": budget.miss_rate,
        "confidence": budget.confidence,
        "assumed_burst": budget.assumed_burst,
        "rows": [
            {
                "overruns": row.allowed,
                "releases": row.steps,
                "duration_s": row.duration_ns / NS_PER_S,
                "pass_at_most": row.thresholds.pass_at_most,
                "fail_at_least": row.thresholds.fail_at_least,
            }
            for row in _rows(period_ns, budget)
        ],
    }


def plan_text(period_ns: int, budget: Budget, *, width: int = 100) -> str:
    """The plan as a table; the last line says which row a run without --steps takes."""
    what = (
        f"to prove that at most {format_probability(budget.miss_rate)} of releases miss"
        f" {format_ms(budget.deadline_ns)} ms with {percent(budget.confidence)} confidence,"
        f" a release every {period_ns / 1e6:.6g} ms, {_burst(budget)}"
    )
    head = ("room for", "releases", "lasts", "PASS if misses", "FAIL if misses")
    table = [head, *(_cells(row) for row in _rows(period_ns, budget))]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    lines = [line.plain for line in labelled("plan", what, width)]
    lines += ["", *("   ".join(pad_left(c, w) for c, w in zip(line, widths, strict=True)) for line in table), ""]
    note = "without --steps or --duration a run takes the row of 1 overrun; between the two counts it is INCONCLUSIVE"
    return "\n".join([*lines, *(line.plain for line in labelled("note", note, width))])


def _rows(period_ns: int, budget: Budget) -> list[PlanRow]:
    return plan_rows(budget.miss_rate, budget.confidence, period_ns, burst=budget.assumed_burst)


def _burst(budget: Budget) -> str:
    if budget.assumed_burst == 1:
        return "independent misses assumed"
    return f"bursts of {budget.assumed_burst:g} misses assumed"


def _cells(row: PlanRow) -> tuple[str, ...]:
    room = f"{row.allowed} overrun{'s' * (row.allowed != 1)}"
    passes, fails = row.thresholds.pass_at_most, row.thresholds.fail_at_least
    return (
        room,
        format_count(row.steps),
        format_duration(row.duration_ns),
        "never" if passes is None else f"≤ {format_count(passes)}",
        "never" if fails is None else f"≥ {format_count(fails)}",
    )
