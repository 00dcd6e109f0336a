"""The text report of a Run: the verdict first, each number with its unit, n and interval, what to do next last."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from robot_perf.analyze.explain.soak import soak_of
from robot_perf.analyze.summary import summarize
from robot_perf.analyze.types import Summary, Verdict
from robot_perf.analyze.verdict import judge
from robot_perf.render.lines import LABEL, clean, join, labelled, pad
from robot_perf.render.parts.checked import check_conditions
from robot_perf.render.parts.graphs import DEADLINE, LATE, LOST, ON_TIME, histogram, timeline_marks
from robot_perf.render.parts.opening import opening_lines, opening_of, plan_words
from robot_perf.render.parts.table import metric_table
from robot_perf.render.parts.verdict import headline, verdict_lines
from robot_perf.render.parts.words import context_pairs
from robot_perf.render.soak import soak_lines
from robot_perf.run.model import Run
from robot_perf.specs import Budget, LoopSpec
from robot_perf.units import format_count, format_duration

__all__ = ["MAX_WIDTH", "deadline_report", "deadline_text", "opening_text", "plan_line", "result_text", "verdict_line"]

MAX_WIDTH = 100


def deadline_report(
    run: Run, *, width: int = MAX_WIDTH, saved: Path | str | None = None, doctor_notes: int | None = None
) -> str:
    """The whole report as plain text, without colour."""
    verdict = judge(run) if run.loop.period_ns else None
    return deadline_text(run, summarize(run), verdict, width=width, saved=saved, doctor_notes=doctor_notes).plain


def opening_text(**given: Any) -> Text:
    """What runs, for how long, on what machine: before it starts. Keywords are those of `parts.opening.opening_lines`."""
    return join(opening_lines(**given))


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
    check_conditions(run)
    width = min(width, MAX_WIDTH)
    lines: list[Text | str] = []
    if verdict is not None:
        lines += verdict_lines(run, verdict, width)
    else:
        lines += labelled(
            "NO VERDICT", "these calls ran back to back: nothing was released, so nothing could miss", width
        )
    lines += ["", *metric_table(summary, width), ""]
    graphs = _graph_lines(run, summary, width)
    lines += [*graphs, ""] if graphs else []
    known = verdict.notes if verdict is not None else ()
    lines += _context_lines(run, summary, known, width)
    if (soak := soak_of(run)) is not None:
        lines += ["", *soak_lines(soak, width), ""]
    lines += _saved_lines(saved, width)
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
    each = "1 release" if per_mark < 1.5 else f"{format_count(round(per_mark))} releases"
    lines.append(Text(f"  timeline {marks}  {ON_TIME} {each}{legend}"))
    return lines


def _context_lines(run: Run, summary: Summary, known: Sequence[str], width: int) -> list[Text]:
    quiet = ("rate", "phases", "cold start", "note", "worst")
    pairs = context_pairs(run, summary, known)
    return [t for label, w in pairs for t in labelled(label, w, width, label_style="dim" if label in quiet else "")]


def _saved_lines(saved: Path | str | None, width: int) -> list[Text]:
    """Where the Run lies and what to do with it. A path is never cut: it is there to be copied."""
    if saved is None:
        return []
    path = clean(saved)
    command = f"robot-perf report {clean(shlex.quote(str(saved)))} -o report.html"
    first = Text.assemble((pad("saved", LABEL), "dim"), path)
    if first.cell_len + 6 + len(command) <= width:
        return [Text.assemble(first, " " * 6, command)]
    return [first, Text(pad("next", LABEL), "dim") + Text(command, "")]
