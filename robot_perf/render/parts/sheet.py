"""A Run's report as plain data: what the HTML page and the markdown file print, in the order in which they print it.

All text has passed `lines.clean`; escaping for HTML or markdown is the renderer's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robot_perf.analyze.explain.soak import soak_of
from robot_perf.analyze.summary import summarize
from robot_perf.analyze.types import SKIPPED, Distribution, Summary
from robot_perf.analyze.verdict import judge
from robot_perf.render.cells import (
    NO_VALUE,
    MetricRow,
    dependence_words,
    interval,
    main_rows,
    number,
    percent,
    quantile,
    reason_words,
    unit_of,
)
from robot_perf.render.lines import clean
from robot_perf.render.parts.checked import check_conditions
from robot_perf.render.parts.counts import Pairs, count_pairs
from robot_perf.render.parts.opening import backend_words, host_words, plan_words, policy_words
from robot_perf.render.parts.verdict import headline, verdict_pairs
from robot_perf.render.parts.words import context_pairs
from robot_perf.render.soak import soak_answers, soak_table
from robot_perf.run.model import Run
from robot_perf.stats.dependence import SHORTEST_SERIES, SURE
from robot_perf.units import MS, format_count, format_duration

__all__ = ["PERCENTILES", "WORST_HEAD", "Metric", "Sheet", "sheet_of"]

WORST_HEAD = (
    "release", "", "response", "start latency", "execution", "wake-up", "backlog", "skipped after", "gc", "involuntary",
    "voluntary", "minor faults", "major faults", "CPU", "cause",
)  # fmt: skip
PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table of distributions. `cells` holds (value, interval or reason) for min, PERCENTILES, max."""

    label: str
    unit: str
    n: str
    cells: tuple[tuple[str, str], ...]
    definition: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """Everything a report of one Run says in words and numbers."""

    name: str
    file: str
    status: str
    headline: str
    remarks: Pairs
    opening: Pairs
    confidence: str
    metrics: tuple[Metric, ...]
    context: Pairs
    counts: Pairs
    diagnostics: Pairs
    cold: Pairs
    worst: tuple[tuple[str, ...], ...]
    conditions: Pairs
    minutes: tuple[tuple[str, ...], ...] = ()  # of a soak: the head, then a row a minute
    soak: tuple[str, ...] = ()


def sheet_of(run: Run, file: str = "") -> Sheet:
    """The sheet of a Run. `file` names the Run file in the report."""
    check_conditions(run)
    summary = summarize(run)
    verdict = judge(run) if run.loop.period_ns else None
    soak = soak_of(run)
    return Sheet(
        name=clean(run.policy.name),
        file=clean(file),
        status=verdict.status if verdict else "NO VERDICT",
        headline=headline(verdict)
        if verdict
        else "these calls ran back to back: nothing was released, so nothing could miss",
        remarks=tuple(verdict_pairs(run, verdict)) if verdict else (),
        opening=_opening(run),
        confidence=percent(summary.response.confidence),
        metrics=tuple(_metric(row) for row in _all_rows(summary)),
        context=tuple(
            p for p in context_pairs(run, summary, verdict.notes if verdict else ()) if p[0] not in ("worst", "")
        ),
        counts=count_pairs(summary, verdict),
        diagnostics=_diagnostics(summary),
        cold=_cold(summary),
        worst=_worst(summary),
        conditions=_flat(run.conditions),
        minutes=() if soak is None else (soak_table(soak)[0], *soak_table(soak)[1]),
        soak=() if soak is None else tuple(soak_answers(soak)),
    )


def _opening(run: Run) -> Pairs:
    c = run.conditions
    host = c.get("host") or {}
    backend = c["backend"] if isinstance(c["backend"], Mapping) else {"name": c["backend"]}
    pairs = (
        ("policy", f"{clean(run.policy.name)}: {policy_words(run.policy)}"),
        ("backend", backend_words(backend, c.get("backend_facts") or {}, host.get("packages") or {})),
        ("plan", plan_words(run.loop, run.budget, bool(c.get("planned")))),
        ("host", host_words(host, run.loop, c.get("real_time"))),
        ("processor", clean(host.get("cpu_model") or "")),
        ("started", clean(c.get("started_utc") or "")),
    )
    return tuple((label, words) for label, words in pairs if words)


def _all_rows(summary: Summary) -> list[MetricRow]:
    """The first table's rows with their full names, then every other distribution."""
    rows = [MetricRow(row.data.metric, row.data, row.unit) for row in main_rows(summary)]
    if not summary.period_ns:
        return rows
    in_ms = summary.deadline_ns >= 2 * MS
    others: list[tuple[str, Distribution | None, bool]] = [
        ("start latency", summary.start_latency, False),
        ("lateness", summary.lateness, in_ms),
        ("period jitter", summary.period_jitter, False),
        ("period jitter, without gaps", summary.period_jitter_without_gaps, False),
        ("output jitter", summary.output_jitter, False),
        ("output jitter, without gaps", summary.output_jitter_without_gaps, False),
        ("action staleness", summary.staleness, in_ms),
        ("observation age", summary.observation_age, in_ms),
    ]
    if not summary.skipped:
        others = [row for row in others if not row[0].endswith("without gaps")]
    return rows + [MetricRow(name, data, unit_of(data, in_ms=ms)) for name, data, ms in others if data is not None]


