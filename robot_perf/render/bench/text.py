"""A bench report as text: the machine, then per policy the table, what has no figures and why, what to use."""

from __future__ import annotations

import string
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from robot_perf.analyze.bench.merge import Merged, MergedRow
from robot_perf.render.bench.merged import medians_table
from robot_perf.render.bench.tables import Section, Table, head_lines, sections
from robot_perf.render.grid import columns_that_fit, grid
from robot_perf.render.lines import clean, hanging, join, labelled, pad
from robot_perf.run.bench_report import OK, BenchReport

__all__ = ["bench_text", "merged_text"]

_GAP = 2
_ROOM = 45  # cells that words need beside what they are about


def bench_text(report: BenchReport, *, saved: str = "", width: int = 100, screen: int | None = None) -> Text:
    """The whole report. Words wrap at `width`; tables wider than `screen` columns are split, each part with its keys."""
    first, *rest = [*head_lines(report), *report.notes]
    lines: list[Text | str] = [Text(clean(first), style="bold")]
    for line in rest:
        lines += [Text(words, style="dim") for words in hanging(clean(line), width, 0)]
    for section in sections(report):
        lines += ["", *_section(section, width, screen)]
    if saved:
        lines += ["", *labelled("saved", clean(saved), width, label_style="dim")]
    return join(lines)


def _section(section: Section, width: int, screen: int | None) -> list[Text | str]:
    lines: list[Text | str] = [Text(clean(section.policy), style="bold")]
    lines += [Text(words, style="dim") for words in hanging(clean(section.what), width, 0)]
    if not section.tables and section.reasons:  # nothing has figures: the reasons are all there is to say
        lines += ["", *_reasons(section, width)]
    for i, table in enumerate(section.tables):
        lines += ["", *_table(table, screen)]
        for whose, words in table.notes:
            lines += _beside(whose, words, width, style="yellow")
        if i == 0:
            lines += _reasons(section, width)
            for whose, words in section.notes:
                lines += _beside(whose, words, width, style="dim")
    if section.same or section.advice:
        lines.append("")
    for words in section.same:
        lines += labelled("same", clean(words), width, label_style="dim")
    for words in section.advice:
        lines += labelled("use", clean(words), width, style="bold")
    return lines


def _reasons(section: Section, width: int) -> list[Text]:
    whose = max((cell_len(clean(backend)) for backend, _, _ in section.reasons), default=0)
    lines: list[Text] = []
    for backend, status, words in section.reasons:
        lines += _beside(pad(clean(backend), whose), f"{status}   {words}", width, style="yellow")
    return lines


def _beside(whose: str, words: str, width: int, *, style: str) -> list[Text]:
    """What is said, beside whom it is said of; under it where the name leaves no room."""
    name = clean(whose)
    indent = cell_len(name) + 3
    if indent + _ROOM > width:
        above = [Text(line) for line in hanging(name, width, 0)]
        return [*above, *[Text.assemble("   ", (line, style)) for line in hanging(clean(words), width, 3)]]
    first, *more = hanging(clean(words), width, indent)
    return [Text.assemble(name + "   ", (first, style)), *[Text.assemble(" " * indent, (w, style)) for w in more]]


def _table(table: Table, screen: int | None) -> list[Text | str]:
    rows = [tuple(clean(cell) for cell in row) for row in table.rows]
    titles = [table.groups, table.head] if table.groups else [table.head]
    starts = [i for i, word in enumerate(table.groups or table.head) if word]
    lines: list[Text | str] = [Text(table.title, style="italic")]
    for part, chosen in enumerate(columns_that_fit([*titles, *rows], starts, table.keys, screen, gap=_GAP)):
        if part:
            lines.append("")
        left = [at for at, column in enumerate(chosen) if column in table.left]
        first, *others = [tuple(row[i] for i in chosen) for row in (*titles, *rows)]
        for i, line in enumerate(grid(first, others, left=left, gap=_GAP).split("\n")):
            lines.append(Text(line, style="dim") if i < len(titles) else line)
    return lines


def merged_text(merged: Merged, *, width: int = 100, screen: int | None = None) -> Text:
    """One table over devices. A letter stands for a report: its device, power mode, clocks, software and file are below."""
    reports = list(dict.fromkeys((r.source, r.device, r.power_mode, r.clocks) for r in merged.rows))
    letters = {source: _letter(i) for i, (source, *_) in enumerate(reports)}
    lines: list[Text | str] = [*_table(medians_table(merged, letters), screen)]
    lines += _without_figures(merged.rows, letters, width)
    lines.append("")
    for source, device, power_mode, clocks in reports:
        key = ", ".join((device, power_mode or "power mode unknown", clocks or "clocks unknown"))
        parts = [p for r in merged.rows if r.source == source for p in r.software.split(", ") if p]
        words = f"{key}; {', '.join(dict.fromkeys(parts))}; {source}"
        lines += labelled(letters[source], clean(words), width)
    for note in merged.notes:
        lines += labelled("note", clean(note), width, label_style="dim")
    return join(lines)


def _letter(i: int) -> str:
    """A, B, …, Z, AA, AB, …"""
    letters = string.ascii_uppercase
    return letters[i] if i < len(letters) else _letter(i // len(letters) - 1) + letters[i % len(letters)]


def _without_figures(rows: Sequence[MergedRow], letters: dict[str, str], width: int) -> list[Text]:
    """Each reason once, with the policies of which it is true."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        on = f"{row.backend} on {letters[row.source]}"
        if row.status != OK:
            found.setdefault((on, f"{row.status}   {row.reason}"), []).append(row.policy)
        for rate, (status, reason) in row.unfit.items():
            found.setdefault((f"{on} at {rate}", f"{status}   {reason}"), []).append(row.policy)
    lines: list[Text] = []
    for (on, words), whose in found.items():
        lines += _beside(f"{on}: {', '.join(dict.fromkeys(whose))}", words, width, style="yellow")
    return lines
