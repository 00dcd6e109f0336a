"""What importers share: interned names, row buffers that become columns, joining work to the calls that launched it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.errors import ProfileError
from robot_perf.profiles.model import NULL, Column, Table
from robot_perf.profiles.names import clean

MAX_ROWS = 40_000_000  # all tables together: about 6 GB of columns; a capture of that size answers nothing more than a shorter one


class Names:
    """Interned, cleaned strings: the same text is stored once."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._ids: dict[object, int] = {}

    def __call__(self, text: object) -> int:
        """The number of a string; the text is cleaned once."""
        number = self._ids.get(text)
        if number is None:
            number = self._ids[text] = len(self.strings)
            self.strings.append(clean(text))
        return number

    def numbers(self, texts: Sequence[object]) -> list[int]:
        """The numbers of many strings."""
        known = self._ids
        try:
            return [known[text] for text in texts]
        except KeyError:
            return [self(text) for text in texts]


def integer(value: Any) -> int:
    """An integer cell; digits as text count, anything else is null."""
    if type(value) is int and -(2**63) < value < 2**63:
        return value
    return int(value) if type(value) is str and value.isdigit() and len(value) < 19 else NULL


class Rows:
    """Rows of integers in one flat buffer: 8 bytes a cell, no Python object kept."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.cells = array("q")
        self.add = self.cells.extend

    def __len__(self) -> int:
        return len(self.cells) // len(self.names)

    def columns(self) -> dict[str, Column]:
        """One contiguous int64 array per column."""
        matrix = (
            np.frombuffer(self.cells, dtype=np.int64).reshape(-1, len(self.names))
            if self.cells
            else np.empty((0, len(self.names)), np.int64)
        )
        return {name: matrix[:, i].copy() for i, name in enumerate(self.names)}


def check_rows(count: int, source: str) -> None:
    """Refuses a capture that would not fit the stated memory."""
    if count > MAX_ROWS:
        raise ProfileError(
            f"{source}: more than {MAX_ROWS:,} rows",
            why="Larger captures are refused, so that memory stays bounded.",
            do="Capture fewer steps.",
        )


def check_times(columns: Mapping[str, Column], source: str, limit: int = 1 << 61) -> None:
    """Refuses times so large that differences would overflow 64 bits: 73 years in ns."""
    for name in ("start_ns", "end_ns", "dur_ns", "start", "end"):
        values = columns.get(name)
        if (
            values is not None
            and len(values)
            and bool(((values != NULL) & ((values > limit) | (values < -limit))).any())
        ):
            raise ProfileError(
                f"{source}: a time is out of range", why="The file may be damaged.", do="Export it again."
            )


def merge_calls(apis: Table) -> Table:
    """One row per distinct (process, corr), the outermost interval: old nsys exports hold a wrapper row and the call (rule N9)."""
    corr, process = apis["corr"], apis["process"]
    keyed = corr != NULL
    order = np.lexsort((-apis["end_ns"], apis["start_ns"], corr, process))
    order = order[keyed[order]]
    if not len(order):
        return apis
    first = np.ones(len(order), bool)
    first[1:] = (corr[order][1:] != corr[order][:-1]) | (process[order][1:] != process[order][:-1])
    keep = np.sort(np.concatenate([order[first], np.flatnonzero(~keyed)]))
    return apis if len(keep) == len(apis) else apis.take(keep)


def link(kernels: Table, apis: Table, *, by_process: bool) -> tuple[Table, Table]:
    """`kernels` with the column `api` (row of the call) and `apis` with `ops`. Key (process, corr), or corr alone (rule N8, K5).

    By corr alone, a corr that several processes use links nothing: the join would pick one by chance.
    """
    api = np.full(len(kernels), NULL, dtype=np.int64)
    ops = np.zeros(len(apis), dtype=np.int64)
    if len(kernels) and len(apis):
        keyed = np.flatnonzero(apis["corr"] != NULL)
        process = apis["process"][keyed] if by_process else np.zeros(len(keyed), np.int64)
        order = np.lexsort((apis["corr"][keyed], process))
        calls, process, corr = keyed[order], process[order], apis["corr"][keyed][order]
        wanted_process = kernels["process"] if by_process else np.zeros(len(kernels), np.int64)
        left = _rank(process, corr, wanted_process, kernels["corr"], "left")
        right = _rank(process, corr, wanted_process, kernels["corr"], "right")
        found = (right - left == 1) & (kernels["corr"] != NULL)
        api[found] = calls[left[found]]
        np.add.at(ops, api[found], 1)
    return kernels.with_columns(api=api), apis.with_columns(ops=ops)


def _rank(process: Column, corr: Column, want_process: Column, want_corr: Column, side: str) -> Column:
    """searchsorted over pairs, sorted by process: processes are few, so one search per process."""
    rank = np.zeros(len(want_corr), dtype=np.int64)
    first = np.ones(len(process), bool)
    first[1:] = process[1:] != process[:-1]
    for number in process[first]:
        low, high = np.searchsorted(process, number, "left"), np.searchsorted(process, number, "right")
        mine = want_process == number
        rank[mine] = low + np.searchsorted(corr[low:high], want_corr[mine], side=side)  # type: ignore[call-overload]
    return rank


def clip_covering(kernels: Table) -> tuple[Table, int, int]:
    """Clips a row that covers a whole later op of its own stream to that op's start (rule K12).

    Returns the table, the number of clipped rows, and the nanoseconds taken away. Partial overlap on a stream is legal.
    """
    if len(kernels) < 2:
        return kernels, 0, 0
    start, end, null = kernels["start_ns"], kernels["end_ns"].copy(), kernels["start_ns"] == NULL
    order = np.lexsort((end, start, kernels["stream"], kernels["device"]))
    order = order[~null[order]]
    a, b = order[:-1], order[1:]
    same = (kernels["stream"][a] == kernels["stream"][b]) & (kernels["device"][a] == kernels["device"][b])
    covers = same & (start[b] > start[a]) & (start[b] < end[a]) & (end[b] <= end[a]) & (end[b] > start[b])
    if not covers.any():
        return kernels, 0, 0
    removed = int((end[a[covers]] - start[b[covers]]).sum())
    end[a[covers]] = start[b[covers]]
    return (
        kernels.with_columns(end_ns=end, dur_ns=np.where(null, kernels["dur_ns"], end - start)),
        int(covers.sum()),
        removed,
    )
