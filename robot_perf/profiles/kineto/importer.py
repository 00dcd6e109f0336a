"""Kineto and Chrome-trace JSON (profiles.md, rules K). Streamed: memory is one batch plus about 200 bytes per row that is kept."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from robot_perf import collector
from robot_perf.errors import ProfileError
from robot_perf.profiles.build import check_times, clip_covering, link, merge_calls
from robot_perf.profiles.kineto.facts import devices_of, missing_columns, no_device_rows, plain_text
from robot_perf.profiles.kineto.jsonstream import EventStream
from robot_perf.profiles.kineto.rows import SHORT_RANGE, TraceRows
from robot_perf.profiles.model import NULL, Column, Header, Profile, Table

_TOP_LEVEL = frozenset({"deviceProperties", "schemaVersion"})


def read(stream: BinaryIO, source: str) -> Profile:
    """The Profile of a trace. Raises ProfileError with the byte offset where the JSON is broken."""
    events = EventStream(stream, source, _TOP_LEVEL, SHORT_RANGE, "ts")
    rows = TraceRows(source)
    with collector.paused():  # it would walk every event dict again and again for nothing: 30 % of the reading
        for batch in events:
            rows.add(batch)
            rows.unread = events.skipped
            del batch
    if not events.has_events:
        raise ProfileError(
            f"{source}: JSON, but no trace", why='A Chrome trace is an object with "traceEvents" or an array of events.'
        )
    return _profile(rows, events.header)


def _profile(rows: TraceRows, top: dict[str, Any]) -> Profile:
    """Tables on the file's own clock, its smallest time as zero."""
    tables = [table.columns() for table in rows.tables]
    for table in tables:
        check_times(table, rows.source)
    starts = [int(t["start_ns"].min()) for t in tables if len(t["start_ns"])]
    zero = min(starts, default=0)
    for table in tables:
        _finish_times(table, zero)
        if "corr" in table:
            table["corr"] = np.where(table["corr"] > 0, table["corr"], NULL)
    device, api, ranges, overhead = (Table(columns, rows.names.strings) for columns in tables)
    kernels = device.with_columns(count=np.ones(len(device), np.int64))
    kernels, clipped, removed_ns = clip_covering(kernels)
    calls = merge_calls(api)
    kernels, calls = link(kernels, calls, by_process=False)
    coverage: dict[str, Any] = {
        "events": rows.total + rows.unread,
        "clipped_rows": clipped,
        "clipped_ns": removed_ns,
        "rejected_rows": rows.rejected,
    }
    header = Header(
        source=rows.source, format="kineto", tool="Kineto", shape="timeline", schema_version=plain_text(top.get("schemaVersion")),
        devices=devices_of(top.get("deviceProperties"), rows.source), resolution_ns=1.0 if rows.fractions or not rows.total else 1000.0,
        coverage=coverage, notes=_notes(rows, kernels, calls, clipped, removed_ns), missing=missing_columns(kernels),
        no_device_rows="" if len(kernels) else no_device_rows(len(calls), len(ranges), top.get("deviceProperties")),
    )  # fmt: skip
    return Profile(header, kernels, calls, ranges, overhead)


def _notes(rows: TraceRows, kernels: Table, calls: Table, clipped: int, removed_ns: int) -> tuple[str, ...]:
    notes = []
    if clipped:
        notes.append(
            f"{clipped} device rows covered a later one of their own stream and were clipped, {removed_ns} ns less"
        )
    if rows.rejected:
        notes.append(f"{rows.rejected} rows with a negative duration were rejected")
    if len(kernels) and not rows.fractions:
        notes.append("times are whole microseconds: values below 5 us are no more exact than the 1 us clock step")
    if bool((calls["process"] != calls["process"][:1]).any()):
        notes.append("several host processes: work is linked to calls by correlation alone, where that is unambiguous")
    return tuple(notes)


def _finish_times(columns: dict[str, Column], zero: int) -> None:
    """Picoseconds to ns from the smallest time, rounded to nearest; end = start + duration."""
    start = (columns["start_ns"] - zero + 500) // 1000
    duration = (columns["dur_ns"] + 500) // 1000
    columns["start_ns"], columns["dur_ns"], columns["end_ns"] = start, duration, start + duration
