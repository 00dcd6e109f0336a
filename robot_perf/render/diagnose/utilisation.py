"""Utilisation as text and as a JSON document: the ladder first, then every number with what it says and doesn't."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from robot_perf.analyze.diagnose.model import CANT, FOUND, Finding
from robot_perf.analyze.utilisation import Ladder
from robot_perf.analyze.utilisation.model import Busy, Evidence, LadderThresholds, Reading
from robot_perf.render.cells import NO_VALUE
from robot_perf.render.diagnose.text import plain
from robot_perf.render.grid import grid
from robot_perf.render.lines import clean, join, labelled
from robot_perf.units import format_duration

__all__ = ["utilisation_document", "utilisation_text"]

SCHEMA = "robot-perf/1"


def utilisation_document(
    ladder: Ladder, evidence: Evidence, readings: Sequence[Reading], busy: Busy, sampling: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON document of `utilisation --json`."""
    return {
        "schema": SCHEMA,
        "headline": ladder.headline,
        "stopped_at": None if ladder.found is None else ladder.found.rule,
        "rungs": [_rung(i, f) for i, f in enumerate(ladder.rungs, 1)],
        "not_asked": list(ladder.not_asked),
        "numbers": [plain(asdict(r)) for r in readings],
        "busy": plain(asdict(busy)),
        "evidence": plain(asdict(evidence)),
        "sampling": plain(sampling),
        "thresholds": asdict(LadderThresholds()),
    }


def _rung(number: int, f: Finding) -> dict[str, Any]:
    return {
        "number": number,
        "rule": f.rule,
        "outcome": f.outcome,
        "reason": f.reason,
        "evidence": plain(f.evidence),
        "fixes": [asdict(x) for x in f.fixes],
        "confirm": f.confirm,
    }


def utilisation_text(
    ladder: Ladder,
    readings: Sequence[Reading],
    busy: Busy,
    sampling: Mapping[str, Any],
    *,
    rate_hz: float | None = None,
    width: int = 100,
) -> Text:
    """The report for a terminal."""
    lines: list[Text | str] = list(labelled("why idle", clean(ladder.headline), width, style="bold"))
    lines += _found_lines(ladder.found, width)
    lines += ["", *_rung_lines(ladder, width), "", *_number_lines(readings, busy, width)]
    lines += ["", *_meaning_lines(readings, busy, rate_hz, width), *_sampling_lines(sampling, width)]
    return join(lines)


def _found_lines(f: Finding | None, width: int) -> list[Text]:
    if f is None:
        return []
    lines: list[Text] = []
    for fix in f.fixes:
        command = f": {fix.command}" if fix.command else ""
        lines += labelled("  fix", clean(f"{fix.what} (gains {fix.gains}; costs {fix.costs}){command}"), width)
    return lines + (labelled("  confirm", f.confirm, width) if f.confirm else [])


def _rung_lines(ladder: Ladder, width: int) -> list[Text]:
    lines: list[Text] = []
    for i, f in enumerate(ladder.rungs, 1):
        style = "bold" if f.outcome == FOUND else ""
        mark = "?" if f.outcome == CANT else ""
        lines += labelled(f"rung {i}{mark}", f"{f.rule}: {f.outcome}: {clean(f.reason)}", width, style=style)
    if ladder.not_asked:
        lines += labelled("not asked", f"{', '.join(ladder.not_asked)}: the ladder stops at the first rung found", width)  # fmt: skip
    return lines


def _number_lines(readings: Sequence[Reading], busy: Busy, width: int) -> list[Text | str]:
    rows = [_row(r) for r in readings if r.mean is not None]
    fractions = (
        ("busy, all device work", busy.all_work_pct), ("busy, kernels only", busy.kernels_pct), ("busy, compute within steps", busy.within_step_pct),
    )  # fmt: skip
    rows += [(label, f"{value:.1f} %", "", "", "", busy.source.partition(",")[0]) for label, value in fractions if value is not None]  # fmt: skip
    lines: list[Text | str] = []
    if rows:
        lines += grid(("number", "mean", "least–most", "n", "period", "source"), rows, left=(0, 5)).splitlines()
    by_reason: dict[str, list[str]] = {}
    for r in readings:
        if r.mean is None:
            by_reason.setdefault(r.reason, []).append(r.label)
    for reason, labels in by_reason.items():
        lines += labelled(CANT, f"{', '.join(labels)}: {clean(reason)}", width)
    if busy.reason:
        lines += labelled(CANT, f"busy fraction: {clean(busy.reason)}", width)
    return lines


def _row(r: Reading) -> tuple[str, ...]:
    assert r.mean is not None
    unit = "" if r.unit == "%" else f" {r.unit}"
    digits = 1 if r.unit == "%" else 0
    percent = " %" if r.unit == "%" else unit
    ends = f"{r.low:.{digits}f}–{r.high:.{digits}f}"
    period = NO_VALUE if r.period_s is None else format_duration(r.period_s * 1e9)
    return r.label, f"{r.mean:.{digits}f}{percent}", ends, str(r.n), period, r.source


def _meaning_lines(readings: Sequence[Reading], busy: Busy, rate_hz: float | None, width: int) -> list[Text]:
    """Why a high and a low number can both be fine."""
    by_field = {r.field: r for r in readings}
    smi, sm = by_field.get("utilisation_pct"), by_field.get("sm_activity_pct")
    lines: list[Text] = []
    if smi is not None and smi.mean is not None:
        text = f"nvidia-smi's {smi.mean:.0f} % is the share of time in which at least one kernel ran, over the driver's own sample period; one block on one of the GPU's SMs counts as all of it"  # fmt: skip
        if sm is not None and sm.mean is not None:
            text += f". Over the same time the SMs were active for {sm.mean:.1f} %"
        lines += labelled("means", text, width)
    if busy.all_work_pct is not None:
        at = f" at {rate_hz:g} Hz" if rate_hz is not None else ""
        steps = "" if busy.steps is None else f" of {busy.steps} steps"
        lines += labelled("", f"device work filled {busy.all_work_pct:.1f} % of the time{at}, from the kernels themselves{steps} ({busy.source})", width)  # fmt: skip
    lines += labelled("" if lines else "means", "at batch 1 both ends can be right: 100 % may be one narrow kernel after another, far below what the GPU could do; 30 % may be a policy that is done early and waits for the next release", width)  # fmt: skip
    return lines


def _sampling_lines(sampling: Mapping[str, Any], width: int) -> list[Text]:
    if not sampling.get("source"):
        return labelled("sampled", f"host only: {clean(sampling.get('reason') or 'no GPU')}", width)
    name = (sampling.get("identity") or {}).get("name") or sampling.get("device")
    cost = f"{sampling['looks']} looks, one every {sampling['every_s']:g} s, from a process of its own"
    if sampling.get("median_ns") is not None:
        cost += f"; a look took {format_duration(sampling['median_ns'])} (median), {format_duration(sampling['longest_ns'])} (longest)"  # fmt: skip
    return labelled("sampled", f"{clean(name)} through {sampling['source']}: {cost}", width)
