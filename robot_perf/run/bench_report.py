"""A bench's report: policies over backends over rates on one machine, as data. Figures only, computed by `robot_perf.analyze.bench.figures`.

`bench.json` holds it whole. Durations in ns, power in W, energy in J, clocks in Hz. A row whose backend can't run or can't take the
policy, and a point whose measurement is INVALID, stand in it with the reason and without figures.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_perf.errors import RunFileError
from robot_perf.specs import from_json, to_json

SCHEMA = "robot-perf/bench-1"
FILE_NAME = "bench.json"
OK, INVALID, REFUSED = "ok", "INVALID", "can't run"
TIGHT = "tight"


@dataclass(frozen=True, slots=True)
class Figure:
    """One percentile with its 95 % order-statistic interval; `value_ns` None with the reason."""

    name: str
    value_ns: int | None
    low_ns: int | None = None
    high_ns: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a point. `order` is its place among all blocks of the bench: they alternate (ABBA)."""

    order: int
    n: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    window_ns: int
    warmup_calls: int
    settled: bool
    cpu_share: float | None = None
    power_w: float | None = None
    sm_hz: tuple[int, int] | None = None  # lowest and highest seen in the window
    memory_hz: tuple[int, int] | None = None
    temperature_c: float | None = None  # highest seen
    throttle: tuple[str, ...] = ()
    throttle_read: bool = True  # False: the device shows no reasons, so that none seen says nothing
    idle_seen: bool = False  # the device called itself idle at a sample
    own_p50_ns: int | None = None  # our own work between two steps, always the same: a yardstick of the processor
    run: str = ""  # the Run file, relative to the report


@dataclass(frozen=True, slots=True)
class Point:
    """One backend at one rate with one keep-warm: all blocks together. `execution` is host in to host out."""

    rate: str  # "50", or "tight"
    period_ns: int
    keep_warm: str = "none"
    status: str = OK
    reason: str = ""
    n: int = 0
    execution: tuple[Figure, ...] = ()
    execution_max_ns: int | None = None
    response: tuple[Figure, ...] = ()
    wakeup_p50_ns: int | None = None
    device_p50_ns: int | None = None
    releases: int = 0
    misses: int = 0
    floor: float | None = None  # A/A noise floor, share of the median: what two such points differ by through chance
    floor_reason: str = ""
    penalty: float | None = None  # p50 here over p50 tight
    cpu_share: float | None = None  # of one processor, the whole measured process
    power_w: float | None = None
    power_reason: str = ""
    energy_per_step_j: float | None = None  # whole device, idle part included
    energy_above_idle_j: float | None = None
    phases_p50_ns: dict[str, int] = field(default_factory=dict)  # of a pass after the window, `analyze.explain.phases`
    phase_steps: int = 0
    phases_reason: str = ""
    curve: tuple[tuple[float, int], ...] = ()  # (1 - p, execution ns)
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()

    def p(self, name: str) -> int | None:
        """A percentile of execution, ns; None where it has no value or was not computed."""
        return next((f.value_ns for f in self.execution if f.name == name), None)


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one backend. `backend` is the label that was asked for, options included."""

    policy: str
    backend: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    status: str = OK
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    cold_start_ns: dict[str, int] = field(default_factory=dict)
    first_calls_ns: tuple[int, ...] = ()
    build_ns: int | None = None
    device_memory_bytes: int | None = None
    launches_per_step: float | None = None
    resident_bytes: int | None = None
    notes: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()

    @property
    def first_action_ns(self) -> int | None:
        """From the start of the process to the first action: cold start and first call."""
        if not self.cold_start_ns or not self.first_calls_ns:
            return None
        return sum(self.cold_start_ns.values()) + self.first_calls_ns[0]

    def point(self, rate: str, keep_warm: str = "none") -> Point | None:
        """The point of a rate."""
        return next((p for p in self.points if p.rate == rate and p.keep_warm == keep_warm), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """Backend `b` seen from backend `a` in the median execution at one rate: faster, slower, no difference, can't say."""

    policy: str
    rate: str
    a: str
    b: str
    answer: str
    reason: str
    difference_ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None
    floor_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """What to use for one policy at one rate, in words, and the figures that it rests on."""

    policy: str
    rate: str
    words: str
    backend: str = ""
    keep_warm: str = "none"
    p50_ns: int | None = None
    times_tight: float | None = None
    cpu_share: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """The key of a report when reports are merged: device, power mode, clocks, software. None = not readable."""

    device: str
    power_mode: str | None = None
    clocks: str | None = None
    software: dict[str, str] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    idle_power_w: float | None = None
    meter: str = ""  # what read power and clocks, or why nothing did


@dataclass(frozen=True, slots=True)
class PolicyHead:
    """What a policy is, for the reader of a table."""

    name: str
    sha256: str | None
    inputs: str
    outputs: str
    parameters: int | None
    state: str


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Everything one `robot-perf bench` found."""

    machine: Machine
    policies: tuple[PolicyHead, ...]
    rows: tuple[Row, ...]
    answers: tuple[Answer, ...] = ()
    advice: tuple[Advice, ...] = ()
    rates: tuple[str, ...] = ()
    steps: int = 0
    blocks: int = 0
    created_utc: str = ""
    version: str = ""
    argv: tuple[str, ...] = ()
    state: str = "complete"  # or why not all of it was measured
    notes: tuple[str, ...] = ()
    host: dict[str, Any] = field(default_factory=dict)
    schema: str = SCHEMA


def to_document(report: BenchReport) -> dict[str, Any]:
    """The report as plain JSON."""
    document: dict[str, Any] = to_json(report)
    return document


def save(report: BenchReport, path: Path) -> Path:
    """Writes `bench.json` beside its final name, then renames. Returns the path. Raises RunFileError where it can't."""
    text = json.dumps(to_document(report), allow_nan=False, indent=1) + "\n"
    unfinished = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise RunFileError(
            f"{path} can't be written", do="Make room, or choose another folder.", detail=error.strerror or str(error)
        ) from None
    return path


def load(path: Path) -> BenchReport:
    """A saved report. Raises RunFileError with what is wrong: absent, not JSON, not ours, damaged, another schema."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFileError(f"{path} can't be read", detail=error.strerror or str(error)) from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RunFileError(f"{path} is not JSON", detail=str(error)) from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RunFileError(
            f"{path} is no bench report of this version", why=f"Its schema is {schema!r}; this version reads {SCHEMA}."
        )
    try:
        report = from_json(BenchReport, document)
        _check(report)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFileError(f"{path} is a damaged bench report", detail=f"{type(error).__name__}: {error}") from None
    return report


def _check(report: BenchReport) -> None:
    """The codec takes scalars as they are: what tables and drawings compute with must be numbers and text."""
    for row in report.rows:
        if (
            not isinstance(row.policy, str)
            or not isinstance(row.backend, str)
            or row.status not in (OK, INVALID, REFUSED)
        ):
            raise ValueError(f"a row names {row.policy!r:.40}, {row.backend!r:.40}, {row.status!r:.40}")
        for point in row.points:
            numbers = [f.value_ns for f in point.execution] + [point.execution_max_ns, point.penalty, point.cpu_share]
            numbers += [point.phase_steps, *point.phases_p50_ns.values()]
            if not all(n is None or (isinstance(n, (int, float)) and not isinstance(n, bool)) for n in numbers):
                raise ValueError(f"a figure of {row.backend} at {point.rate} is no number")
