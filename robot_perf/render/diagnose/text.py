"""A Diagnosis as text, markdown, HTML and a JSON document. Numbers keep their unit; names from files are escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

import numpy as np
from rich.text import Text

from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND, Diagnosis, Finding
from robot_perf.analyze.prediction.report import Comparison
from robot_perf.render.diagnose.parts import evidence_line, facts_lines, kernel_lines, kernel_sentence, prediction_lines
from robot_perf.render.lines import clean, fit, join, labelled, shorten
from robot_perf.render.markdown import escape_markdown

SCHEMA = "robot-perf/1"
PROFILED = "profiled times are not deployment times: shares and causes come from here, latency from an unprofiled run"


def diagnose_document(diagnosis: Diagnosis, predictions: Sequence[Comparison] = ()) -> dict[str, Any]:
    """The JSON document of `diagnose --json`; readers ignore keys that they don't know."""
    return {
        "schema": SCHEMA,
        "source": clean(diagnosis.source),
        "invalid": diagnosis.invalid or None,
        "primary": diagnosis.primary,
        "headline": diagnosis.headline,
        "deadline": diagnosis.deadline or None,
        "reasons": list(diagnosis.reasons),
        "findings": [_finding(f) for f in diagnosis.findings],
        "checks": [_finding(f) for f in diagnosis.checks],
        "profile": plain(diagnosis.profile),
        "facts": plain(diagnosis.facts),
        "kernels": [plain({**asdict(k), "label": k.label}) for k in diagnosis.kernels],
        "predictions": [plain(asdict(p)) for p in predictions],
        "cant_answer": [asdict(c) for c in diagnosis.cant_answer],
        "notes": list(diagnosis.notes),
    }


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "rule": f.rule, "outcome": f.outcome, "reason": f.reason, "share_pct": plain(f.share), "evidence": plain(f.evidence), "concerned": list(f.concerned),
        "fixes": [asdict(x) for x in f.fixes], "confirm": f.confirm,
    }  # fmt: skip


def plain(value: Any) -> Any:
    """Values that JSON can hold: numpy scalars become Python's, infinity and NaN null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def diagnose_text(diagnosis: Diagnosis, predictions: Sequence[Comparison] = (), *, width: int = 100) -> Text:
    """The report for a terminal: the answer first, then evidence, what to do, and what could not be answered."""
    lines: list[Text | str] = [fit(invalid_line(diagnosis.invalid), width)] if diagnosis.invalid else []
    lines += labelled("limit", _first_line(diagnosis), width, style="bold")
    for i, f in enumerate(_ordered(diagnosis)):
        lines += [*([""] if i else []), *_found_lines(f, "also" if i else "", width)]
    lines += ["", *facts_lines(diagnosis, width), *kernel_lines(diagnosis.kernels, width)]
    lines += [line for p in predictions for line in prediction_lines(p, width)]
    return join([*lines, *_other_lines(diagnosis, width)])


def _found_lines(f: Finding, label: str, width: int) -> list[Text]:
    """One finding: reason, evidence, what it concerns, fixes with gain and cost, and what confirms it."""
    lines = labelled(label, f"{f.rule}{_share(f)}: {clean(f.reason)}", width, style="" if label else "bold")
    lines += labelled("  evidence", evidence_line(f), width)
    for name in f.concerned[:3]:
        lines += labelled("", shorten(clean(name), width - 12), width)
    for fix in f.fixes:
        command = f": {fix.command}" if fix.command else ""
        lines += labelled("  fix", f"{fix.what} (gains {fix.gains}; costs {fix.costs}){command}", width)
    return lines + (labelled("  confirm", f.confirm, width) if f.confirm else [])


def _other_lines(diagnosis: Diagnosis, width: int) -> list[Text]:
    """What is clean, what could not be answered, and the file's own warnings."""
    lines: list[Text] = []
    for i, f in enumerate(f for f in (*diagnosis.findings, *diagnosis.checks) if f.outcome == CLEAN):
        lines += labelled("" if i else "clean", f"{f.rule}: {f.reason}", width)
    for c in diagnosis.cant_answer:
        lines += labelled(CANT, f"{c.question}: {c.reason}; {c.capture}", width)
    left = [f for f in (*diagnosis.findings, *diagnosis.checks) if f.outcome == CANT]
    if left and len({f.reason for f in left}) == 1:
        lines += labelled(CANT, f"{', '.join(f.rule for f in left)}: {left[0].reason}", width)
    else:
        lines += [line for f in left for line in labelled(CANT, f"{f.rule}: {f.reason}", width)]
    profiled = [PROFILED] if diagnosis.profile.get("shape") == "timeline" else []
    return lines + [line for note in (*diagnosis.notes, *profiled) for line in labelled("note", clean(note), width)]


