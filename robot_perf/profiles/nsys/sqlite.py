"""Nsight Systems SQLite exports, schema 2.9 to 3.25 (profiles.md, rules N). Read-only, by allow-list, rows streamed into columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf.errors import ProfileError
from robot_perf.profiles.build import Rows, check_rows, check_times, link, merge_calls
from robot_perf.profiles.model import (
    COMMAND_BUFFER_FULL,
    CPU_OP,
    GRAPH,
    KERNEL,
    KERNEL_COLUMNS,
    MEMCPY,
    MEMSET,
    NULL,
    NVTX,
    Column,
    Header,
    Profile,
    Table,
)
from robot_perf.profiles.names import api_kind, base_api_name
from robot_perf.profiles.nsys.db import Export, database
from robot_perf.profiles.nsys.meta import Meta, read_meta, zero_rows_note

_AUTOGRAD = re.compile(r"^(.*?), (?:op_id|seq) = \d+")
MIN_CPU_OP_NS = 10_000  # autograd ranges come by the ten thousand; shorter ones can't name a host stage
_COPY_KIND = {1: 0, 2: 1, 8: 2, 9: 3, 10: 4, 11: 5, 12: 5, 13: 5}
_MEMORY = {0: 0, 1: 1, 4: 2}


def read(path: Path, source: str) -> Profile:
    """The Profile of an export. Raises ProfileError for another database, an unknown schema, or a broken file."""
    with database(path, source) as db:
        return _Reader(Export(db, source)).profile()


class _Reader:
    def __init__(self, db: Export) -> None:
        self.db = db
        self.notes: list[str] = []
        self.meta: Meta = read_meta(db.connection, db.tables, db.source)

    def device_rows(self, prefix: str, kind: int, extra: Sequence[str]) -> dict[str, Column] | None:
        """Columns of the kernel table from one activity table; rows that end before they start are rejected and counted (rule N6)."""
        base = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
        rows = self.db.select(prefix, (*base, *extra), ("start", "end", "correlationId", "deviceId"))
        if rows is None:
            return None
        rows = self.db.reject(rows)
        count = len(rows["start"])
        null = np.full(count, NULL)
        timed = ~((rows["start"] == 0) & (rows["end"] == 0)) if kind == GRAPH else np.ones(count, bool)
        start, end = np.where(timed, rows["start"], NULL), np.where(timed, rows["end"], NULL)
        pid = rows.get("globalPid")
        node = rows.get("graphNodeId", null)
        return {
            "kind": np.full(count, kind), "start_ns": start, "end_ns": end, "dur_ns": np.where(timed, rows["end"] - rows["start"], NULL),
            "count": np.ones(count, np.int64), "device": rows["deviceId"], "stream": rows.get("streamId", null), "corr": rows["correlationId"],
            "process": null if pid is None else np.where(pid == NULL, NULL, (pid >> 24) & 0xFFFFFF),
            "graph_id": rows.get("graphId", null) if kind == GRAPH else np.where(node != NULL, rows.get("graphId", null), NULL), "graph_node": node,
            **{k: v for k, v in rows.items() if k in extra},
        }  # fmt: skip

    def kernels(self) -> Table:
        """Kernels, copies, memsets and whole-graph intervals in one table, by start."""
        launch = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
                  "demangledName", "shortName")  # fmt: skip
        parts = [
            p for p in (
                self._kernel_names(self.device_rows("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, launch)),
                self._copies(self.device_rows("CUPTI_ACTIVITY_KIND_MEMCPY", MEMCPY, ("bytes", "copyKind", "srcKind", "dstKind"))),
                self._named(self.device_rows("CUPTI_ACTIVITY_KIND_MEMSET", MEMSET, ("bytes",)), "[memset]"),
                self._named(self.device_rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPH, ()), "[graph]"),
            ) if p is not None
        ]  # fmt: skip
        if not parts:
            return Table({}, self.db.names.strings)
        lengths = [len(p["kind"]) for p in parts]
        order = np.lexsort(tuple(np.concatenate([p[c] for p in parts]) for c in ("end_ns", "start_ns")))
        columns = {}
        for name in KERNEL_COLUMNS:
            cells = [p.pop(name, None) for p in parts]  # one column at a time: the table is never held twice
            if any(c is not None and bool((c != NULL).any()) for c in cells):
                joined = [np.full(n, NULL) if c is None else c for c, n in zip(cells, lengths, strict=True)]
                columns[name] = np.concatenate(joined)[order]
        return Table(columns, self.db.names.strings)

    def _kernel_names(self, rows: dict[str, Column] | None) -> dict[str, Column] | None:
        if rows is None:
            return None
        null = np.full(len(rows["kind"]), NULL)
        text = rows.pop("demangledName", null)
        text = np.where(text == NULL, rows.pop("shortName", null), text)
        rows.pop("shortName", None)
        rows["name"] = self.db.string_ids(text)
        for axis in "XYZ":
            for shape in ("grid", "block"):
                rows[f"{shape}_{axis.lower()}"] = rows.pop(f"{shape}{axis}", null)
        rows["registers"] = rows.pop("registersPerThread", null)
        static, dynamic = rows.pop("staticSharedMemory", null), rows.pop("dynamicSharedMemory", null)
        rows["shared_bytes"] = np.where(
            (static == NULL) | (dynamic == NULL), NULL, np.clip(static, 0, 1 << 40) + np.clip(dynamic, 0, 1 << 40)
        )
        return rows

    def _copies(self, rows: dict[str, Column] | None) -> dict[str, Column] | None:
        if rows is None:
            return None
        kind = rows.pop("copyKind", np.full(len(rows["kind"]), NULL))
        rows["copy"] = np.array([_COPY_KIND.get(int(k), NULL) for k in kind], np.int64)
        source, target = rows.pop("srcKind", np.full(len(kind), NULL)), rows.pop("dstKind", np.full(len(kind), NULL))
        host = np.where(rows["copy"] == 0, source, np.where(rows["copy"] == 1, target, NULL))
        rows["host_mem"] = np.array(
            [NULL if c not in (0, 1) else _MEMORY.get(int(h), 3) for h, c in zip(host, rows["copy"], strict=True)],
            np.int64,
        )
        words = {0: "h2d", 1: "d2h", 2: "d2d", 3: "h2h", 4: "p2p", 5: "unified", NULL: "?"}
        rows["name"] = np.array([self.db.names(f"[memcpy {words[int(c)]}]") for c in rows["copy"]], np.int64)
        return rows

    def _named(self, rows: dict[str, Column] | None, name: str) -> dict[str, Column] | None:
        if rows is not None:
            rows["name"] = np.full(len(rows["kind"]), self.db.names(name))
        return rows

    def apis(self) -> Table:
        """CUDA runtime and driver calls, one row per distinct (process, corr)."""
        rows = self.db.select(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            ("start", "end", "globalTid", "correlationId", "nameId"),
            ("start", "end", "correlationId"),
        )
        if rows is None:
            return Table({}, self.db.names.strings)
        rows = self.db.reject(rows)
        null = np.full(len(rows["start"]), NULL)
        raw = self.db.string_ids(rows.get("nameId", null))
        strings = self.db.names.strings
        by_id = {int(i): (self.db.names(base_api_name(strings[i])), api_kind(strings[i])) for i in np.unique(raw)}
        tid = rows.get("globalTid", null)
        corr = rows["correlationId"]
        table = Table(
            {
                "name": np.array([by_id[int(i)][0] for i in raw], np.int64), "raw_name": raw, "start_ns": rows["start"], "end_ns": rows["end"],
                "dur_ns": rows["end"] - rows["start"], "process": np.where(tid == NULL, NULL, (tid >> 24) & 0xFFFFFF),
                "thread": np.where(tid == NULL, NULL, tid & 0xFFFFFF), "corr": np.where(corr == 0, NULL, corr),
                "kind": np.array([by_id[int(i)][1] for i in raw], np.int64),
            }, strings,
        )  # fmt: skip
        return merge_calls(table.take(np.argsort(table["start_ns"], kind="stable")))

    def ranges(self) -> Table:
        """Closed NVTX push/pop and start/end ranges; autograd ranges become CPU ops, never steps (rule N15)."""
        name = self.db.table("NVTX_EVENTS")
        if name is None:
            return Table({}, self.db.names.strings)
        existing = self.db.columns(name)
        if not {"start", "end"} <= existing:
            raise ProfileError(f"{self.db.source}: the table {name} has no column start or end")
        text = f"COALESCE({'text' if 'text' in existing else 'NULL'}, "
        text += (
            "(SELECT value FROM StringIds WHERE id = textId))"
            if {"textId"} <= existing and "StringIds" in self.db.tables
            else "NULL)"
        )
        wanted = ['"end" >= start', *(["eventType IN (59, 60, 70, 71)"] if "eventType" in existing else [])]
        # autograd ranges come by the million: the short ones are left in the database
        wanted.append(f"(\"end\" - start >= {MIN_CPU_OP_NS} OR {text} NOT LIKE '%, op_id = %')")
        thread = "IFNULL(globalTid, :null)" if "globalTid" in existing else ":null"
        query = f'SELECT start, "end", {text}, {thread} FROM "{name}" WHERE {" AND ".join(wanted)}'
        rows = Rows(("kind", "name", "start_ns", "end_ns", "dur_ns", "process", "thread"))
        for start, end, label, tid in self.db.connection.execute(query, {"null": NULL}):
            if label is None:
                continue
            autograd = _AUTOGRAD.match(str(label))
            if autograd and end - start < MIN_CPU_OP_NS:
                continue
            pid, number = (NULL, NULL) if tid == NULL else ((tid >> 24) & 0xFFFFFF, tid & 0xFFFFFF)
            text_id = self.db.names(autograd[1] if autograd else label)
            rows.add((CPU_OP if autograd else NVTX, text_id, start, end, end - start, pid, number))
            if len(rows) % 100_000 == 0:
                check_rows(len(rows), self.db.source)
        columns = rows.columns()
        check_times(columns, self.db.source)
        return Table(columns, self.db.names.strings)

    def overhead(self) -> Table:
        """The profiler's own rows of both overhead tables, with CUPTI's type (rule N17)."""
        from robot_perf.profiles.kineto.facts import overhead_kind

        parts = []
        for prefix in ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD"):
            rows = self.db.select(prefix, ("start", "end", "nameId", "overheadType", "globalTid"), ("start", "end"))
            if rows is None:
                continue
            rows = self.db.reject(rows)
            names = self.db.string_ids(rows.get("nameId", np.full(len(rows["start"]), NULL)))
            tid = rows.get("globalTid", np.full(len(rows["start"]), NULL))
            kind = rows.get("overheadType")
            if kind is None:
                kind = np.array([overhead_kind(self.db.names.strings[i]) for i in names], np.int64)
            parts.append(
                {
                    "kind": kind,
                    "name": names,
                    "start_ns": rows["start"],
                    "end_ns": rows["end"],
                    "dur_ns": rows["end"] - rows["start"],
                    "process": np.where(tid == NULL, NULL, (tid >> 24) & 0xFFFFFF),
                    "thread": np.where(tid == NULL, NULL, tid & 0xFFFFFF),
                }
            )
        columns = {c: np.concatenate([p[c] for p in parts]) for c in parts[0]} if parts else {}
        return Table(columns, self.db.names.strings)

    def profile(self) -> Profile:
        """Everything, linked."""
        kernels, apis, ranges, overhead = self.kernels(), self.apis(), self.ranges(), self.overhead()
        by_process = "process" in kernels.columns and bool((kernels["process"] != NULL).any())
        if len(kernels) and not by_process and len(np.unique(apis["process"])) > 1:
            self.notes.append(
                "device rows name no process: work is linked to calls by correlation alone, where that is unambiguous"
            )
        elif len(kernels) and not by_process:
            self.notes.append("device rows name no process: linked by correlation alone, one process")
        if len(apis) or len(kernels):
            kernels, apis = link(kernels, apis, by_process=by_process)
        if self.db.rejected:
            self.notes.append(f"{self.db.rejected} rows that end before they start, or have no end, were rejected")
        full = int((overhead["kind"] == COMMAND_BUFFER_FULL).sum())
        coverage: Mapping[str, Any] = {"rejected_rows": self.db.rejected, "queue_full_rows": full}
        header = Header(
            source=self.db.source, format="nsys-sqlite", tool="Nsight Systems", shape="timeline", tool_version=self.meta.product, schema_version=self.meta.schema,
            devices=self.meta.devices, graph_mode=self.meta.graph_mode, coverage=coverage, notes=(*self.meta.notes, *self.notes),
            no_device_rows="" if len(kernels) else zero_rows_note(self.db.tables, len(apis)),
            missing=tuple(c for c in KERNEL_COLUMNS if c not in kernels.columns or not bool((kernels[c] != NULL).any())),
        )  # fmt: skip
        return Profile(header, kernels, apis, ranges, overhead)
