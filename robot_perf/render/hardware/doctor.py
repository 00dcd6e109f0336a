"""What `doctor` says, as text: the machine, what to mend with its command, what to know, what could not be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from robot_perf.analyze.doctor import Finding
from robot_perf.analyze.types import Distribution, Summary
from robot_perf.render.cells import NO_VALUE, Unit, number, quantile
from robot_perf.render.lines import LABEL, clean, join, labelled, pad, pad_left
from robot_perf.units import US, format_bytes, format_count

__all__ = ["doctor_text", "floor_text"]

_US = Unit("µs", US, 1)


def doctor_text(facts: Mapping[str, Any], findings: Sequence[Finding], *, width: int = 100) -> Text:
    """The report of one examination. Commands are printed to be read and run by a person, never run."""
    lines = _machine(facts, width)
    for outcome, style in (("mend", "bold yellow"), ("note", "bold")):
        for finding in (f for f in findings if f.outcome == outcome):
            lines += [
                Text(""),
                *labelled(outcome, f"{clean(finding.what)}: {clean(finding.why)}", width, label_style=style),
            ]
            if finding.command:
                # a command is never wrapped: it is there to be copied
                lines.append(Text(" " * LABEL + clean(finding.command)))
    lines.append(Text(""))
    clean_checks = [f.check for f in findings if f.outcome == "clean"]
    lines += labelled("clean", ", ".join(clean_checks), width, label_style="dim") if clean_checks else []
    for finding in (f for f in findings if f.outcome == "can't answer"):
        lines += labelled("can't tell", f"{finding.check}: {clean(finding.what)}", width, label_style="dim")
    return join([*lines, *labelled("", _last(findings), width)])


def _last(findings: Sequence[Finding]) -> str:
    mend, note = (sum(f.outcome == outcome for f in findings) for outcome in ("mend", "note"))
    if not mend and not note:
        return "nothing here hurts latency that robot-perf knows of; robot-perf doctor --floor measures what is left"
    things = f"{mend} thing{'s' * (mend != 1)}" if mend else "nothing"
    words = f"{things} to mend, {note} note{'s' * (note != 1)}; nothing was changed"
    return f"{words}; robot-perf doctor --floor measures what this machine can do as it is"


def _machine(facts: Mapping[str, Any], width: int) -> list[Text]:
    system = (facts.get("os_release") or {}).get("PRETTY_NAME", "")
    host = [f"kernel {facts.get('kernel', NO_VALUE)} {facts.get('preemption', '')}".rstrip(), system]
    host += [str(v) for v in facts.get("virtualization") or ()]
    if facts.get("l4t"):
        host.append(f"L4T R{facts['l4t']['release']}.{facts['l4t']['revision']}")
    processor = [str(facts.get("cpu_model", facts.get("machine", ""))), f"{facts.get('cpus', NO_VALUE)} processors"]
    if facts.get("memory_bytes"):
        processor.append(format_bytes(facts["memory_bytes"]))
    packages = [f"{name} {version}" for name, version in (facts.get("packages") or {}).items()]
    python = str(facts.get("python", ""))
    rows = (("host", host), ("processor", processor), ("software", [python, *packages]))
    return [
        line
        for label, words in rows
        for line in labelled(label, clean(", ".join(w for w in words if w)), width, label_style="dim")
    ]


FloorRow = tuple[str, Summary, Sequence[str]]  # settings, what was measured, what the kernel refused


def floor_text(rows: Sequence[FloorRow], *, width: int = 100) -> Text:
    """A row per setting: wake-up latency and harness in µs, misses."""
    first = rows[0][1]
    head = f"the null policy every {first.period_ns / 1e6:g} ms, {format_count(first.scheduled)} releases a row; µs"
    lines = labelled("floor", head, width)
    table = [("", "wake-up p50", "p99", "max", "harness p50", "p99", "misses"), *(_floor_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        cells = "  ".join(pad_left(c, w) for c, w in zip(line[1:], widths[1:], strict=True))
        lines.append(Text(f"  {pad(line[0], widths[0])}  {cells}"))
    for _settings, _summary, refused in rows:
        for reason in refused:
            lines += labelled("refused", clean(reason), width)
    return join(lines)


def _floor_cells(row: FloorRow) -> tuple[str, ...]:
    settings, summary, _refused = row
    wakeup, harness = summary.wakeup, summary.harness
    cells = (*(quantile(wakeup.quantile(p), _US) for p in ("p50", "p99")), _max(wakeup))
    own = tuple(quantile(harness.quantile(p), _US) for p in ("p50", "p99"))
    return (settings, *cells, *own, format_count(summary.misses))


def _max(data: Distribution) -> str:
    return number(data.max, _US) if data.max is not None else NO_VALUE
