"""Numbers in tables: one unit and one number of decimals for a whole row, and the words where there is no number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from robot_perf.analyze.types import SKIPPED, Distribution, Quantile, Summary
from robot_perf.render.lines import clean, shorten
from robot_perf.units import MS, US, format_count

__all__ = [
    "NO_VALUE",
    "MetricRow",
    "Unit",
    "dependence_words",
    "interval",
    "main_rows",
    "number",
    "percent",
    "quantile",
    "reason_words",
    "unit_of",
]

NO_VALUE = "–"
_NEEDS = re.compile(r">= ?(\d+)")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of people and the decimals of a row that is printed in it."""

    name: str
    ns: int
    decimals: int


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of a table: its short label, the distribution, the unit, and a remark."""

    label: str
    data: Distribution
    unit: Unit
    remark: str = ""


def unit_of(data: Distribution, *, in_ms: bool) -> Unit:
    """The unit of a row: ms or µs, with the decimals that give its typical value three digits."""
    typical = _typical(data)
    if in_ms:
        return Unit("ms", MS, 2 if typical >= MS or not typical else 3 if typical >= 0.1 * MS else 4)
    return Unit("µs", US, 0 if typical >= 100 * US else 1 if typical >= US or not typical else 2)


def _typical(data: Distribution) -> float:
    """The larger of |p50| and |p90|: a jitter's median lies at zero and says nothing about its size."""
    middle = [abs(q.value) for q in data.quantiles if q.name in ("p50", "p90") and q.value is not None]
    return (
        max(middle) if middle else next((abs(float(v)) for v in (data.mean, data.max, data.min) if v is not None), 0.0)
    )


def number(ns: float | None, unit: Unit) -> str:
    """A duration in the row's unit, without the unit."""
    if ns is None:
        return NO_VALUE
    text = f"{ns / unit.ns:,.{unit.decimals}f}"
    return text if text.strip("-0.,") else text.lstrip("-")  # no "-0.00"


def quantile(q: Quantile, unit: Unit) -> str:
    """The value, or "skipped", or a dash where the interval row says what is missing."""
    if q.value is not None:
        return number(q.value, unit)
    return SKIPPED if q.reason == SKIPPED else NO_VALUE


def interval(q: Quantile, unit: Unit) -> str:
    """Both ends of the interval; an end on a skipped release says so, one without an end is open; empty where there is none."""
    if q.coverage is None:
        return ""
    if q.open_ended and (q.low is None) != (q.high is None):
        return f"≥ {number(q.low, unit)}" if q.high is None else f"≤ {number(q.high, unit)}"
    if q.low is None:
        return SKIPPED
    high = SKIPPED if q.high is None else number(q.high, unit)
    return f"{number(q.low, unit)}{' to ' if q.low < 0 else '–'}{high}"


def dependence_words(data: Distribution, names: Sequence[str]) -> str:
    """How many independent steps the steps are worth, where their intervals are widened for it; else empty."""
    found = [data.quantile(name) for name in names]
    worth = [f"{q.name} {format_count(int(data.n / q.deff))}" for q in found if q.coverage is not None and q.deff > 1]
    return f"as of so many independent steps: {', '.join(worth)}" if worth else ""


def reason_words(reason: str | None) -> str:
    """The reason as people read it: `needs n ≥ 3,688`."""
    return _NEEDS.sub(lambda m: f"≥ {int(m[1]):,}", reason or "")


def percent(fraction: float) -> str:
    """A share or a confidence in per cent, with the decimals it has and no more: `95 %`, `99.9 %`."""
    return f"{fraction * 100:.4f}".rstrip("0").rstrip(".") + " %"


def main_rows(summary: Summary) -> list[MetricRow]:
    """The rows of the first table, in the order in which the control loop goes through them."""
    if not summary.period_ns:
        return _back_to_back_rows(summary)
    in_ms = summary.deadline_ns >= 2 * MS
    response = unit_of(summary.response if _typical(summary.response) else summary.response_executed, in_ms=in_ms)
    rows = [MetricRow("response", summary.response, response)]
    if summary.response.infinite:
        rows.append(MetricRow("  executed", summary.response_executed, response, "of the steps that ran"))
    rows.append(MetricRow("wake-up", summary.wakeup, unit_of(summary.wakeup, in_ms=False)))
    rows.append(MetricRow("execution", summary.execution, unit_of(summary.execution, in_ms=in_ms)))
    rows += [
        MetricRow(f"  {shorten(clean(s.metric.removeprefix('stage ')), 9)}", s, unit_of(s, in_ms=in_ms), "stage")
        for s in summary.stages
    ]
    if summary.device is not None:
        rows.append(MetricRow("  device", summary.device, unit_of(summary.device, in_ms=in_ms), "device work alone"))
    rows.append(
        MetricRow(
            "harness",
            summary.harness,
            unit_of(summary.harness, in_ms=False),
            "our work around the call",
        )
    )
    return rows


def _back_to_back_rows(summary: Summary) -> list[MetricRow]:
    """A tight loop releases nothing: what is left is the call itself."""
    rows = [
        MetricRow(
            "execution", summary.execution, unit_of(summary.execution, in_ms=_typical(summary.execution) >= 2 * MS)
        )
    ]
    if summary.device is not None:
        rows.append(MetricRow("  device", summary.device, rows[0].unit, "device work alone"))
    return [
        *rows,
        MetricRow("harness", summary.harness, unit_of(summary.harness, in_ms=False), "our own work, between calls"),
    ]
