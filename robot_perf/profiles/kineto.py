"""Kineto and Chrome-trace JSON (profiles.md, rules K). Streamed: memory is one batch plus about 200 bytes per row that is kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import Any, BinaryIO

import numpy as np

from robot_perf.errors import ProfileError
from robot_perf.profiles.build import Names, Rows, check_rows, check_times, clip_covering, integer, link, merge_calls
from robot_perf.profiles.jsonstream import EventStream
from robot_perf.profiles.kineto_facts import (
    copy_facts,
    devices_of,
    missing_columns,
    no_device_rows,
    overhead_kind,
    plain_text,
)
from robot_perf.profiles.model import (
    ANNOTATION,
    CPU_OP,
    KERNEL,
    MEMCPY,
    MEMSET,
    NULL,
    PYTHON,
    Column,
    Header,
    Profile,
    Table,
)
from robot_perf.profiles.names import api_kind, base_api_name, clean

_DEVICE, _API, _RANGE, _OVERHEAD = range(4)
# category -> (table, kind). Anything else is not read: cuda_sync, cuda_event, gpu_user_annotation, Trace, flows, counters (rule K4).
_CATEGORIES: dict[Any, tuple[int, int]] = {
    "kernel": (_DEVICE, KERNEL), "gpu_memcpy": (_DEVICE, MEMCPY), "gpu_memset": (_DEVICE, MEMSET),
    "Kernel": (_DEVICE, KERNEL), "Memcpy": (_DEVICE, MEMCPY), "Memset": (_DEVICE, MEMSET),
    "cuda_runtime": (_API, 0), "cuda_driver": (_API, 0), "Runtime": (_API, 0), "hip_runtime": (_API, 0),
    "user_annotation": (_RANGE, ANNOTATION), "cpu_op": (_RANGE, CPU_OP), "Operator": (_RANGE, CPU_OP), "python_function": (_RANGE, PYTHON),
    "overhead": (_OVERHEAD, 0),
}  # fmt: skip
_SHORT_IS_DROPPED = frozenset({(_RANGE, CPU_OP), (_RANGE, PYTHON)})
_MALFORMED = (AttributeError, TypeError, KeyError, ValueError, IndexError, OverflowError, InvalidOperation)
_NO_SHAPE = (NULL, NULL, NULL)
_TOP_LEVEL = frozenset({"deviceProperties", "schemaVersion"})
_PS = 1_000_000  # inside, a time is picoseconds from the first event's whole microsecond: exact for six decimals
MIN_RANGE_PS = 10 * _PS  # CPU ops and Python frames under 10 us can't name a host stage and are not kept


def read(stream: BinaryIO, source: str) -> Profile:
    """The Profile of a trace. Raises ProfileError with the byte offset where the JSON is broken."""
    events = EventStream(stream, source, _TOP_LEVEL)
    builder = _Builder(source)
    with _collector_paused():
        for batch in events:
            builder.add(batch)
    if not events.has_events:
        raise ProfileError(
            f"{source}: JSON, but no trace", why='A Chrome trace is an object with "traceEvents" or an array of events.'
        )
    return builder.profile(events.header)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """The cyclic collector walks every event dict again and again for nothing: 30 % of the reading."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Builder:
    def __init__(self, source: str) -> None:
        self.source, self.names = source, Names()
        self.device = Rows(("kind", "name", "start_ns", "dur_ns", "device", "stream", "corr", "bytes", "copy", "host_mem", "grid_x", "grid_y", "grid_z",
                            "block_x", "block_y", "block_z", "registers", "shared_bytes", "graph_id", "graph_node"))  # fmt: skip
        self.api = Rows(("name", "raw_name", "start_ns", "dur_ns", "process", "thread", "corr", "kind"))
        self.range = Rows(("kind", "name", "start_ns", "dur_ns", "process", "thread"))
        self.overhead = Rows(("kind", "name", "start_ns", "dur_ns", "process", "thread"))
        self.rejected = 0
        self.total = 0
        self.base: int | None = None
        self.fractions = False
        self._kinds: dict[Any, tuple[int, int, int]] = {}

    def add(self, batch: list[Any]) -> None:
        """Keeps what the tables hold of one batch."""
        handlers = (self._device_row, self._api_row, self._range_row, self._overhead_row)
        categories = _CATEGORIES
        for event in batch:
            try:
                where = categories.get(event.get("cat"))
                if where is None or event.get("ph") != "X":
                    continue
                if where in _SHORT_IS_DROPPED and type(duration := event.get("dur")) is str and duration[1:2] == ".":
                    continue  # one digit before the point: under 10 us, as most of them are
                handlers[where[0]](event, where[1])
            except _MALFORMED as error:
                raise ProfileError(
                    f"{self.source}: event {self.total + batch.index(event) + 1:,} is not a trace event",
                    why=f"{type(error).__name__}: {clean(error)[:120]}",
                    do="Export the trace again.",
                ) from None
        self.total += len(batch)
        check_rows(len(self.device) + len(self.api) + len(self.range), self.source)

    def _interval(self, event: dict[str, Any]) -> tuple[int, int] | None:
        start, duration = event["ts"], event.get("dur", 0)
        if self.base is None:
            self.base = int(Decimal(start)) * _PS
        # three decimals, what Kineto writes, without a call: this runs for every row that is kept
        if type(duration) is str and duration[-4:-3] == ".":
            length = int(duration[:-4] + duration[-3:]) * 1000
        else:
            length = picoseconds(duration)
        if length < 0:
            self.rejected += 1
            return None
        if type(start) is not str:
            return picoseconds(start) - self.base, length
        self.fractions = True
        if start[-4:-3] == ".":
            return int(start[:-4] + start[-3:]) * 1000 - self.base, length
        return picoseconds(start) - self.base, length

    def _device_row(self, event: dict[str, Any], kind: int) -> None:
        interval = self._interval(event)
        if interval is None:
            return
        args, name = event.get("args") or {}, event.get("name", "")
        get = args.get
        copy, host_mem = copy_facts(name) if kind == MEMCPY else (NULL, NULL)
        grid_x, grid_y, grid_z = get("grid") or _NO_SHAPE
        block_x, block_y, block_z = get("block") or _NO_SHAPE
        self.device.add_loose((
            kind, self.names(name), interval[0], interval[1], get("device", event.get("pid", NULL)), get("stream", event.get("tid", NULL)), get("correlation", NULL),
            get("bytes", NULL), copy, host_mem, grid_x, grid_y, grid_z, block_x, block_y, block_z, get("registers per thread", NULL), get("shared memory", NULL),
            get("graph id", NULL), get("graph node id", NULL),
        ))  # fmt: skip

    def _api_row(self, event: dict[str, Any], _: int) -> None:
        interval = self._interval(event)
        if interval is None:
            return
        raw = event["name"]
        known = self._kinds.get(raw)
        if known is None:
            known = self._kinds[raw] = (self.names(base_api_name(str(raw))), self.names(raw), api_kind(str(raw)))
        corr = (event.get("args") or {}).get("correlation", NULL)
        where = (event.get("pid", NULL), event.get("tid", NULL))
        self.api.add_loose((known[0], known[1], interval[0], interval[1], *where, corr, known[2]))

    def _range_row(self, event: dict[str, Any], kind: int) -> None:
        interval = self._interval(event)
        if interval is not None and (kind == ANNOTATION or interval[1] >= MIN_RANGE_PS):
            self.range.add(
                (
                    kind,
                    self.names(event.get("name", "")),
                    *interval,
                    integer(event.get("pid")),
                    integer(event.get("tid")),
                )
            )

    def _overhead_row(self, event: dict[str, Any], _: int) -> None:
        interval = self._interval(event)
        if interval is not None:
            name, thread = event.get("name", ""), (integer(event.get("pid")), integer(event.get("tid")))
            self.overhead.add((overhead_kind(str(name)), self.names(name), *interval, *thread))

    def profile(self, top: dict[str, Any]) -> Profile:
        """Tables on the file's own clock, its smallest time as zero."""
        tables = [rows.columns() for rows in (self.device, self.api, self.range, self.overhead)]
        for table in tables:
            check_times(table, self.source)
        starts = [int(t["start_ns"].min()) for t in tables if len(t["start_ns"])]
        zero = min(starts, default=0)
        for table in tables:
            _finish_times(table, zero)
            if "corr" in table:
                table["corr"] = np.where(table["corr"] > 0, table["corr"], NULL)
        device, api, ranges, overhead = (Table(columns, self.names.strings) for columns in tables)
        kernels = device.with_columns(count=np.ones(len(device), np.int64))
        kernels, clipped, removed_ns = clip_covering(kernels)
        calls = merge_calls(api)
        kernels, calls = link(kernels, calls, by_process=False)
        coverage: dict[str, Any] = {
            "events": self.total,
            "clipped_rows": clipped,
            "clipped_ns": removed_ns,
            "rejected_rows": self.rejected,
        }
        header = Header(
            source=self.source, format="kineto", tool="Kineto", shape="timeline", schema_version=plain_text(top.get("schemaVersion")),
            devices=devices_of(top.get("deviceProperties"), self.source), resolution_ns=1.0 if self.fractions or not self.total else 1000.0,
            coverage=coverage, notes=self._notes(kernels, calls, clipped, removed_ns), missing=missing_columns(kernels),
            no_device_rows="" if len(kernels) else no_device_rows(len(calls), len(ranges), top.get("deviceProperties")),
        )  # fmt: skip
        return Profile(header, kernels, calls, ranges, overhead)

    def _notes(self, kernels: Table, calls: Table, clipped: int, removed_ns: int) -> tuple[str, ...]:
        notes = []
        if clipped:
            notes.append(
                f"{clipped} device rows covered a later one of their own stream and were clipped, {removed_ns} ns less"
            )
        if self.rejected:
            notes.append(f"{self.rejected} rows with a negative duration were rejected")
        if len(kernels) and not self.fractions:
            notes.append("times are whole microseconds: values below 5 us are no more exact than the 1 us clock step")
        if len(np.unique(calls["process"])) > 1:
            notes.append(
                "several host processes: work is linked to calls by correlation alone, where that is unambiguous"
            )
        return tuple(notes)


def picoseconds(value: Any) -> int:
    """Exact picoseconds of microseconds as written: an integer, or text with a fraction. Three decimals are what Kineto writes."""
    if type(value) is int:
        return value * _PS
    if value[-4:-3] == ".":
        return int(value[:-4] + value[-3:]) * 1000
    return int(Decimal(value) * _PS)


def _finish_times(columns: dict[str, Column], zero: int) -> None:
    """Picoseconds to ns from the smallest time, rounded to nearest; end = start + duration."""
    start = (columns["start_ns"] - zero + 500) // 1000
    duration = (columns["dur_ns"] + 500) // 1000
    columns["start_ns"], columns["dur_ns"], columns["end_ns"] = start, duration, start + duration