def invalid_line(reason: str) -> str:
    """What stands above everything that is said of an INVALID Run."""
    return f"INVALID: {clean(reason)}; what follows is about an invalid measurement"


def _first_line(diagnosis: Diagnosis) -> str:
    return diagnosis.headline + (f"; {diagnosis.deadline}" if diagnosis.deadline else "")


def _share(f: Finding) -> str:
    return f" ({f.share:.0f} %)" if f.share is not None else ""


def _ordered(diagnosis: Diagnosis) -> list[Finding]:
    """Found rules, the primary first, then by share."""
    found = [f for f in (*diagnosis.findings, *diagnosis.checks) if f.outcome == FOUND]
    return sorted(found, key=lambda f: (f.rule != diagnosis.primary, -(f.share if f.share is not None else -1.0)))


def diagnose_markdown(diagnosis: Diagnosis, predictions: Sequence[Comparison] = ()) -> str:
    """The report as markdown; whatever came from the file can neither format nor link."""
    md = escape_markdown
    parts = [f"# {md(clean(diagnosis.source))}"]
    parts += [f"**{md(invalid_line(diagnosis.invalid))}**"] if diagnosis.invalid else []
    parts.append(f"**{md(diagnosis.primary)}**: {md(_first_line(diagnosis))}")
    rows = [
        f"| {md(f.rule)} | {md(f.outcome)} | {f'{f.share:.1f}' if f.share is not None else ''} | {md(clean(f.reason))} |"
        for f in (*diagnosis.findings, *diagnosis.checks)
    ]
    parts.append("\n".join(["| rule | outcome | % of the step | why |", "|---|---|---|---|", *rows]))
    for f in _ordered(diagnosis):
        items = [
            f"- evidence: {md(evidence_line(f))}",
            *(f"- concerns: {md(shorten(clean(n), 120))}" for n in f.concerned),
        ]
        items += [
            f"- fix: {md(x.what)}. Gains: {md(x.gains)}. Costs: {md(x.costs)}."
            + (f" Run: {md(x.command)}" if x.command else "")
            for x in f.fixes
        ]
        parts.append(
            f"## {md(f.rule)}\n\n" + "\n".join([*items, *([f"- confirm: {md(f.confirm)}"] if f.confirm else [])])
        )
    lists = (
        ("Facts", [str(t) for t in facts_lines(diagnosis, 10_000)]), ("Kernels", [kernel_sentence(k, 200) for k in diagnosis.kernels]),
        ("Predictions", [str(t) for p in predictions for t in prediction_lines(p, 10_000)]),
        ("Can't answer", [f"{c.question}: {c.reason}; {c.capture}" for c in diagnosis.cant_answer]), ("Notes", [*diagnosis.notes, PROFILED]),
    )  # fmt: skip
    for title, items in lists:
        if items:
            parts.append(f"## {md(title)}\n\n" + "\n".join(f"- {md(' '.join(clean(i).split()))}" for i in items))
    return "\n\n".join(parts) + "\n"


def diagnose_html(diagnosis: Diagnosis, predictions: Sequence[Comparison] = (), *, chart: str = "") -> str:
    """The report as one HTML page that needs no network. `chart` is our own markup (a roofline), everything else is escaped."""
    title = escape(clean(diagnosis.source))
    rows = "".join(
        f"<tr><td>{escape(f.rule)}<td>{escape(f.outcome)}<td>{'' if f.share is None else f'{f.share:.1f}'}<td>{escape(clean(f.reason))}"
        for f in (*diagnosis.findings, *diagnosis.checks)
    )
    body = escape(diagnose_text(diagnosis, predictions, width=110).plain)
    invalid = f"<p><b>{escape(invalid_line(diagnosis.invalid))}</b></p>" if diagnosis.invalid else ""
    style = "body{font:15px system-ui;max-width:75em;margin:2em auto;padding:0 1em}td,th{padding:.2em .8em;text-align:left;vertical-align:top}pre{white-space:pre-wrap}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style><h1>{title}</h1>{invalid}<p><b>{escape(_first_line(diagnosis))}</b></p>'
        f"<table><tr><th>rule<th>outcome<th>% of the step<th>why{rows}</table>{chart}<pre>{body}</pre></html>\n"
    )
