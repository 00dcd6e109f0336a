"""Rows of `nsys stats` CSV: which report a header names, its units, numbers as ns and bytes (rules S1 to S4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

import numpy as np

from robot_perf.errors import ProfileError
from robot_perf.profiles.model import NULL, Column
from robot_perf.profiles.names import clean, redact
from robot_perf.profiles.text import csv_rows

_UNIT = re.compile(r"^(.*?)\s*\((ns|us|ms|s|MB)\)$")
_SCALE = {
    "ns": Decimal(1),
    "us": Decimal(10) ** 3,
    "ms": Decimal(10) ** 6,
    "s": Decimal(10) ** 9,
    "MB": Decimal(10) ** 6,
}
_REPORTS: tuple[tuple[str, frozenset[str]], ...] = (
    ("cuda_kern_exec_trace", frozenset({"API Start", "Kernel Start", "Kernel Name"})),
    ("cuda_kern_exec_sum", frozenset({"Count", "QCount", "API Name"})),
    ("cuda_gpu_trace", frozenset({"Start", "Duration", "CorrId", "Strm"})),
    ("nvtx_gpu_proj_sum", frozenset({"Range", "Total GPU Ops"})),
    ("cuda_gpu_mem_size_sum", frozenset({"Total", "Count", "Operation"})),
    ("cuda_gpu_mem_time_sum", frozenset({"Total Time", "Count", "Operation"})),
    ("cuda_api_sum", frozenset({"Total Time", "Num Calls", "Name"})),
    ("cuda_gpu_kern_sum", frozenset({"Total Time", "Instances", "Name"})),
)
TIMELINES = frozenset({"cuda_kern_exec_trace", "cuda_gpu_trace"})


def report_of(fields: Sequence[str]) -> str | None:
    """The report whose header row this is; names differ between versions, columns do not (rule S2)."""
    plain = {_split_unit(f)[0] for f in fields}
    return next((name for name, needed in _REPORTS if needed <= plain), None)


def _split_unit(name: str) -> tuple[str, str | None]:
    name = name.strip().replace("Time(%)", "Time (%)")
    match = _UNIT.match(name)
    base, unit = (match[1], match[2]) if match else (name, None)
    return {"Average": "Avg", "Minimum": "Min", "Maximum": "Max", "Median": "Med", "Operations": "Count"}.get(
        base, base
    ), unit


@dataclass
class Section:
    """One report of the file, its rows with their line numbers."""

    report: str
    columns: list[tuple[str, str | None]]
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


@dataclass
class Parsed:
    """One report as columns."""

    source: str
    section: Section
    resolution_ns: Decimal = Decimal(1)

    def __len__(self) -> int:
        return len(self.section.rows)

    def index(self, name: str) -> int | None:
        """Position of a column, None when the report lacks it."""
        return next((i for i, (c, _) in enumerate(self.section.columns) if c == name), None)

    def text(self, name: str) -> list[str]:
        """A column as text; empty strings when the report lacks it."""
        at = self.index(name)
        return ["" if at is None else row[at].strip() for _, row in self.section.rows]

    def numbers(self, name: str) -> Column:
        """A column in ns or bytes as float64, empty cells NaN; the unit is the header's (rule S1)."""
        at = self.index(name)
        if at is None:
            return np.full(len(self), np.nan)
        unit = self.section.columns[at][1]
        scale = _SCALE.get(unit or "ns", Decimal(1))
        values = np.full(len(self), np.nan)
        for i, (line, row) in enumerate(self.section.rows):
            cell = row[at].strip()
            if not cell:
                continue
            try:
                number = Decimal(cell)
                if not number.is_finite():
                    raise InvalidOperation
                values[i] = float(number * scale)
                if not np.isfinite(values[i]):
                    raise InvalidOperation
            except (InvalidOperation, OverflowError):
                raise ProfileError(
                    f"{self.source}: line {line:,}: {clean(cell)[:40]!r} is not a number", why=f"Column {name}."
                ) from None
            if unit in ("us", "ms", "s"):
                digits = -int(number.as_tuple().exponent)
                self.resolution_ns = (
                    max(self.resolution_ns, scale / Decimal(10) ** max(0, digits))
                    if digits >= 0
                    else self.resolution_ns
                )
        return values

    def integers(self, name: str) -> Column:
        """A column in whole ns, bytes or counts; empty cells NULL."""
        values = self.numbers(name)
        if np.isfinite(values).any() and np.nanmax(np.abs(values)) >= 2**61:
            raise ProfileError(f"{self.source}: a number of the column {name} is out of range")
        return np.where(np.isnan(values), NULL, np.nan_to_num(np.rint(values))).astype(np.int64)


def sections(text: str, source: str) -> tuple[list[Section], list[str]]:
    """The reports of a file in order, and notes for those that nsys skipped."""
    found: list[Section] = []
    notes: list[str] = []
    current: Section | None = None
    for line, row in csv_rows(text.splitlines(), source, 0):
        joined = ",".join(row).strip()
        if joined.startswith("SKIPPED"):
            notes.append(redact(joined))
        report = report_of(row)
        if report is not None:
            current = Section(report, [_split_unit(f) for f in row])
            found.append(current)
        elif current is not None and len(row) == len(current.columns):
            current.rows.append((line, row))
        elif (
            joined
            and not joined.startswith(("SKIPPED", "Processing ", "Generating", "NOTICE", "**"))
            and current is not None
        ):
            raise ProfileError(
                f"{source}: line {line:,} has {len(row)} fields, the header of {current.report} has {len(current.columns)}",
                why="The file may be cut.",
            )
        if joined.startswith(("Processing ", "SKIPPED")):
            current = None
    return found, notes