def _metric(row: MetricRow) -> Metric:
    data, unit = row.data, row.unit
    cells = [(number(data.min, unit), "")]
    for name in PERCENTILES:
        q = data.quantile(name)
        words = interval(q, unit) or ("" if q.reason == SKIPPED else reason_words(q.reason))
        cells.append((quantile(q, unit), words))
    largest = number(data.max, unit) if data.max is not None else SKIPPED if data.infinite else NO_VALUE
    cells.append((largest, f"at release {format_count(data.max_step)}" if data.max_step is not None else ""))
    return Metric(row.label, unit.name, format_count(data.n), tuple(cells), data.definition)


def _diagnostics(summary: Summary) -> Pairs:
    d = summary.dependence
    pairs = [("steps", format_count(d.n))]
    if d.lag1 is not None:
        pairs.append(("lag-1 autocorrelation of response ranks", f"{d.lag1:+.3f}"))
    if d.ljung_box_q is not None and d.ljung_box_p is not None:
        pairs.append((f"Ljung-Box of ranks ({d.ljung_box_lags} lags)", f"Q {d.ljung_box_q:.1f}, p {d.ljung_box_p:.2g}"))
    assumed = "independent steps assumed"
    if d.ljung_box_p is not None and d.ljung_box_p < SURE and d.n < SHORTEST_SERIES:
        assumed += f", which the ranks contradict: {SHORTEST_SERIES} steps would say how far"
    pairs.append(("intervals of response", dependence_words(summary.response, PERCENTILES) or assumed))
    if d.runs_z is not None and d.runs_p is not None:
        pairs.append(("runs test about the median", f"z {d.runs_z:+.2f}, p {d.runs_p:.2g}"))
    if d.first_half_median_ns is not None and d.second_half_median_ns is not None and d.half_shift is not None:
        first, second = format_duration(d.first_half_median_ns), format_duration(d.second_half_median_ns)
        pairs.append(("median of first and second half", f"{first} and {second} ({d.half_shift * 100:+.1f} %)"))
    return (*pairs, *((clean(k), f"not available: {clean(v)}") for k, v in summary.not_available.items()))


def _cold(summary: Summary) -> Pairs:
    cold = summary.cold_start
    pairs = [(clean(label), format_duration(ns)) for label, ns in cold.rows]
    pairs += [(f"call {i}", format_duration(ns)) for i, ns in enumerate(cold.calls, 1)]
    if cold.from_call is not None and cold.steady_execution_ns is not None:
        pairs.append((f"from call {cold.from_call} on (median)", format_duration(cold.steady_execution_ns)))
    if cold.first_action_ns is not None:
        pairs.append(("first action after the start", format_duration(cold.first_action_ns)))
    if cold.would_have_missed is not None:
        pairs.append(("releases missed with motors on", format_count(cold.would_have_missed)))
    return tuple(pairs)


def _worst(summary: Summary) -> tuple[tuple[str, ...], ...]:
    rows = []
    for o in summary.outliers:
        counts = (o.nivcsw, o.nvcsw, o.minflt, o.majflt)
        cpu = (
            NO_VALUE if o.cpu is None else str(o.cpu) if o.cpu_before in (None, o.cpu) else f"{o.cpu_before} → {o.cpu}"
        )
        durations = (o.response_ns, o.start_latency_ns, o.execution_ns, o.wakeup_ns, o.backlog_ns)
        cells = [NO_VALUE if ns is None else format_duration(ns) if ns else "0" for ns in durations]
        cells += [
            format_count(o.skipped_after),
            NO_VALUE if o.gc_ns is None else format_duration(o.gc_ns) if o.gc_ns else "0",
        ]
        cells += [NO_VALUE if c is None else format_count(c) for c in counts]
        rows.append((format_count(o.step), o.kind, *cells, cpu, clean(o.cause)))
    return tuple(rows)


_LONG = ("clock.samples", "soak.samples")  # a sample a second: a number of them says enough


def _flat(conditions: Mapping[str, Any], prefix: str = "") -> Pairs:
    """Every condition as (dotted key, JSON), so that a page holds all that is needed to repeat the run."""
    pairs: list[tuple[str, str]] = []
    for key, value in conditions.items():
        name = f"{prefix}{clean(key)}"
        if isinstance(value, Mapping) and value:
            pairs += _flat(value, f"{name}.")
        elif name in _LONG and isinstance(value, list):
            pairs.append((name, f"{len(value)} samples"))
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            pairs.append((name, clean(text if len(text) <= 2000 else f"{text[:2000]}… ({len(text):,} characters)")))
    return tuple(pairs)
