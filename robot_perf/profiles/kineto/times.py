"""Times of a Kineto trace: microseconds as written become exact picoseconds, one at a time or a column at once (profiles.md, K1 to K3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from robot_perf.profiles.model import Column

PS = 1_000_000  # picoseconds of a microsecond: exact for six decimals
_DIGITS = 6
_POWERS = 10 ** np.arange(_DIGITS + 1)
_EXACT = 1 << 62  # beyond, scaling could leave 64 bits: Python's integers decide
_EXACT_LENGTH_US = 1e9
_PLAIN = re.compile(r"[0-9. ]+")


def picoseconds_since(values: Sequence[Any], base_us: int) -> Column:
    """Exact int64 picoseconds since `base_us` of microseconds as written: all integers, or all text with one to six decimals.

    Numbers that the parser made doubles of are lengths (`base_us` 0) below 17 minutes: their six decimals are exact.
    Raises ValueError, TypeError or OverflowError where they are anything else, or too large for 64 bits.
    """
    kinds = set(map(type, values))
    if kinds == {str}:
        scaled, decimals = _scaled(values)
    elif kinds == {int}:
        scaled, decimals = np.array(values, np.int64), np.zeros(1, np.int64)
    elif kinds <= {int, float} and base_us == 0:
        lengths = np.array(values, np.float64)
        if not float(abs(lengths).max()) < _EXACT_LENGTH_US:
            raise OverflowError("too long for six exact decimals")
        rounded: Column = np.rint(lengths * PS).astype(np.int64)
        return rounded
    else:
        raise TypeError("numbers of several kinds")
    if int(abs(scaled).max()) > _EXACT or base_us * 10 ** int(decimals.max()) > _EXACT:
        raise OverflowError("too many digits")
    since = scaled - base_us * _POWERS[decimals]
    if int(abs(since).max()) * 10 ** (_DIGITS - int(decimals.min())) > _EXACT:
        raise OverflowError("too far from the first event")
    exact: Column = since * _POWERS[_DIGITS - decimals]
    return exact


def _scaled(texts: Sequence[str]) -> tuple[Column, Column]:
    """Digits without their point, and how many stood behind it."""
    joined = " ".join(texts)
    if not _PLAIN.fullmatch(joined):
        raise ValueError("not plain decimal numbers")
    raw = np.frombuffer((joined + " ").encode("ascii"), np.uint8)
    ends, points = np.flatnonzero(raw == ord(" ")), np.flatnonzero(raw == ord("."))
    scaled = np.fromstring(joined.replace(".", ""), np.int64, sep=" ")
    if not len(scaled) == len(points) == len(ends) or bool((points[1:] < ends[:-1]).any()):
        raise ValueError("not one number with a fraction each")
    decimals = ends - points - 1
    if int(decimals.min()) < 1 or int(decimals.max()) > _DIGITS:
        raise ValueError("no fraction, or a longer one")
    return scaled, decimals


def picoseconds(value: Any) -> int:
    """Exact picoseconds of microseconds as written: an integer, or text with a fraction. Three decimals are what Kineto writes.

    A double gives the digits that it was made of, up to 15.
    """
    if type(value) is int:
        return value * PS
    if type(value) is float:
        return int(Decimal(repr(value)) * PS)
    if value[-4:-3] == "." and value[-3:].isdigit():
        return int(value[:-4] + value[-3:]) * 1000
    return int(Decimal(value) * PS)
