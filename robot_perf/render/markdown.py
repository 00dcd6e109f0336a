"""A Run's report as markdown: the tables of the HTML page, for a pull request, a wiki or a reports folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from robot_perf import __version__
from robot_perf.render.cells import NO_VALUE
from robot_perf.render.parts.glossary import GLOSSARY
from robot_perf.render.parts.sheet import PERCENTILES, WORST_HEAD, Metric, Sheet, sheet_of
from robot_perf.run.model import Run

__all__ = ["escape_markdown", "report_markdown", "step_summary"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")


def report_markdown(runs: Sequence[tuple[str, Run]], *, images: Sequence[str] = ()) -> str:
    """One document of `(file name, run)` pairs. `images` are links to drawings (`render.png`), one per Run."""
    parts = [_section(sheet_of(run, file), images[i] if i < len(images) else "") for i, (file, run) in enumerate(runs)]
    words = [f"- **{escape_markdown(word)}**: {escape_markdown(text)}" for word, text in GLOSSARY]
    foot = f"robot-perf {__version__}. robot-perf has never run on a Jetson."
    return "\n\n".join([*parts, "## What the words mean", "\n".join(words), foot]) + "\n"


def step_summary(runs: Sequence[tuple[str, Run]]) -> str:
    """The short form for a CI job's summary page: a row per Run, then each Run's remarks."""
    sheets = [sheet_of(run, file) for file, run in runs]
    rows = [(s.status, s.name, s.headline, s.file) for s in sheets]
    lines = [_table(("verdict", "policy", "", "Run"), rows)]
    for sheet in sheets:
        if sheet.remarks:
            lines.append(f"**{escape_markdown(sheet.name)}**\n\n" + _list(sheet.remarks))
    return "\n\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """Text that can neither format, link, break a table nor carry HTML."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = _SPECIAL.sub(r"\\\1", plain).replace("\r", " ").replace("\n", " ")
    # a word that a renderer would turn into a link or a mention
    return (
        plain.replace("://", ":&#47;&#47;")
        .replace("www.", "www&#46;")
        .replace("@", "&#64;")
        .replace("!\\[", "&#33;\\[")
    )


def _section(sheet: Sheet, image: str) -> str:
    parts = [
        f"# {escape_markdown(sheet.name)}",
        f"**{sheet.status}** {escape_markdown(sheet.headline)}",
        _list(sheet.remarks),
        _pairs([*sheet.opening, *([("Run", sheet.file)] if sheet.file else [])]),
        "## Distributions",
        f"In brackets the {sheet.confidence} interval (order statistics), or what it would take to have one.",
        _metrics(sheet.metrics),
        f"![Distribution, percentile curve and timeline]({image})" if image else "",
        _pairs(sheet.context),
        *_soak(sheet),
        "## Counts and bounds",
        _pairs(sheet.counts),
        "## Dependence",
        _pairs(sheet.diagnostics),
        "## Cold start",
        _pairs(sheet.cold),
        "## Worst steps",
        _table(WORST_HEAD, sheet.worst),
        "## Conditions and environment",
        "<details><summary>All conditions</summary>\n\n" + _pairs(sheet.conditions) + "\n\n</details>",
    ]
    return "\n\n".join(part for part in parts if part)


def _soak(sheet: Sheet) -> list[str]:
    if not sheet.soak:
        return []
    answers = "\n".join(f"- {escape_markdown(words)}" for words in sheet.soak)
    table = _table(sheet.minutes[0], sheet.minutes[1:]) if sheet.minutes else ""
    return ["## By the minute", "Response of the steps that ran.", table, answers]


def _metrics(metrics: Iterable[Metric]) -> str:
    rows = [(m.label, m.unit, m.n, *(_cell(value, words) for value, words in m.cells)) for m in metrics]
    return _table(("metric", "unit", "n", "min", *PERCENTILES, "max"), rows)


def _cell(value: str, words: str) -> str:
    if value == NO_VALUE and words:
        return words
    return f"{value} ({words})" if words and words != value else value


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = list(pairs)
    return _table(("", ""), rows) if rows else ""


def _list(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        f"- {escape_markdown(label)}: {escape_markdown(words)}" if label else f"  {escape_markdown(words)}"
        for label, words in pairs
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([escape_markdown(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
