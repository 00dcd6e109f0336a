"""Rows of a Kineto trace: batches of events go in, columns of 64-bit integers come out (profiles.md, rules K1 to K9).

A batch is taken apart by category and turned into columns at once: about a third of the cost of a row at a time. Events that are not
laid out as Kineto lays them out go row by row, with the same result.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np

from robot_perf.errors import ProfileError
from robot_perf.profiles.build import Names, check_rows, integer
from robot_perf.profiles.kineto.facts import copy_facts, overhead_kind
from robot_perf.profiles.kineto.times import PS, picoseconds, picoseconds_since
from robot_perf.profiles.model import ANNOTATION, CPU_OP, KERNEL, MEMCPY, MEMSET, NULL, PYTHON, Column
from robot_perf.profiles.names import api_kind, base_api_name

_DEVICE, _API, _RANGE, _OVERHEAD = range(4)
# category -> (table, kind). Anything else is not read: cuda_sync, cuda_event, gpu_user_annotation, Trace, flows, counters (rule K4).
_CATEGORIES: dict[Any, tuple[int, int]] = {
    "kernel": (_DEVICE, KERNEL), "gpu_memcpy": (_DEVICE, MEMCPY), "gpu_memset": (_DEVICE, MEMSET),
    "Kernel": (_DEVICE, KERNEL), "Memcpy": (_DEVICE, MEMCPY), "Memset": (_DEVICE, MEMSET),
    "cuda_runtime": (_API, 0), "cuda_driver": (_API, 0), "Runtime": (_API, 0), "hip_runtime": (_API, 0),
    "user_annotation": (_RANGE, ANNOTATION), "cpu_op": (_RANGE, CPU_OP), "Operator": (_RANGE, CPU_OP), "python_function": (_RANGE, PYTHON),
    "overhead": (_OVERHEAD, 0),
}  # fmt: skip
_COLUMNS = (
    ("kind", "name", "start_ns", "dur_ns", "device", "stream", "corr", "bytes", "copy", "host_mem", "grid_x", "grid_y", "grid_z",
     "block_x", "block_y", "block_z", "registers", "shared_bytes", "graph_id", "graph_node"),
    ("name", "raw_name", "start_ns", "dur_ns", "process", "thread", "corr", "kind"),
    ("kind", "name", "start_ns", "dur_ns", "process", "thread"),
    ("kind", "name", "start_ns", "dur_ns", "process", "thread"),
)  # fmt: skip
_MALFORMED = (AttributeError, TypeError, KeyError, ValueError, IndexError, OverflowError, InvalidOperation)
_NO_SHAPE = (NULL, NULL, NULL)
MIN_RANGE_US = 10  # CPU ops and Python frames under 10 us can't name a host stage and are not kept
# A range under 10 us in Kineto's own layout, from the value of "ph" on: most events of a trace with Python frames. All of it is matched, so
# that what is cut out is JSON; one with shapes or other text among its arguments is parsed like any event.
SHORT_RANGE = re.compile(
    r'X", ?"cat": ?"(?:cpu_op|python_function)", ?"name": ?"[^"\\]*", ?"pid": ?[0-9]+, ?"tid": ?[0-9]+,\s*"ts": ?[0-9]+\.[0-9]+, ?"dur": ?[0-9]\.[0-9]+,\s*'
    r'"args": ?\{\s*"[\w ]+": ?(?:[0-9]+|null)(?:,\s*"[\w ]+": ?(?:[0-9]+|null))*\s*\}\s*'
)
_TIMES = itemgetter("ts", "dur")
_KERNEL = itemgetter("name", "args")
_SHAPE = itemgetter("device", "stream", "correlation", "registers per thread", "shared memory", "grid", "block")
_COPY = itemgetter("device", "stream", "correlation", "bytes")
_HOST = itemgetter("name", "pid", "tid")


class Columns:
    """Columns of integers, 8 bytes a cell, no Python object kept."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._cells = [array("q") for _ in names]

    def __len__(self) -> int:
        return len(self._cells[0])

    def extend(self, columns: Sequence[Any]) -> None:
        """Adds rows given as columns, all or none. TypeError for what is no integer, OverflowError beyond 64 bits."""
        if len(columns) != len(self._cells):
            raise ValueError(f"{len(columns)} columns where {len(self._cells)} are needed")
        added = [array("q", column.tobytes() if isinstance(column, np.ndarray) else column) for column in columns]
        for cells, more in zip(self._cells, added, strict=True):
            cells.extend(more)

    def columns(self) -> dict[str, Column]:
        """One int64 array per column, without a copy."""
        return {
            name: np.frombuffer(cells, np.int64) if cells else np.empty(0, np.int64)
            for name, cells in zip(self.names, self._cells, strict=True)
        }


