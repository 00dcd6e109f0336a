"""Kineto and Chrome-trace JSON (profiles.md, rules K). Streamed: memory is one batch plus about 200 bytes per row that is kept."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np

from robot_perf.errors import ProfileError
from robot_perf.profiles.build import Names, Rows, check_rows, clip_covering, link, merge_calls
from robot_perf.profiles.jsonstream import EventStream
from robot_perf.profiles.model import (
    ANNOTATION,
    CPU_OP,
    KERNEL,
    KERNEL_COLUMNS,
    MEMCPY,
    MEMSET,
    NULL,
    PYTHON,
    Column,
    DeviceFacts,
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
_TOP_LEVEL = frozenset({"deviceProperties", "schemaVersion"})
_PS = 1_000_000  # inside, a time is picoseconds from the first event's whole microsecond: exact for six decimals
MIN_RANGE_PS = 10 * _PS  # CPU ops and Python frames under 10 us can't name a host stage and are not kept
_COPY_NAME = re.compile(r"\b([HDPA])to([HDPA])\b")
_COPY_CODE = {"HD": 0, "HA": 0, "DH": 1, "AH": 1, "DD": 2, "AD": 2, "DA": 2, "AA": 2, "HH": 3, "PP": 4}
_OVERHEAD_WORDS = (
    ("command buffer full", 8),
    ("lazy function", 7),
    ("module loading", 6),
    ("instrumentation", 4),
    ("flush", 3),
    ("driver compil", 2),
)


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
            self.total += 1
            try:
                where = categories.get(event.get("cat"))
                if where is not None and event.get("ph") == "X":
                    handlers[where[0]](event, where[1])
            except (
                AttributeError,
                TypeError,
                KeyError,
                ValueError,
                IndexError,
                OverflowError,
                InvalidOperation,
            ) as error:
                raise ProfileError(
                    f"{self.source}: event {self.total:,} is not a trace event",
                    why=f"{type(error).__name__}: {clean(error)[:120]}",
                    do="Export the trace again.",
                ) from None
        check_rows(len(self.device) + len(self.api) + len(self.range), self.source)

    def _interval(self, event: dict[str, Any]) -> tuple[int, int] | None:
        start = event["ts"]
        if self.base is None:
            self.base = int(Decimal(start)) * _PS
        if type(start) is str:
            self.fractions = True
        duration = picoseconds(event.get("dur", 0))
        if duration < 0:
            self.rejected += 1
            return None
        return picoseconds(start) - self.base, duration

    def _device_row(self, event: dict[str, Any], kind: int) -> None:
        interval = self._interval(event)
        if interval is None:
            return
        args, name = event.get("args") or {}, event.get("name", "")
        copy, host_mem = _copy_facts(name) if kind == MEMCPY else (NULL, NULL)
        grid, block = args.get("grid") or (NULL, NULL, NULL), args.get("block") or (NULL, NULL, NULL)
        self.device.add((
            kind, self.names(name), *interval, _int(args.get("device", event.get("pid"))), _int(args.get("stream", event.get("tid"))),
            _corr(args), _int(args.get("bytes")), copy, host_mem, _int(grid[0]), _int(grid[1]), _int(grid[2]), _int(block[0]), _int(block[1]), _int(block[2]),
            _int(args.get("registers per thread")), _int(args.get("shared memory")), _int(args.get("graph id")), _int(args.get("graph node id")),
        ))  # fmt: skip

    def _api_row(self, event: dict[str, Any], _: int) -> None:
        interval = self._interval(event)
        if interval is None:
            return
        raw = event["name"]
        known = self._kinds.get(raw)
        if known is None:
            known = self._kinds[raw] = (self.names(base_api_name(str(raw))), self.names(raw), api_kind(str(raw)))
        self.api.add(
            (
                known[0],
                known[1],
                *interval,
                _int(event.get("pid")),
                _int(event.get("tid")),
                _corr(event.get("args") or {}),
                known[2],
            )
        )

    def _range_row(self, event: dict[str, Any], kind: int) -> None:
        if kind != ANNOTATION and type(duration := event.get("dur")) is str and duration[1:2] == ".":
            return  # one digit before the point: under 10 us, as most of them are
        interval = self._interval(event)
        if interval is not None and (kind == ANNOTATION or interval[1] >= MIN_RANGE_PS):
            self.range.add(
                (kind, self.names(event.get("name", "")), *interval, _int(event.get("pid")), _int(event.get("tid")))
            )

    def _overhead_row(self, event: dict[str, Any], _: int) -> None:
        interval = self._interval(event)
        if interval is not None:
            name, thread = event.get("name", ""), (_int(event.get("pid")), _int(event.get("tid")))
            self.overhead.add((overhead_kind(str(name)), self.names(name), *interval, *thread))

    def profile(self, top: dict[str, Any]) -> Profile:
        """Tables on the file's own clock, its smallest time as zero."""
        tables = [rows.columns() for rows in (self.device, self.api, self.range, self.overhead)]
        starts = [int(t["start_ns"].min()) for t in tables if len(t["start_ns"])]
        zero = min(starts, default=0)
        for table in tables:
            _finish_times(table, zero)
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
            source=self.source, format="kineto", tool="Kineto", shape="timeline", schema_version=_text(top.get("schemaVersion")),
            devices=_devices(top.get("deviceProperties"), self.source), resolution_ns=1.0 if self.fractions or not self.total else 1000.0,
            coverage=coverage, notes=self._notes(kernels, calls, clipped, removed_ns), missing=_missing(kernels),
            no_device_rows="" if len(kernels) else _no_device_rows(len(calls), len(ranges), top.get("deviceProperties")),
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


