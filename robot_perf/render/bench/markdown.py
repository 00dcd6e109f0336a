"""A bench report as markdown, with links to its pictures: for a repository's reports folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robot_perf.analyze.bench.merge import Merged
from robot_perf.render.bench.merged import merged_table
from robot_perf.render.bench.tables import Section, Table, head_lines, sections
from robot_perf.render.markdown import escape_markdown
from robot_perf.run.bench_report import BenchReport

__all__ = ["bench_markdown", "merged_markdown"]


def bench_markdown(report: BenchReport, pictures: Mapping[str, str]) -> str:
    """The report; `pictures` maps a policy to a link."""
    parts = [
        f"# Bench: {escape_markdown(report.machine.device)}",
        "\n".join(f"- {escape_markdown(line)}" for line in head_lines(report)),
        "Made with `robot-perf " + " ".join(report.argv).replace("`", "'") + "`.",
        *[escape_markdown(note) + "." for note in report.notes],
    ]
    for section in sections(report):
        parts += _section(section, pictures.get(section.policy, ""))
    return "\n\n".join(p for p in parts if p) + "\n"


def _section(section: Section, picture: str) -> list[str]:
    parts = [f"## {escape_markdown(section.policy)}", escape_markdown(section.what)]
    parts += ["\n".join(f"- **use** {escape_markdown(words)}" for words in section.advice)]
    if not section.tables:  # nothing has figures: the reasons are all there is to say
        parts.append(_reasons(section))
    for i, table in enumerate(section.tables):
        parts += [f"### {escape_markdown(table.title)}", _table(table), _pairs(table.notes)]
        if i == 0:
            parts += [_reasons(section), _pairs(section.notes)]
            parts.append("\n".join(f"- {escape_markdown(words)}" for words in section.same))
            parts.append(f"![Percentile curves by rate, paced against tight]({picture})" if picture else "")
    return parts


def _reasons(section: Section) -> str:
    return "\n".join(
        f"- {escape_markdown(backend)}: **{escape_markdown(status)}** {escape_markdown(words)}"
        for backend, status, words in section.reasons
    )


def _pairs(notes: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- {escape_markdown(whose)}: {escape_markdown(words)}" for whose, words in notes)


def _table(table: Table) -> str:
    head = list(table.head)
    if table.groups:
        group = ""
        for i, word in enumerate(table.groups):
            group = word or group
            head[i] = f"{group} {table.head[i]}" if i else table.head[0]
    rule = ["---" if i in table.left else "---:" for i in range(len(head))]
    lines = [[escape_markdown(c) for c in head], rule, *([escape_markdown(c) for c in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def merged_markdown(merged: Merged) -> str:
    """One table over devices."""
    notes: Sequence[str] = merged.notes
    parts = ["# Bench over devices", _table(merged_table(merged)), "\n".join(f"- {escape_markdown(n)}" for n in notes)]
    return "\n\n".join(p for p in parts if p) + "\n"
