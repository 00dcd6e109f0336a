"""The table of percentiles in a text report: a row of values and, under the first, a row of intervals."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from robot_perf.analyze.types import SKIPPED, Distribution, Summary
from robot_perf.render.cells import (
    NO_VALUE,
    MetricRow,
    Unit,
    dependence_words,
    interval,
    main_rows,
    number,
    percent,
    quantile,
    reason_words,
)
from robot_perf.render.lines import labelled, pad, pad_left
from robot_perf.units import format_count

__all__ = ["COLUMNS", "metric_table"]

COLUMNS = ("p50", "p90", "p99", "p99.9")


def metric_table(summary: Summary, width: int) -> list[Text]:
    """Header, one line of values per metric, the response's intervals, and the percentiles that no interval allows."""
    rows = main_rows(summary)
    values = [_values(row) for row in rows]
    ends = [interval(rows[0].data.quantile(name), rows[0].unit) for name in COLUMNS]
    columns = [
        max(cell_len(name), cell_len(ends[i]), *(cell_len(v[i]) for v in values)) for i, name in enumerate(COLUMNS)
    ]
    columns.append(max(cell_len("max"), *(cell_len(v[-1]) for v in values)))
    label = max(13, *(cell_len(row.label) + 2 for row in rows))
    head = " " * (label + 2) + "".join(
        "  " + pad_left(name, w) for name, w in zip((*COLUMNS, "max"), columns, strict=True)
    )
    lines = [Text(head, "dim")]
    room = width - cell_len(head)
    below: list[Text] = []
    for i, (row, cells) in enumerate(zip(rows, values, strict=True)):
        line = f"{pad(row.label, label)}{row.unit.name}" + "".join(
            "  " + pad_left(c, w) for c, w in zip(cells, columns, strict=True)
        )
        remarks = _response_remarks(summary, row) if i == 0 else [row.remark]
        fits = next((remark for remark in remarks if cell_len(remark) + 2 <= room), "")
        line += f"  {fits}" if fits else ""
        if remarks[-1] and not fits:
            below += labelled("", f"{row.label.strip()}: {remarks[-1]}", width, style="dim")
        lines.append(Text(line))
        if i == 0:
            lines += _interval_row(row.data, ends, columns, label, width)
            if words := dependence_words(row.data, COLUMNS):
                lines += labelled("", f"steps are alike in a row: intervals {words}", width, style="dim")
    return lines + below


def _values(row: MetricRow) -> list[str]:
    cells = [quantile(row.data.quantile(name), row.unit) for name in COLUMNS]
    return [*cells, _largest(row.data, row.unit)]


def _largest(data: Distribution, unit: Unit) -> str:
    if data.max is not None:
        return number(data.max, unit)
    return SKIPPED if data.infinite else NO_VALUE


def _response_remarks(summary: Summary, row: MetricRow) -> list[str]:
    """The step of the maximum and the deadline, the longest wording first; the deadline stands in the verdict as well."""
    deadline = (
        f"deadline {number(summary.deadline_ns, Unit(row.unit.name, row.unit.ns, 2))}" if summary.deadline_ns else ""
    )
    if row.data.max_step is None:
        return [deadline]
    where = f"at release {format_count(row.data.max_step)}"
    return [f"{where}      {deadline}".rstrip(), f"{where}, {deadline}".rstrip(", "), where]


def _interval_row(data: Distribution, ends: list[str], columns: list[int], label: int, width: int) -> list[Text]:
    """The intervals, and the words for the percentiles whose interval needs more steps than there are."""
    title = pad(f"  {percent(data.confidence)} interval", label + 2)
    cells = "".join("  " + pad_left(end, w) for end, w in zip(ends, columns[:-1], strict=True))
    reasons = [
        (name, reason_words(data.quantile(name).reason))
        for name in COLUMNS
        if data.quantile(name).reason not in (None, SKIPPED)
    ]
    if data.reason and not any(ends):
        return [Text(f"{title}  {reason_words(data.reason)}", "dim")]
    if not reasons:
        return [Text((title + cells).rstrip(), "dim")]
    one = reasons[0][1] if len(reasons) == 1 else "; ".join(f"{name} {words}" for name, words in reasons)
    first = (title + cells).rstrip()
    if cell_len(first) + 2 + len(one) <= width:
        return [Text(f"{first}  {one}", "dim")]
    words = "; ".join(f"{name} {words}" for name, words in reasons)
    return [Text(first, "dim"), *labelled("", words, width, style="dim")]
