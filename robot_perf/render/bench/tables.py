"""A bench report as plain tables of words: what text, markdown and HTML share. No layout, no escaping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from robot_perf.render.bench.phases import GROUPS, HEAD, TITLE, phase_notes, phase_rows
from robot_perf.render.bench.remarks import COMPILED, by_words, compile_ns, rate_words, reasons_of, remarks_of
from robot_perf.render.cells import NO_VALUE, percent
from robot_perf.run.bench_report import OK, TIGHT, BenchReport, Point, PolicyHead, Row
from robot_perf.units import format_bytes, format_count, format_duration

__all__ = ["Section", "Table", "head_lines", "sections", "us"]


@dataclass(frozen=True, slots=True)
class Table:
    """Words by row; `groups` is a line above the head, one word per column, empty where a group goes on."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    groups: tuple[str, ...] = ()
    left: tuple[int, ...] = (0,)
    notes: tuple[tuple[str, str], ...] = ()  # (whose, words) under the table
    keys: int = 1  # leading columns that name a row: repeated where a table is split to fit a terminal


@dataclass(frozen=True, slots=True)
class Section:
    """Everything about one policy. `reasons` are (backend, status, words) of what has no figures, `notes` (backends, words)."""

    policy: str
    what: str
    tables: tuple[Table, ...]
    reasons: tuple[tuple[str, str, str], ...]
    same: tuple[str, ...]
    advice: tuple[str, ...]
    notes: tuple[tuple[str, str], ...] = ()


def head_lines(report: BenchReport) -> list[str]:
    """The machine and the bench in a few lines: the key under which reports are merged."""
    m = report.machine
    software = ", ".join(f"{k} {v}" for k, v in m.software.items())
    lines = [
        ", ".join(w for w in (m.device, m.power_mode or "power mode unknown", m.clocks or "clocks unknown") if w),
        software,
        _noise_words(report),
        f"power and clocks: {m.meter}"
        + ("" if m.idle_power_w is None else f"; idle {m.idle_power_w:.1f} W with every worker loaded"),
        f"measured {report.created_utc} with robot-perf {report.version}; robot-perf has never run on a Jetson",
    ]
    if report.state != "complete":
        lines.insert(0, f"NOT COMPLETE: {report.state}")
    return [line for line in lines if line]