class TraceRows:
    """The four tables of a trace while it is read. Times are picoseconds since `base_us`."""

    def __init__(self, source: str) -> None:
        self.source, self.names = source, Names()
        self.tables = tuple(Columns(names) for names in _COLUMNS)
        self.rejected = 0  # rows with a negative duration
        self.total = self.unread = 0  # events given, and events that the stream cut out as SHORT_RANGE
        self.base_us: int | None = None
        self.fractions = False
        self._calls: dict[Any, tuple[int, int, int]] = {}
        self._at_once = (self._kernels, self._api_calls, self._ranges, None)
        self._one = (self._device_row, self._api_row, self._range_row, self._overhead_row)

    def add(self, batch: list[Any]) -> None:
        """Keeps what the tables hold of one batch. Raises ProfileError for what is no trace event."""
        groups: dict[Any, list[dict[str, Any]]] = {category: [] for category in _CATEGORIES}
        find = groups.get
        event: Any = None
        try:
            for event in batch:
                group = find(event.get("cat"))
                if group is not None and event.get("ph") == "X":
                    group.append(event)
        except _MALFORMED as error:
            self._refuse(batch, event, error)
        for category, events in groups.items():
            if events:
                self._add_group(batch, events, *_CATEGORIES[category])
        self.total += len(batch)
        check_rows(sum(len(table) for table in self.tables), self.source)

    def _add_group(self, batch: list[Any], events: list[dict[str, Any]], table: int, kind: int) -> None:
        at_once = self._at_once[table]
        if at_once is not None:
            try:
                self.tables[table].extend(at_once(events, kind))
                return
            except (
                _MALFORMED
            ):  # nothing was added: the way row by row tells what is wrong from what is laid out otherwise
                pass
        one, rows = self._one[table], []
        for event in events:
            try:
                row = one(event, kind)
                if row is not None:
                    rows.append(array("q", [cell if type(cell) is int else integer(cell) for cell in row]))
            except _MALFORMED as error:
                self._refuse(batch, event, error)
        if rows:
            self.tables[table].extend(list(zip(*rows, strict=True)))

    def _refuse(self, batch: list[Any], event: Any, error: Exception) -> NoReturn:
        raise ProfileError(
            f"{self.source}: event {self.total + self.unread + batch.index(event) + 1:,} is not a trace event",
            # never the error's own text: it may quote what the file holds
            why=f"It has no {error}."
            if isinstance(error, KeyError)
            else f"A field of it is no such thing as Kineto writes ({type(error).__name__}).",
            do="Export the trace again.",
        ) from None

    # columns at once

    def _intervals(self, events: list[dict[str, Any]]) -> tuple[Column, Column]:
        """Start and duration. Raises ValueError where a duration is negative."""
        starts, durations = zip(*map(_TIMES, events), strict=True)
        base_us = int(Decimal(starts[0])) if self.base_us is None else self.base_us
        start, duration = picoseconds_since(starts, base_us), picoseconds_since(durations, 0)
        if int(duration.min()) < 0:
            raise ValueError("a negative duration")
        self.base_us = base_us
        self.fractions = self.fractions or type(starts[0]) is str
        return start, duration

    def _kernels(self, events: list[dict[str, Any]], kind: int) -> list[Any]:
        if kind != KERNEL:
            return self._copies(events, kind)
        start, duration = self._intervals(events)
        names, args = zip(*map(_KERNEL, events), strict=True)
        device, stream, corr, registers, shared, grids, blocks = zip(*map(_SHAPE, args), strict=True)
        null = array("q", [NULL]) * len(events)
        return [
            [kind] * len(events), self.names.numbers(names), start, duration, device, stream, corr, null, null, null, *zip(*grids, strict=True),
            *zip(*blocks, strict=True), registers, shared, [a.get("graph id", NULL) for a in args], [a.get("graph node id", NULL) for a in args],
        ]  # fmt: skip

    def _copies(self, events: list[dict[str, Any]], kind: int) -> list[Any]:
        start, duration = self._intervals(events)
        names, args = zip(*map(_KERNEL, events), strict=True)
        device, stream, corr, size = zip(*map(_COPY, args), strict=True)
        null = array("q", [NULL]) * len(events)
        copy, host_mem = zip(*map(copy_facts, names), strict=True) if kind == MEMCPY else (null, null)
        graph_id, graph_node = ([a.get(key, NULL) for a in args] for key in ("graph id", "graph node id"))
        return [
            [kind] * len(events), self.names.numbers(names), start, duration, device, stream, corr, size, copy, host_mem, *[null] * 8, graph_id, graph_node,
        ]  # fmt: skip

    def _api_calls(self, events: list[dict[str, Any]], _: int) -> list[Any]:
        start, duration = self._intervals(events)
        raw, process, thread = zip(*map(_HOST, events), strict=True)
        names, raw_names, kinds = zip(*[self._calls.get(name) or self._call(name) for name in raw], strict=True)
        return [names, raw_names, start, duration, process, thread, [e["args"].get("correlation", NULL) for e in events], kinds]  # fmt: skip

    def _ranges(self, events: list[dict[str, Any]], kind: int) -> list[Any]:
        if kind != ANNOTATION:  # one digit before the point is under 10 us, as most of them are
            events = [
                e
                for e in events
                if (d[1:2] != "." or not d[2:].isdigit() if type(d := e["dur"]) is str else d >= MIN_RANGE_US)
            ]
            if not events:
                return [()] * len(_COLUMNS[_RANGE])
        start, duration = self._intervals(events)
        names, process, thread = zip(*map(_HOST, events), strict=True)
        return [[kind] * len(events), self.names.numbers(names), start, duration, process, thread]

    # one row

    def _interval(self, event: dict[str, Any]) -> tuple[int, int] | None:
        start, length = event["ts"], picoseconds(event.get("dur", 0))
        if length < 0:
            self.rejected += 1
            return None
        if self.base_us is None:
            self.base_us = int(Decimal(start))
        self.fractions = self.fractions or type(start) is str
        return picoseconds(start) - self.base_us * PS, length

    def _device_row(self, event: dict[str, Any], kind: int) -> Sequence[Any] | None:
        interval = self._interval(event)
        if interval is None:
            return None
        args, name = event.get("args") or {}, event.get("name", "")
        get = args.get
        where = (get("device", event.get("pid")), get("stream", event.get("tid")), get("correlation"))
        graph = (get("graph id"), get("graph node id"))
        if kind != KERNEL:
            copy = copy_facts(name) if kind == MEMCPY else (NULL, NULL)
            return kind, self.names(name), *interval, *where, get("bytes"), *copy, *[NULL] * 8, *graph
        grid_x, grid_y, grid_z = get("grid") or _NO_SHAPE
        block_x, block_y, block_z = get("block") or _NO_SHAPE
        shape = (grid_x, grid_y, grid_z, block_x, block_y, block_z, get("registers per thread"), get("shared memory"))
        return kind, self.names(name), *interval, *where, NULL, NULL, NULL, *shape, *graph

    def _api_row(self, event: dict[str, Any], _: int) -> Sequence[Any] | None:
        interval = self._interval(event)
        if interval is None:
            return None
        name, raw_name, kind = self._call(event["name"])
        corr = (event.get("args") or {}).get("correlation")
        return name, raw_name, *interval, event.get("pid"), event.get("tid"), corr, kind

    def _call(self, raw: Any) -> tuple[int, int, int]:
        known = self._calls.get(raw)
        if known is None:
            known = self._calls[raw] = (self.names(base_api_name(str(raw))), self.names(raw), api_kind(str(raw)))
        return known

    def _range_row(self, event: dict[str, Any], kind: int) -> Sequence[Any] | None:
        interval = self._interval(event)
        if interval is None or (kind != ANNOTATION and interval[1] < MIN_RANGE_US * PS):
            return None
        return kind, self.names(event.get("name", "")), *interval, event.get("pid"), event.get("tid")

    def _overhead_row(self, event: dict[str, Any], _: int) -> Sequence[Any] | None:
        interval = self._interval(event)
        name = event.get("name", "")
        return interval and (overhead_kind(str(name)), self.names(name), *interval, event.get("pid"), event.get("tid"))
