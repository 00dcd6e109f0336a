"""A Profile: one kernel table, one API-call table, whatever tool wrote the file. int64 ns on the file's own clock, bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

NULL = -(2**63)  # an absent integer; an absent number with a fraction is NaN. Absent is never 0.
KERNEL, MEMCPY, MEMSET, GRAPH = range(4)
KINDS = ("kernel", "memcpy", "memset", "graph")
COPIES = ("h2d", "d2h", "d2d", "h2h", "p2p", "unified")
HOST_MEMORY = ("pageable", "pinned", "managed", "unknown")
LAUNCH, GRAPH_LAUNCH, COPY, SYNC, ALLOC, OTHER = range(6)
API_KINDS = ("launch", "graph_launch", "copy", "sync", "alloc", "other")
ANNOTATION, NVTX, CPU_OP, PYTHON = range(4)
RANGE_KINDS = ("annotation", "nvtx", "cpu_op", "python")
COMMAND_BUFFER_FULL = 8  # overhead type of CUPTI: the queue was full, the device is the limit
OVERHEAD_TYPES = {0: "profiler", 2: "driver compilation", 3: "buffer flush", 4: "instrumentation", 6: "module loading",
                  7: "lazy function loading", 8: "command buffer full"}  # fmt: skip

KERNEL_COLUMNS = (
    "kind", "name", "start_ns", "end_ns", "dur_ns", "count", "device", "stream", "process", "corr", "api",
    "graph_id", "graph_node", "step", "bytes", "copy", "host_mem", "grid_x", "grid_y", "grid_z", "block_x", "block_y",
    "block_z", "registers", "shared_bytes",
)  # fmt: skip
SUMMARY_COLUMNS = ("total_ns", "med_ns", "min_ns", "max_ns", "queue_med_ns")
COUNTER_COLUMNS = (
    "sm_pct", "mem_pct", "dram_pct", "l2_pct", "l1_pct", "waves", "occ_theoretical_pct", "occ_achieved_pct", "sm_hz",
    "dram_read_bytes", "dram_write_bytes", "passes", "dram_bytes_s", "l2_hit_pct", "l1_hit_pct", "mem_busy_pct", "max_bw_pct", "issue_active", "tensor_pct",
    "fma_pct", "alu_pct", "fp64_pct", "limit_sm", "limit_registers", "limit_shared", "limit_warps", "limit_barriers", "sm_count", "cycles",
)  # fmt: skip
API_COLUMNS = (
    "name",
    "raw_name",
    "start_ns",
    "end_ns",
    "process",
    "thread",
    "corr",
    "kind",
    "ops",
)  # a summary adds count

Column = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length. A column that the format can't fill is absent and reads as all null."""

    columns: Mapping[str, Column]
    strings: Sequence[str] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, name: str) -> Column:
        column = self.columns.get(name)
        if column is not None:
            return column
        if name in COUNTER_COLUMNS or name in SUMMARY_COLUMNS:
            return np.full(len(self), np.nan)
        return np.full(len(self), NULL, dtype=np.int64)

    def take(self, index: Column) -> Table:
        """The rows of `index` (positions or a mask), same strings."""
        return Table({name: column[index] for name, column in self.columns.items()}, self.strings)

    def with_columns(self, **columns: Column) -> Table:
        """A copy with columns added or replaced."""
        return Table({**self.columns, **columns}, self.strings)

    def text(self, name: str, index: int) -> str:
        """The string that a name column holds at a row; empty when null."""
        number = int(self[name][index])
        return self.strings[number] if 0 <= number < len(self.strings) else ""


@dataclass(frozen=True)
class DeviceFacts:
    """What the file says about a device; None is absent. `bandwidth_bytes_s` is the theoretical peak."""

    id: int
    name: str | None = None
    sm_count: int | None = None
    bandwidth_bytes_s: float | None = None
    l2_bytes: int | None = None
    clock_hz: float | None = None


@dataclass(frozen=True)
class Header:
    """Where the Profile comes from and what the tool recorded. `source` is the file's base name, never its path."""

    source: str
    format: str  # kineto | nsys-sqlite | nsys-stats | ncu
    tool: str
    shape: str  # timeline | summary | counters
    report: str | None = None  # which stats report, or ncu page
    tool_version: str | None = None
    schema_version: str | None = None
    devices: tuple[DeviceFacts, ...] = ()
    graph_mode: str | None = None  # graph | node
    cache_control: str | None = None  # all | none
    clock_control: str | None = None  # base | boost | none
    resolution_ns: float = 1.0
    coverage: Mapping[str, Any] = field(default_factory=dict)
    no_device_rows: str = ""  # why the file holds no device work, where it holds none
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


EMPTY = Table({})


@dataclass(frozen=True, eq=False)
class Profile:
    """What an importer returns. `ranges` are host ranges (annotation, NVTX, CPU op, Python frame), `overhead` the profiler's own rows."""

    header: Header
    kernels: Table
    apis: Table = EMPTY
    ranges: Table = EMPTY
    overhead: Table = EMPTY
    tool_verdicts: tuple[str | None, ...] = ()  # one per kernel row, ncu only
    stalls: tuple[
        Mapping[str, float] | None, ...
    ] = ()  # warps stalled per issue by reason, one per kernel row, ncu only

    @property
    def kernel_count(self) -> int:
        """Kernels: rows of kind kernel, a summary row counted as often as it says."""
        kernels = self.kernels["kind"] == KERNEL
        return int(self.kernels["count"][kernels].sum()) if len(self.kernels) else 0

    @property
    def launch_count(self) -> int:
        """Distinct launch and graph-launch calls."""
        kind = self.apis["kind"]
        calls = (kind == LAUNCH) | (kind == GRAPH_LAUNCH)
        return int(self.apis["count"][calls].sum()) if "count" in self.apis.columns else int(calls.sum())

    def device(self, number: int) -> DeviceFacts | None:
        """The device row of a number, None when the file doesn't hold it."""
        return next((d for d in self.header.devices if d.id == number), None)


def plain(value: Any) -> Any:
    """A table cell as a Python value: None for null."""
    if isinstance(value, (float, np.floating)):
        return None if np.isnan(value) else float(value)
    number = int(value)
    return None if number == NULL else number


def rows(table: Table, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows as dicts of plain values; for exports and tests, not for analysis."""
    columns = {name: table[name] for name in names}
    for index in range(len(table)):
        yield {name: plain(column[index]) for name, column in columns.items()}
