"""Small timelines made by hand: device ops, the calls that launched them, and host ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robot_perf.profiles.build import link
from robot_perf.profiles.model import ANNOTATION, GRAPH, KERNEL, MEMCPY, NULL, SYNC, Header, Profile, Table

LAUNCH, GRAPH_LAUNCH = 0, 1


class Timeline:
    """Add work with `op`, calls with `call`, ranges with `span`; times in ns."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.ops: list[dict[str, int]] = []
        self.calls: list[dict[str, int]] = []
        self.spans: list[dict[str, int]] = []
        self.loading: list[dict[str, int]] = []

    def name(self, text: str) -> int:
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def op(
        self,
        start: int,
        end: int,
        *,
        corr: int = NULL,
        kind: int = KERNEL,
        name: str = "k",
        device: int = 0,
        stream: int = 7,
        **extra: int,
    ) -> None:
        self.ops.append(
            {
                "kind": kind,
                "name": self.name(name),
                "start_ns": start,
                "end_ns": end,
                "device": device,
                "stream": stream,
                "corr": corr,
                **extra,
            }
        )

    def call(
        self,
        start: int,
        end: int,
        *,
        corr: int = NULL,
        kind: int = LAUNCH,
        name: str = "cudaLaunchKernel",
        thread: int = 1,
    ) -> None:
        self.calls.append(
            {
                "name": self.name(name),
                "raw_name": self.name(name),
                "start_ns": start,
                "end_ns": end,
                "process": 5,
                "thread": thread,
                "corr": corr,
                "kind": kind,
            }
        )

    def sync(self, start: int, end: int, *, name: str = "cudaStreamSynchronize", thread: int = 1) -> None:
        self.call(start, end, kind=SYNC, name=name, thread=thread)

    def span(self, start: int, end: int, name: str, kind: int = ANNOTATION) -> None:
        self.spans.append(
            {"kind": kind, "name": self.name(name), "start_ns": start, "end_ns": end, "process": 5, "thread": 1}
        )

    def overhead(self, start: int, end: int, kind: int = 6) -> None:
        self.loading.append(
            {"kind": kind, "name": self.name("loading"), "start_ns": start, "end_ns": end, "process": 5, "thread": 1}
        )

    def profile(self, **header: Any) -> Profile:
        kernels = self._table(
            self.ops, ("count", "bytes", "copy", "host_mem", *(f"{s}_{a}" for s in ("grid", "block") for a in "xyz"))
        )
        kernels = kernels.with_columns(count=np.ones(len(kernels), np.int64))
        kernels, calls = link(kernels, self._table(self.calls, ()), by_process=False)
        return Profile(
            Header("made.json", "kineto", "test", "timeline", **header),
            kernels,
            calls,
            self._table(self.spans, ()),
            self._table(self.loading, ()),
        )

    def _table(self, rows: Sequence[dict[str, int]], more: Sequence[str]) -> Table:
        columns = dict.fromkeys([k for r in rows for k in r] + list(more)) if rows else {}
        table = {c: np.array([r.get(c, NULL) for r in rows], np.int64) for c in columns}
        for t in (table,):
            if "start_ns" in t:
                t["dur_ns"] = t["end_ns"] - t["start_ns"]
        return Table(table, self.names)


def steady(steps: int = 6, *, launches: int = 4, gap: int = 50_000, kernel: int = 5_000, call: int = 8_000) -> Timeline:
    """Steps of a launch-bound policy: each kernel starts 1 us after its call and the next call follows after a gap."""
    t, at, corr = Timeline(), 1_000_000, 1
    for _ in range(steps):
        begin = at
        for _ in range(launches):
            t.call(at, at + call, corr=corr)
            t.op(at + call + 1000, at + call + 1000 + kernel, corr=corr)
            at += gap
            corr += 1
        t.span(begin, at, "policy_step")
        at += 3_000_000
    return t


__all__ = ["GRAPH", "GRAPH_LAUNCH", "KERNEL", "MEMCPY", "Timeline", "steady"]
