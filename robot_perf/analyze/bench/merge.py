"""One table over several bench reports, keyed by device, power mode, clocks and software. Nothing is averaged across keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from robot_perf.run.bench_report import OK, BenchReport, Machine, Row

__all__ = ["Merged", "MergedRow", "merge"]


@dataclass(frozen=True, slots=True)
class MergedRow:
    """One policy on one backend on one machine; p50 and p99 of execution by rate, ns."""

    device: str
    power_mode: str | None
    clocks: str | None
    software: str  # the runtimes that this backend used, by its own facts
    policy: str
    backend: str
    status: str
    reason: str
    p50_ns: dict[str, int | None] = field(default_factory=dict)
    p99_ns: dict[str, int | None] = field(default_factory=dict)
    floor: dict[str, float | None] = field(default_factory=dict)
    penalty: dict[str, float | None] = field(default_factory=dict)
    unfit: dict[str, tuple[str, str]] = field(default_factory=dict)  # (status, reason) of a rate without figures
    source: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    """All rows in the order of policy, backend, device; `rates` over all reports; `notes` name what can't be compared."""

    rows: tuple[MergedRow, ...]
    rates: tuple[str, ...]
    notes: tuple[str, ...]


def merge(reports: Sequence[tuple[str, BenchReport]]) -> Merged:
    """Rows of `(file, report)` pairs. Reports of the same key keep their rows apart: their files tell them apart."""
    rates = sorted({rate for _, report in reports for rate in report.rates}, key=_rate_order)
    rows = [row for file, report in reports for row in _rows(file, report)]
    rows.sort(key=lambda r: (r.policy, r.backend, r.device, r.power_mode or "", r.source))
    return Merged(tuple(rows), tuple(rates), tuple(_notes(reports)))


def _rows(file: str, report: BenchReport) -> list[MergedRow]:
    machine = report.machine
    found = []
    for row in report.rows:
        points = [p for p in row.points if p.keep_warm == "none"]
        found.append(
            MergedRow(
                device=machine.device,
                power_mode=machine.power_mode,
                clocks=machine.clocks,
                software=_software(row, machine),
                policy=row.policy,
                backend=row.backend,
                status=row.status,
                reason=row.reason,
                p50_ns={p.rate: p.p("p50") for p in points},
                p99_ns={p.rate: p.p("p99") for p in points},
                floor={p.rate: p.floor for p in points},
                penalty={p.rate: p.penalty for p in points},
                unfit={p.rate: (p.status, p.reason) for p in points if p.status != OK and row.status == OK},
                source=file,
            )
        )
    return found


def _software(row: Row, machine: Machine) -> str:
    """The runtime that a row used, from its backend's facts, and the driver; empty for a row that never loaded.

    A TensorRT may come from another interpreter: the conductor's packages say nothing about it.
    """
    facts = row.facts
    known = {n: facts[n] for n in ("torch", "onnxruntime", "numpy", "cuda") if facts.get(n)}
    if facts.get("version"):
        known[str(facts.get("backend") or row.name)] = facts["version"]
    if known and str(facts.get("device", "")).startswith("cuda") and machine.software.get("driver"):
        known["driver"] = machine.software["driver"]
    return ", ".join(f"{k} {v}" for k, v in known.items())


def _notes(reports: Sequence[tuple[str, BenchReport]]) -> list[str]:
    notes = []
    for policy in sorted({head.name for _, r in reports for head in r.policies}):
        hashes = {head.sha256 for _, r in reports for head in r.policies if head.name == policy and head.sha256}
        if len(hashes) > 1:
            notes.append(f"{policy}: the reports measured {len(hashes)} different files of this name")
    keys: dict[tuple[str, str | None, str | None], list[str]] = {}
    for file, report in reports:
        keys.setdefault((report.machine.device, report.machine.power_mode, report.machine.clocks), []).append(file)
        if report.state != "complete":
            notes.append(f"{file}: {report.state}")
    notes += [
        f"{key[0]}: {len(files)} reports of one machine and mode" for key, files in keys.items() if len(files) > 1
    ]
    for i, (file, report) in enumerate(reports):
        copies = [other for other, later in reports[i + 1 :] if later == report]
        if copies and all(report != earlier for _, earlier in reports[:i]):
            notes.append(f"{file}: the same measurement as {', '.join(copies)}")
    return notes


def _rate_order(rate: str) -> tuple[bool, float]:
    try:
        return False, float(rate)
    except ValueError:
        return True, 0.0
