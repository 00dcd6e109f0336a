"""Numbers of an ncu CSV: the exporting machine's locale is inferred from cells that can be read only one way (rules C9 to C13)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

_NUMBER = re.compile(r"[-+]?[\d.,]*\d(?:[eE][-+]?\d{1,3})?$")
_BLANKS = re.compile(r"(?<=\d)[   '’](?=\d)")  # grouping by blanks or apostrophes is never a decimal mark
_TIME = {"nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9}
_FREQUENCY = {
    "hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9, "cycle/second": 1.0, "cycle/s": 1.0, "cycle/msecond": 1e3, "cycle/ms": 1e3, "cycle/usecond": 1e6,
    "cycle/us": 1e6, "cycle/nsecond": 1e9, "cycle/ns": 1e9,
}  # fmt: skip
_BYTES = {f"{p}byte": 10.0**e for p, e in (("", 0), ("k", 3), ("m", 6), ("g", 9), ("t", 12))}
_PER = {"": 1.0, "/s": 1.0, "/second": 1.0, "/block": 1.0}
_PLAIN = frozenset(
    {
        "",
        "inst",
        "cycle",
        "warp",
        "block",
        "thread",
        "register/thread",
        "sm",
        "inst/cycle",
        "pass",
        "cluster",
        "sector",
        "%",
    }
)


def unit_scale(unit: str, family: str) -> float | None:
    """Factor to ns, Hz, bytes (per second), or 1; None for a unit that the family doesn't know (rule C9)."""
    lowered = unit.strip().lower()
    if family == "time":
        return _TIME.get(lowered)
    if family == "hz":
        return _FREQUENCY.get(lowered)
    if family == "bytes":
        stem = next((s for s in sorted(_BYTES, key=len, reverse=True) if lowered.startswith(s)), None)
        return None if stem is None or lowered[len(stem) :] not in _PER else _BYTES[stem]
    if family == "pct":
        return 1.0 if lowered in ("%", "") else None
    return 1.0 if lowered in _PLAIN else None


@dataclass(frozen=True)
class Reading:
    """What one cell allows: `decimal` is the decimal mark it proves ('' none), `value` is set where no proof is needed."""

    text: str
    decimal: str = ""
    value: float | None = None
    ambiguous: bool = False


def examine(cell: str) -> Reading | None:
    """The cell's reading, None where it is no number (`n/a`, `no data`, text)."""
    text = _BLANKS.sub("", cell.strip())
    if not _NUMBER.match(text) or len(text) > 60:
        return None
    dots, commas = text.count("."), text.count(",")
    if dots and commas:
        return Reading(text, decimal="." if text.rindex(".") > text.rindex(",") else ",")
    if dots + commas > 1:
        return Reading(text, decimal="," if dots else ".")
    return _one_mark(text, "." if dots else ",") if dots + commas else Reading(text, value=float(text))


def _one_mark(text: str, mark: str) -> Reading:
    head, tail = text.lstrip("+-").split(mark)
    if mark == "." and len(tail) == 6 and tail.isdigit():
        return Reading(text, value=float(text))  # scaled metrics are printed so in every locale (rule C11): no vote
    if len(tail) != 3 or not tail.isdigit() or not head or len(head) > 3 or head.startswith("0"):
        return Reading(text, decimal=mark)
    return Reading(text, ambiguous=True)


def parse(text: str, decimal: str) -> float:
    """The number under a decimal mark; NaN where its groups are not of three digits."""
    group = "," if decimal == "." else "."
    whole, _, fraction = text.partition(decimal)
    parts = whole.lstrip("+-").split(group)
    if len(parts) > 1 and (not 1 <= len(parts[0]) <= 3 or any(len(p) != 3 for p in parts[1:])):
        return nan
    if group in fraction:
        return nan
    return float(whole.replace(group, "") + ("." + fraction if fraction else "")) if whole or fraction else nan


def votes(cells: Iterable[str]) -> set[str]:
    """The decimal marks that unambiguous cells prove."""
    return {r.decimal for r in map(examine, cells) if r is not None and r.decimal}


def value_of(cell: str, column: set[str], whole_file: set[str]) -> tuple[float, bool]:
    """(number, ambiguous). The cell's own proof, then its column's, then the file's; else NaN and True. Never the likelier reading."""
    reading = examine(cell)
    if reading is None:
        return nan, False
    if reading.value is not None:
        return reading.value, False
    if reading.decimal:
        return parse(reading.text, reading.decimal), False
    for marks in (column, whole_file):
        if len(marks) == 1:
            return parse(reading.text, next(iter(marks))), False
    return nan, True


def both_readings(cell: str) -> tuple[float, float] | None:
    """The two values of an ambiguous cell, decimal point first; None for any other cell."""
    reading = examine(cell)
    return (parse(reading.text, "."), parse(reading.text, ",")) if reading is not None and reading.ambiguous else None
