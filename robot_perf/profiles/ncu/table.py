"""The kernel table of an ncu CSV: cells to numbers, durations checked against cycles, device facts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isnan, nan

import numpy as np

from robot_perf.profiles.build import Names
from robot_perf.profiles.model import KERNEL, NULL, Column, DeviceFacts, Header, Profile, Table
from robot_perf.profiles.names import clean
from robot_perf.profiles.ncu.metrics import INTEGER_COLUMNS, METRICS
from robot_perf.profiles.ncu.numbers import both_readings, unit_scale, value_of, votes

IDENTITY_COLUMNS = 11  # ID to CC: the cells of a row before its metrics
_AGREE = 0.10  # rule C13: duration against cycles / frequency


@dataclass
class NcuKernel:
    """One launch: identity, and per column the (cell, unit) as printed."""

    name: str
    process: str
    device: str
    stream: str
    grid: str
    block: str
    nvtx: str = ""
    cells: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # column -> (cell, unit, source column)
    stalls: dict[str, str] = field(default_factory=dict)
    device_name: str = ""
    verdict: str | None = None


class TableBuilder:
    """Numbers of all launches of one file: the locale is inferred once, from every cell."""

    def __init__(
        self,
        source: str,
        kernels: list[NcuKernel],
        rows: list[tuple[int, list[str]]],
        page: str,
        notes: list[str],
        facts: dict[str, str],
    ) -> None:
        self.source, self.kernels, self.page, self.notes, self.facts = source, kernels, page, notes, facts
        self.file_votes = votes(cell for k in kernels for cell, _, _ in k.cells.values()) | votes(
            c for k in kernels for c in k.stalls.values()
        )
        if len(self.file_votes) != 1:
            # the columns that are kept may all be plain: any other cell of the file settles its locale as well
            self.file_votes = self.file_votes or votes(c for _, r in rows for c in r[min(IDENTITY_COLUMNS, len(r)) :])
        self.column_votes = {c: votes(k.cells[c][0] for k in kernels if c in k.cells) for c in METRICS}
        self.unknown_units: set[str] = set()
        self.ambiguous: set[str] = set()

    def number(self, kernel: NcuKernel, column: str) -> float:
        """A metric in ns, Hz, bytes or as it is; NaN where absent, ambiguous, or of an unknown unit."""
        if column not in kernel.cells:
            return nan
        cell, unit, name = kernel.cells[column]
        scale = unit_scale(unit, METRICS[column].family)
        if scale is None:
            self.unknown_units.add(f"{name} [{unit}]")
            return nan
        value, ambiguous = value_of(cell, self.column_votes[column], self.file_votes)
        if ambiguous:
            self.ambiguous.add(name)
        return value * scale

    def durations(self, columns: dict[str, Column]) -> Column:
        """Durations, each checked against cycles / SM frequency, which also decides an ambiguous cell (rule C13)."""
        duration: Column = columns["dur_ns"].copy()
        expected = columns["cycles"] / columns["sm_hz"] * 1e9
        off = []
        for i, kernel in enumerate(self.kernels):
            if isnan(duration[i]) and "dur_ns" in kernel.cells and not isnan(expected[i]):
                cell, unit, name = kernel.cells["dur_ns"]
                scale = unit_scale(unit, "time") or nan
                fitting = [v * scale for v in both_readings(cell) or () if abs(v * scale / expected[i] - 1) <= _AGREE]
                if len(fitting) == 1:
                    duration[i] = fitting[0]
                    self.ambiguous.discard(name)
            elif abs(duration[i] / expected[i] - 1) > _AGREE:
                off.append(i)
        if off:
            self.notes.append(
                f"{len(off)} durations differ from cycles / SM frequency by over 10 %: the clock changed during the kernel, or replay passes differ"
            )
        return duration

    def profile(self) -> Profile:
        """The kernel table with its counters."""
        names = Names()
        numbers = {c: np.array([self.number(k, c) for k in self.kernels]) for c in METRICS}
        numbers["dur_ns"] = self.durations(numbers)
        columns: dict[str, Column] = {
            "kind": np.full(len(self.kernels), KERNEL), "name": np.array([names(k.name) for k in self.kernels]), "count": np.ones(len(self.kernels), np.int64),
            "device": _ints(k.device for k in self.kernels), "stream": _ints(k.stream for k in self.kernels), "process": _ints(k.process for k in self.kernels),
            "nvtx": np.array([names(k.nvtx) if k.nvtx else NULL for k in self.kernels]),
        }  # fmt: skip
        for shape in ("grid", "block"):
            sizes = [[int(n) for n in re.findall(r"\d{1,12}", getattr(k, shape))][:3] for k in self.kernels]
            matrix = np.array([s if len(s) == 3 else [NULL] * 3 for s in sizes], np.int64).reshape(-1, 3)
            columns.update({f"{shape}_{axis}": matrix[:, i] for i, axis in enumerate("xyz")})
        for column, values in numbers.items():
            if column.startswith("attr_"):
                continue
            if column in INTEGER_COLUMNS:
                columns[column] = np.where(
                    np.isnan(values) | (np.abs(values) > 2**62),
                    NULL,
                    np.nan_to_num(np.rint(values), posinf=0, neginf=0),
                ).astype(np.int64)
            elif not np.isnan(values).all():
                columns[column] = values
        devices = self._devices(numbers)
        stalls = tuple(self._stalls(k) for k in self.kernels)
        table = Table(columns, names.strings)
        return Profile(
            self._header(devices, table), table, tool_verdicts=tuple(k.verdict for k in self.kernels), stalls=stalls
        )

    def _stalls(self, kernel: NcuKernel) -> dict[str, float] | None:
        values = {reason: value_of(cell, set(), self.file_votes)[0] for reason, cell in kernel.stalls.items()}
        return {reason: value for reason, value in values.items() if not isnan(value)} or None

    def _devices(self, numbers: dict[str, Column]) -> tuple[DeviceFacts, ...]:
        """Device facts that ride along in the raw page; bandwidth by rule C16."""
        found: dict[int, DeviceFacts] = {}
        for i, kernel in enumerate(self.kernels):
            number = int(kernel.device) if kernel.device.isdigit() and len(kernel.device) < 6 else 0

            def at(column: str, row: int = i) -> float | None:
                value = float(numbers[column][row])
                return None if isnan(value) else value

            clock, bus, sms, l2, core = (
                at(c) for c in ("attr_memory_clock_khz", "attr_bus_bits", "sm_count", "attr_l2_bytes", "attr_clock_khz")
            )
            if number not in found:
                found[number] = DeviceFacts(
                    number, clean(kernel.device_name)[:80] or None, None if sms is None else int(sms), None if clock is None or bus is None else 2 * clock * 1000 * bus / 8,
                    None if l2 is None else int(l2), None if core is None else core * 1000,
                )  # fmt: skip
        return tuple(d for _, d in sorted(found.items()) if d.name or d.sm_count)

    def _header(self, devices: tuple[DeviceFacts, ...], table: Table) -> Header:
        notes = list(self.notes)
        if self.unknown_units:
            notes.append(
                f"unknown units, values left out: {', '.join(clean(u) for u in sorted(self.unknown_units))}"[:400]
            )
        if self.ambiguous:
            notes.append(f"ambiguous number: export with LC_ALL=C ({', '.join(sorted(self.ambiguous))})"[:400])
        cells = [
            cell
            for k in self.kernels
            for cell, unit, _ in k.cells.values()
            if unit.strip().lower() in ("ms", "msecond", "us", "usecond", "s", "second")
        ]
        if cells and self.page == "raw":
            notes.append(
                "auto units: one unit serves a whole column, so small values have few digits; export with --print-units base"
            )
        return Header(
            source=self.source, format="ncu", tool="Nsight Compute", shape="counters", report=self.page, devices=devices, cache_control=self.facts.get("cache"),
            clock_control=self.facts.get("clock"), notes=tuple(notes), missing=tuple(c for c in METRICS if c not in table.columns and not c.startswith("attr_")),
            coverage={"ambiguous_metrics": len(self.ambiguous), "unknown_units": len(self.unknown_units)},
        )  # fmt: skip


def _ints(texts: Iterable[str]) -> Column:
    column: Column = np.array([int(t) if t.isdigit() and len(t) < 18 else NULL for t in texts], np.int64)
    return column
