"""The text report of a Run: the verdict first, each number with its unit, n and interval, what to do next last."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from robot_perf.analyze.summary import summarize
from robot_perf.analyze.types import Outlier, Summary, Verdict
from robot_perf.analyze.verdict import judge
from robot_perf.render.cells import percent
from robot_perf.render.graphs import DEADLINE, LATE, LOST, ON_TIME, histogram, timeline_marks
from robot_perf.render.lines import LABEL, clean, join, labelled, pad
from robot_perf.render.opening import opening_of, plan_words
from robot_perf.render.tables import metric_table
from robot_perf.render.verdict_text import headline, verdict_lines
from robot_perf.run.model import Run
from robot_perf.specs import Budget, LoopSpec
from robot_perf.units import MS, format_count, format_duration

__all__ = ["MAX_WIDTH", "deadline_report", "deadline_text", "plan_line", "result_text", "verdict_line"]

MAX_WIDTH = 100
_WORST = 3
_INTERPRETER = ("process start", "modules", "imports")


def deadline_report(
    run: Run, *, width: int = MAX_WIDTH, saved: Path | str | None = None, doctor_notes: int | None = None
) -> str:
    """The whole report as plain text, without colour."""
    verdict = judge(run) if run.loop.period_ns else None
    return deadline_text(run, summarize(run), verdict, width=width, saved=saved, doctor_notes=doctor_notes).plain


def plan_line(loop: LoopSpec, budget: Budget, *, planned: bool, width: int = MAX_WIDTH) -> str:
    """How long the run will be, and why: said before it starts."""
    return join(labelled("plan", plan_words(loop, budget, planned), width)).plain


def verdict_line(verdict: Verdict) -> str:
    """The verdict alone, in one line however long it is: status, bound, confidence, assumption, counts."""
    return f"{pad(verdict.status, LABEL - 2)}  {headline(verdict)}"


def deadline_text(
    run: Run,
    summary: Summary,
    verdict: Verdict | None,
    *,
    width: int = MAX_WIDTH,
    saved: Path | str | None = None,
    doctor_notes: int | None = None,
) -> Text:
    """Opening lines and result. `verdict` is None for a back-to-back run; `saved` is where the Run file lies."""
    width = min(width, MAX_WIDTH)
    opening = opening_of(run, doctor_notes=doctor_notes, width=width)
    return join([*opening, "", result_text(run, summary, verdict, width=width, saved=saved)])


def result_text(
    run: Run, summary: Summary, verdict: Verdict | None, *, width: int = MAX_WIDTH, saved: Path | str | None = None
) -> Text:
    """What a measurement ended in: everything below the opening lines and the progress bar."""
    width = min(width, MAX_WIDTH)
    lines: list[Text | str] = []
    if verdict is not None:
        lines += verdict_lines(run, verdict, width)
    else:
        lines += labelled(
            "NO VERDICT", "these calls ran back to back: nothing was released, so nothing could miss", width
        )
    lines += ["", *metric_table(summary, width), ""]
    lines += _graph_lines(run, summary, width)
    known = verdict.notes if verdict is not None else ()
    lines += ["", *_context_lines(run, summary, known, width), *_saved_lines(saved, width)]
    return join(lines)


def _graph_lines(run: Run, summary: Summary, width: int) -> list[Text | str]:
    measured = run.measured
    response = measured["end_ns"] - measured["release_ns"]
    if not len(response) or not summary.deadline_ns:
        return []
    low, high = format_duration(response.min()), format_duration(response.max())
    late = int(response.max()) > summary.deadline_ns
    left, right = f"  response {low} ", (f" {high}  {DEADLINE}" if late else "")
    right += f" deadline {format_duration(summary.deadline_ns)}, log scale"
    bars = histogram(response, summary.deadline_ns, max(10, width - len(left) - len(right)))
    lines: list[Text | str] = [Text(left + bars + right)]
    if not summary.period_ns:
        return lines
    legend = f"  {LATE} late  {LOST} skipped"
    marks, per_mark = timeline_marks(run, max(10, width - len(legend) - 34))
    each = "1 release" if per_mark == 1 else f"{per_mark:,.4g} releases"
    lines.append(Text(f"  timeline {marks}  {ON_TIME} {each}{legend}"))
    return lines


def _context_lines(run: Run, summary: Summary, known: Sequence[str], width: int) -> list[Text]:
    lines = labelled("rate", _rate_words(summary), width, label_style="dim") if summary.period_ns else []
    cold = _cold_words(summary)
    lines += labelled("cold start", cold, width, label_style="dim") if cold else []
    for label in summary.labels:
        if any(note.startswith(label) for note in known):
            continue
        lines += labelled("label", clean(label), width)
    for reason in (run.conditions.get("real_time") or {}).get("refused") or ():
        lines += labelled("refused", clean(reason), width)
    for note in run.conditions.get("notes") or ():
        lines += labelled("note", clean(note), width, label_style="dim")
    late = [outlier for outlier in summary.outliers if outlier.kind == "late"]
    for i, outlier in enumerate((late or summary.outliers[:1])[:_WORST]):
        lines += labelled("" if i else "worst", outlier_words(outlier), width, label_style="dim")
    return lines


def _rate_words(summary: Summary) -> str:
    words = f"period {summary.period_ns / MS:.6g} ms asked"
    if summary.rate_achieved_hz:
        words += f", {1e3 / summary.rate_achieved_hz:.6g} ms achieved"
    if summary.drift_ppm is not None:
        words += f", drift {summary.drift_ppm:+.1f} ppm"
    words += f"; overrun policy {summary.overrun}"
    if summary.utilisation_mean is not None:
        words += f"; utilisation {percent(float(f'{summary.utilisation_mean:.3g}'))}"
    if summary.max_gap is not None:
        words += f"; longest gap between actions {format_duration(summary.max_gap.value_ns)}"
        words += f" at release {format_count(summary.max_gap.step)}"
    return words


def _cold_words(summary: Summary) -> str:
    """Load, build and capture, then the first calls one by one; the interpreter's own start is in the first action's."""
    cold = summary.cold_start
    parts = [f"{clean(label)} {_short(ns)}" for label, ns in cold.rows if label not in _INTERPRETER]
    parts += [f"{name} {_short(ns)}" for name, ns in zip(("first call", "second", "third"), cold.calls, strict=False)]
    if cold.first_action_ns is not None:
        parts.append(f"first action {_short(cold.first_action_ns)} after the start")
    text = ", ".join(parts)
    if text and cold.would_have_missed is not None:
        count = cold.would_have_missed
        text += f": {format_count(count)} release{'s' * (count != 1)} would have been missed with motors on"
    return text


def _short(ns: int) -> str:
    """A duration of the cold start: seen once, so without decimals that it can't have."""
    return f"{ns / MS:.0f} ms" if ns >= 10 * MS else format_duration(ns)