def _noise_words(report: BenchReport) -> str:
    """The A/A floors of the points, and how many blocks they are from; with one block there is none, nor an answer."""
    if report.blocks < 2:
        steps = f"one block of {format_count(report.steps)} steps a point"
        return f"no A/A noise floor: {steps}, so no answer which backend is faster; --blocks 2 or more"
    floors = [p.floor for r in report.rows for p in r.points if p.status == OK and p.floor is not None]
    middle = sorted(floors)[len(floors) // 2] if floors else None
    noise = "unknown" if middle is None else f"{middle * 100:.1f} % (median), {max(floors) * 100:.1f} % (largest)"
    return f"A/A noise floor {noise}; {report.blocks} interleaved blocks of {-(-report.steps // report.blocks)} steps a point"


def sections(report: BenchReport) -> list[Section]:
    """One section per policy, in the order they were measured."""
    return [_section(report, head) for head in report.policies]


def _section(report: BenchReport, head: PolicyHead) -> Section:
    rows = [r for r in report.rows if r.policy == head.name]
    tables = [_latency(report.rates, rows), _costs(report.rates, rows), *_keep_warm(report.rates, rows)]
    tables += [_phases(report.rates, rows), _device(rows)]
    same = [
        f"{a.b}: no difference from {a.a} at {rate_words(a.rate)} ({a.reason})"
        for a in report.answers
        if a.policy == head.name and a.answer == "no difference"
    ]
    parameters = "" if head.parameters is None else f"; {format_count(head.parameters)} parameters"
    sha = f"; sha256 {head.sha256[:12]}…" if head.sha256 else ""
    return Section(
        policy=head.name,
        what=f"{head.inputs} → {head.outputs}{parameters}; {head.state}{sha}",
        tables=tuple(t for t in tables if t.rows),
        reasons=tuple(reasons_of(rows)),
        same=tuple(same),
        advice=tuple(a.words for a in report.advice if a.policy == head.name),
        notes=(*remarks_of(report.rates, rows), *phase_notes(report.rates, rows)),
    )


def us(ns: float | None) -> str:
    """A duration in µs, with one decimal below 1 ms."""
    if ns is None:
        return NO_VALUE
    return f"{ns / 1000:,.1f}" if ns < 1_000_000 else f"{ns / 1000:,.0f}"


def _latency(rates: Sequence[str], rows: Sequence[Row]) -> Table:
    """Host in to host out in µs, paced first, and what spacing the calls out costs."""
    groups, head = ["µs"], ["backend"]
    for rate in rates:
        groups += [rate_words(rate), "", ""]
        head += ["p50", "p99", "max"]
    paced = [r for r in rates if r != TIGHT]
    penalties = paced if TIGHT in rates else []
    groups += ["× tight", *[""] * (len(penalties) - 1)] if penalties else []
    head += [rate_words(r) for r in penalties]
    body = []
    for row in rows:
        if row.status != OK:
            continue
        cells = [row.backend]
        for rate in rates:
            cells += _three(row.point(rate))
        for rate in penalties:
            point = row.point(rate)
            cells.append(NO_VALUE if point is None or point.penalty is None else f"{point.penalty:.1f}")
        body.append(tuple(cells))
    title = "Execution: observation on the host to action on the host"
    return Table(title, tuple(head), tuple(body), tuple(groups), notes=_without_value(rows))


def _without_value(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Why a percentile of the table has no value: how many steps it needs, and how many there were."""
    empty = [(f, p.n) for r in rows for p in r.points if p.status == OK for f in p.execution if f.value_ns is None]
    found = []
    for name in ("p50", "p99"):
        counts = [n for figure, n in empty if figure.name == name]
        why = next((f.reason for f, _ in empty if f.name == name and f.reason), None)
        if counts and why:
            steps = format_count(counts[0]) if len(set(counts)) == 1 else f"{min(counts):,} to {max(counts):,}"
            found.append((name, f"{why.replace('>=', '≥')}: these points have {steps} steps"))
    return tuple(found)


def _three(point: Point | None) -> list[str]:
    if point is None:
        return [NO_VALUE] * 3
    if point.status != OK:
        return [point.status, "", ""]
    return [us(point.p("p50")), us(point.p("p99")), us(point.execution_max_ns)]


def _costs(rates: Sequence[str], rows: Sequence[Row]) -> Table:
    """What a backend costs besides latency; energy and misses at the first paced rate asked for."""
    paced = next((r for r in rates if r != TIGHT), None)
    at = "" if paced is None else f" at {rate_words(paced)}"
    head = (
        "backend",
        "first action",
        "build",
        "device memory",
        "launches/step",
        f"energy/step{at}",
        "above idle",
        f"CPU{at}",
        f"misses{at}",
    )
    body, below, compiled = [], [], []
    for row in rows:
        if row.status != OK:
            continue
        point = None if paced is None else row.point(paced)
        compiling = compile_ns(row)
        if compiling is not None:
            compiled.append(row.backend)
        above = None if point is None else point.energy_above_idle_j
        if above is not None and above <= 0:
            below.append(row.backend)
        body.append(
            (
                row.backend,
                _duration(row.first_action_ns),
                _duration(row.build_ns) if compiling is None else f"{format_duration(compiling)} *",
                NO_VALUE if row.device_memory_bytes is None else format_bytes(row.device_memory_bytes).split(" (")[0],
                NO_VALUE if row.launches_per_step is None else f"{row.launches_per_step:g}",
                _energy(None if point is None else point.energy_per_step_j),
                "not told" if above is not None and above <= 0 else _energy(above),
                NO_VALUE if point is None or point.cpu_share is None else percent(round(point.cpu_share, 3)),
                NO_VALUE
                if point is None or point.status != OK
                else f"{format_count(point.misses)} of {format_count(point.releases)}",
            )
        )
    words = "not told above idle: the device drew no more than when it was read idle"
    notes = [(", ".join(below), words)] if below else []
    notes += [(", ".join(compiled), COMPILED)] if compiled else []
    return _without_empty_columns(Table("Costs", head, tuple(body), notes=tuple(notes)))


def _without_empty_columns(table: Table) -> Table:
    """The table without the columns in which no row has a value, and a note that names them: on a CPU that is half of them."""
    full = [i for i in range(len(table.head)) if i < table.keys or any(row[i] != NO_VALUE for row in table.rows)]
    empty = [word for i, word in enumerate(table.head) if i not in full]
    if not table.rows or not empty:
        return table
    return replace(
        table,
        head=tuple(table.head[i] for i in full),
        rows=tuple(tuple(row[i] for i in full) for row in table.rows),
        notes=(*table.notes, ("not known here", ", ".join(empty))),
    )


def _energy(joules: float | None) -> str:
    if joules is None:
        return NO_VALUE
    return f"{joules:.2f} J" if abs(joules) >= 1 else f"{joules * 1000:.3g} mJ"


def _duration(ns: float | None) -> str:
    return NO_VALUE if ns is None else format_duration(ns)


def _keep_warm(rates: Sequence[str], rows: Sequence[Row]) -> list[Table]:
    """Per paced rate: what each keep-warm brings and costs. Empty where only `none` was measured."""
    tables = []
    for rate in rates:
        body, notes = [], []
        for row in rows:
            tight, plain = row.point(TIGHT), row.point(rate)
            points = [p for p in row.points if p.rate == rate]
            if row.status != OK or len(points) < 2:
                continue
            for point in points:
                if point.status == OK:
                    body.append((row.backend, point.keep_warm, *_cure(point, plain, tight)))
                else:
                    notes.append((f"{row.backend} {point.keep_warm}", f"{point.status}: {point.reason}"))
        head = ("backend", "keep-warm", "p50 µs", "p99 µs", "× tight", "wake-up µs", "CPU", "power")
        title = f"Keep-warm at {rate_words(rate)}"
        table = Table(title, head, tuple(body), left=(0, 1), notes=by_words(notes), keys=2)
        tables.append(_without_empty_columns(table))
    return tables


def _cure(point: Point, plain: Point | None, tight: Point | None) -> tuple[str, ...]:
    p50, base = point.p("p50"), None if tight is None else tight.p("p50")
    times = NO_VALUE if p50 is None or not base else f"{p50 / base:.2f}"
    power = NO_VALUE if point.power_w is None else f"{point.power_w:.1f} W"
    if point.power_w is not None and plain is not None and plain.power_w is not None and point is not plain:
        power += f" ({point.power_w - plain.power_w:+.1f})"
    share = NO_VALUE if point.cpu_share is None else f"{point.cpu_share * 100:.1f} %"
    return (us(p50), us(point.p("p99")), times, us(point.wakeup_p50_ns), share, power)


def _phases(rates: Sequence[str], rows: Sequence[Row]) -> Table:
    """Where the execution goes, by rate; empty where nothing ran on a device."""
    return Table(TITLE, HEAD, phase_rows(rates, rows), GROUPS, left=(0,), keys=2)


def _device(rows: Sequence[Row]) -> Table:
    """Clocks, temperature and throttle reasons by point; empty where nothing was read."""
    body = []
    for row in rows:
        for point in row.points:
            sm = [b.sm_hz for b in point.blocks if b.sm_hz is not None]
            if not sm:
                continue
            warmth = [b.temperature_c for b in point.blocks if b.temperature_c is not None]
            reasons = dict.fromkeys(r for b in point.blocks for r in b.throttle)
            readable = any(b.throttle_read for b in point.blocks)
            body.append(
                (
                    row.backend,
                    rate_words(point.rate),
                    point.keep_warm,
                    " ".join(f"{low / 1e6:.0f}–{high / 1e6:.0f}" for low, high in sm),
                    f"{max(warmth):.0f}" if warmth else NO_VALUE,
                    NO_VALUE if point.power_w is None else f"{point.power_w:.1f}",
                    ", ".join(reasons) or ("none" if readable else NO_VALUE),
                )
            )
    head = ("backend", "rate", "keep-warm", "SM MHz by block", "°C", "W", "throttled")
    return Table("Device clocks by block", head, tuple(body), left=(0, 2, 6), keys=3)