def _int(value: Any) -> int:
    """An integer cell; text, None and fractions of a count are null."""
    return (
        value
        if type(value) is int and -(2**63) < value < 2**63
        else int(value)
        if type(value) is str and value.isdigit() and len(value) < 19
        else NULL
    )


def _corr(args: dict[str, Any]) -> int:
    number = _int(args.get("correlation"))
    return number if number > 0 else NULL


def _text(value: Any) -> str | None:
    return None if value is None else clean(value)[:40]


@lru_cache(maxsize=4096)
def _copy_facts(name: str) -> tuple[int, int]:
    """Direction and host memory of a copy, both in its name: `Memcpy HtoD (Pageable -> Device)` (rule K9)."""
    match = _COPY_NAME.search(name)
    copy = _COPY_CODE.get(match[1] + match[2], NULL) if match else NULL
    lowered = name.lower()
    host = next(
        (code for code, word in enumerate(("pageable", "pinned", "managed")) if word in lowered),
        3 if copy in (0, 1, 3) else NULL,
    )
    return copy, host


def overhead_kind(name: str) -> int:
    """CUPTI's overhead type of a row's name; 0 where it is none of those that decide something."""
    lowered = name.lower()
    return next((code for word, code in _OVERHEAD_WORDS if word in lowered), 0)


def _devices(properties: Any, source: str) -> tuple[DeviceFacts, ...]:
    """Name and SM count; Kineto writes neither bandwidth nor clock (rule K8)."""
    if properties is None:
        return ()
    if not isinstance(properties, list) or not all(isinstance(p, dict) for p in properties):
        raise ProfileError(f"{source}: deviceProperties is not a list of devices")
    found = []
    for number, entry in enumerate(properties):
        sms = _int(entry.get("numSms"))
        identity = _int(entry.get("id"))
        device = number if identity == NULL else identity
        found.append(DeviceFacts(device, _text(entry.get("name")) or None, sms if sms > 0 else None))
    return tuple(found)


def _no_device_rows(calls: int, ranges: int, devices: Any) -> str:
    """Why a trace holds no device work (rules K11, N20). "GPU idle" is never the reason: nothing was recorded."""
    if not devices:
        return "profiled without CUDA: the trace names no device, so only the host was recorded"
    if not ranges:
        return (
            "the export is empty although a device was there: a profiler schedule without repeat=1 starts again after its last active step, "
            "and exporting then writes the new, empty cycle"
        )
    if calls:
        return "CUDA calls but no device work: CUPTI gave no device records (another profiler may hold it, or the sandbox forbids it)"
    return "host work but no CUDA call: the profiler ran without ProfilerActivity.CUDA, or the program used no GPU"


def _missing(kernels: Table) -> tuple[str, ...]:
    """Columns that hold no value at all."""
    return tuple(c for c in KERNEL_COLUMNS if c not in kernels.columns or not bool((kernels[c] != NULL).any()))