def outlier_words(outlier: Outlier) -> str:
    """One of the worst steps: when, how long, which part was long, what was recorded beside it."""
    parts = [f"release {format_count(outlier.step)}: {format_duration(outlier.response_ns)}, {outlier.kind}"]
    if outlier.skipped_after:
        parts.append(f"{format_count(outlier.skipped_after)} skipped after it")
    if outlier.wakeup_ns is not None:
        parts.append(f"wake-up {format_duration(outlier.wakeup_ns)}")
    elif outlier.backlog_ns:
        parts.append(f"backlog {format_duration(outlier.backlog_ns)}")
    parts.append(f"execution {format_duration(outlier.execution_ns)}")
    if outlier.gc_ns:
        parts.append(f"garbage collection {format_duration(outlier.gc_ns)}")
    for count, word in ((outlier.nivcsw, "involuntary switch"), (outlier.majflt, "major fault")):
        if count:
            parts.append(
                f"{format_count(count)} {word}{'es' * (count != 1 and word.endswith('ch')) or 's' * (count != 1)}"
            )
    if outlier.cpu is not None and outlier.cpu_before is not None and outlier.cpu != outlier.cpu_before:
        parts.append(f"moved from CPU {outlier.cpu_before} to {outlier.cpu}")
    cause = f" ({clean(outlier.cause)})" if outlier.kind == "late" else ""
    return ", ".join(parts) + cause


def _saved_lines(saved: Path | str | None, width: int) -> list[Text]:
    if saved is None:
        return []
    path = clean(saved)
    command = f"robot-perf report {clean(shlex.quote(str(saved)))} -o report.html"
    short = "robot-perf report FILE -o report.html"
    if LABEL + len(path) + 6 + len(short) <= width:
        return [Text.assemble(("saved", "dim"), " " * (LABEL - 5), path, " " * 6, short)]
    return [Text.assemble(("saved", "dim"), " " * (LABEL - 5), path), Text(" " * LABEL + command)]
