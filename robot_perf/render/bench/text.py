"""A bench report as text: the machine, then per policy the table, what has no figures and why, what to use."""

from __future__ import annotations

from rich.text import Text

from robot_perf.analyze.bench.merge import Merged
from robot_perf.render.bench.tables import Section, Table, head_lines, merged_table, sections
from robot_perf.render.grid import grid
from robot_perf.render.lines import clean, hanging, join, labelled, pad
from robot_perf.run.bench_report import BenchReport

__all__ = ["bench_text", "merged_text"]


def bench_text(report: BenchReport, *, saved: str = "", width: int = 100) -> Text:
    """The whole report. Tables keep their width; words around them wrap at `width`."""
    first, *rest = head_lines(report)
    lines: list[Text | str] = [Text(clean(first), style="bold")]
    for line in rest:
        lines += [Text(words, style="dim") for words in hanging(clean(line), width, 0)]
    for section in sections(report):
        lines += ["", *_section(section, width)]
    if saved:
        lines += ["", *labelled("saved", clean(saved), width, label_style="dim")]
    return join(lines)


def _section(section: Section, width: int) -> list[Text | str]:
    lines: list[Text | str] = [Text(clean(section.policy), style="bold")]
    lines += [Text(words, style="dim") for words in hanging(clean(section.what), width, 0)]
    indent = max((len(clean(backend)) for backend, _, _ in section.reasons), default=0) + 3
    for i, table in enumerate(section.tables):
        lines += ["", *_table(table)]
        for whose, words in table.notes:
            first, *more = hanging(clean(words), width, len(clean(whose)) + 3)
            lines.append(Text.assemble(clean(whose) + "   ", (first, "yellow")))
            lines += [" " * (len(clean(whose)) + 3) + line for line in more]
        if i == 0:
            for backend, status, words in section.reasons:
                first, *more = hanging(f"{status}   {clean(words)}", width, indent)
                lines.append(Text.assemble(pad(clean(backend), indent), (first, "yellow")))
                lines += [" " * indent + line for line in more]
    if section.same or section.advice:
        lines.append("")
    for words in section.same:
        lines += labelled("same", clean(words), width, label_style="dim")
    for words in section.advice:
        lines += labelled("use", clean(words), width, style="bold")
    return lines


def _table(table: Table) -> list[Text | str]:
    rows = [tuple(clean(cell) for cell in row) for row in table.rows]
    if table.groups:
        text = grid(table.groups, [table.head, *rows], left=table.left, gap=2)
    else:
        text = grid(table.head, rows, left=table.left, gap=2)
    head, *body = text.split("\n")
    titles = 1 if table.groups else 0
    return [
        Text(table.title, style="italic"),
        Text(head, style="dim"),
        *[Text(line, style="dim") for line in body[:titles]],
        *body[titles:],
    ]


def merged_text(merged: Merged, *, width: int = 100) -> Text:
    """One table over devices."""
    lines: list[Text | str] = [*_table(merged_table(merged))]
    for note in merged.notes:
        lines += labelled("note", clean(note), width, label_style="dim")
    return join(lines)
