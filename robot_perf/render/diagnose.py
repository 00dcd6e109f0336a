"""A Diagnosis as text, markdown, HTML and a JSON document. Numbers keep their unit; names from files are escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

import numpy as np
from rich.text import Text

from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND, Diagnosis, Finding, KernelClass
from robot_perf.analyze.predict_report import Comparison
from robot_perf.render.lines import clean, join, labelled, shorten
from robot_perf.render.markdown import escape_markdown
from robot_perf.units import format_bytes, format_duration

SCHEMA = "robot-perf/1"
PROFILED = "profiled times are not deployment times: shares and causes come from here, latency from an unprofiled run"
MAX_KERNELS = 12


def diagnose_document(diagnosis: Diagnosis, predictions: Sequence[Comparison] = ()) -> dict[str, Any]:
    """The JSON document of `diagnose --json`; readers ignore keys that they don't know."""
    return {
        "schema": SCHEMA,
        "source": clean(diagnosis.source),
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
    lines: list[Text | str] = list(labelled("limit", _first_line(diagnosis), width, style="bold"))
    for i, f in enumerate(_ordered(diagnosis)):
        lines += [*([""] if i else []), *_found_lines(f, "also" if i else "", width)]
    lines += ["", *_facts_lines(diagnosis, width), *_kernel_lines(diagnosis.kernels, width)]
    lines += [line for p in predictions for line in prediction_lines(p, width)]
    lines += [line for f in diagnosis.checks for line in labelled(f.outcome, f"{f.rule}: {f.reason}", width)]
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
    for i, f in enumerate(f for f in diagnosis.findings if f.outcome == CLEAN):
        lines += labelled("" if i else "clean", f"{f.rule}: {f.reason}", width)
    for c in diagnosis.cant_answer:
        lines += labelled(CANT, f"{c.question}: {c.reason}; {c.capture}", width)
    left = [f for f in diagnosis.findings if f.outcome == CANT]
    if left and len({f.reason for f in left}) == 1:
        lines += labelled(CANT, f"{', '.join(f.rule for f in left)}: {left[0].reason}", width)
    else:
        lines += [line for f in left for line in labelled(CANT, f"{f.rule}: {f.reason}", width)]
    profiled = [PROFILED] if diagnosis.profile.get("shape") == "timeline" else []
    return lines + [line for note in (*diagnosis.notes, *profiled) for line in labelled("note", clean(note), width)]


def _first_line(diagnosis: Diagnosis) -> str:
    return diagnosis.headline + (f"; {diagnosis.deadline}" if diagnosis.deadline else "")


def _share(f: Finding) -> str:
    return f" ({f.share:.0f} %)" if f.share is not None else ""


def _ordered(diagnosis: Diagnosis) -> list[Finding]:
    """Found rules, the primary first, then by share."""
    found = [f for f in diagnosis.findings if f.outcome == FOUND]
    return sorted(found, key=lambda f: (f.rule != diagnosis.primary, -(f.share if f.share is not None else -1.0)))


def evidence_line(f: Finding) -> str:
    """The numbers of a finding in people's units: a sentence where one reads better, else number by number."""
    if f.rule == "launch/CPU" and f.evidence.get("gaps_per_step") is not None:
        return _launch_sentence(f.evidence)
    if f.rule == "transfer":
        return "; ".join(copy_sentence(c) for c in f.evidence.get("copies", ())) or "none"
    words = [text for key, value in f.evidence.items() if (text := _number(key, value))]
    return ", ".join(words) or "see facts"


def _launch_sentence(e: Mapping[str, Any]) -> str:
    parts = [f"kernels {e['compute_share_pct']:.1f} % of the window, {e['gaps_per_step']:.0f} gaps"]
    if e.get("gap_median_ns") is not None:
        parts[0] += f" of median {format_duration(e['gap_median_ns'])}"
    if e.get("largest_gap_share_pct") is not None:
        parts[0] += f", the largest {e['largest_gap_share_pct']:.0f} %"
    if e.get("call_median_ns") is not None:
        parts.append(
            f"launch call {format_duration(e['call_median_ns'])} (median), {format_duration(e['call_p99_ns'])} (p99)"
        )
    if e.get("short_queue_share") is not None:
        parts.append(f"{100 * e['short_queue_share']:.0f} % of the work starts within 20 µs of its call")
    drained = e.get("drained_by") or {}
    if drained.get("calls"):
        names = ", ".join(f"{clean(c['name'])} ({c['per_step']:.1f} a step)" for c in drained["calls"][:3])
        parts.append(f"read back in mid-step: {names}, idle for {drained['idle_share_pct']:.0f} % after them")
    return "; ".join(parts)


def copy_sentence(copy: Mapping[str, Any]) -> str:
    """One row of copies: count, direction, bytes, memory, duration, rate."""
    rate = (
        f", {copy['rate_bytes_s'] / 1e9:.1f} GB/s"
        if copy["rate_bytes_s"] and copy["bytes"] >= 64 * 1024 * copy["count"]
        else ""
    )
    size = f" of {format_bytes(copy['bytes'] / copy['count'])} each" if copy["bytes"] is not None else ""
    memory = f", {copy['host_memory']} host memory" if copy["host_memory"] else ""
    return f"{copy['count']:,} {copy['direction'] or 'copies'}{size}{memory}, {format_duration(copy['copy_ns'])} in all{rate}"


def _number(key: str, value: Any) -> str:
    """One evidence number; nested tables are left to the facts and the JSON."""
    if isinstance(value, bool) or value is None or isinstance(value, (Mapping, list, tuple)):
        return ""
    words = key.replace("_", " ")
    if isinstance(value, str):
        return f"{words} {clean(value)}"
    if key.endswith("_ns"):
        return f"{words[:-3]} {format_duration(value)}"
    if key.endswith("_pct"):
        return f"{words[:-4]} {value:.1f} %"
    if key.endswith("share") or "share_of" in key or key.endswith("_cover"):
        return f"{words} {100 * value:.1f} %"
    return f"{words} {value:,.0f}" if float(value).is_integer() else f"{words} {value:,.1f}"


def _facts_lines(diagnosis: Diagnosis, width: int) -> list[Text]:
    p, facts = diagnosis.profile, diagnosis.facts
    lines: list[Text] = []
    counts = ", ".join(f"{p[k]:,} {k}" for k in ("kernels", "copies", "graphs", "launches") if p.get(k))
    tool = " ".join(str(x) for x in (p.get("tool"), p.get("tool_version")) if x)
    lines += labelled("file", f"{clean(diagnosis.source)}: {tool}" + (f", {counts}" if counts else ""), width)
    for device in facts.get("devices", ()):
        name = clean(device["name"]) if device["name"] else "name not in the file"
        text = f"{device['device']} ({name}): all device work {_percent(device['busy_fraction_all_device_work'])} busy over its span of {format_duration(device['span_ns'])}, "
        text += f"kernels only {_percent(device['busy_fraction_kernels_only'])}, compute within steps {_percent(device['busy_fraction_compute_within_steps'])}"
        lines += labelled("device", text, width)
    for copy in facts.get("copies", ())[:3]:
        lines += labelled("copies", copy_sentence(copy), width)
    launch = facts.get("launch") or {}
    if launch.get("call_median_ns") is not None:
        text = f"{launch['calls']:,} calls, median {format_duration(launch['call_median_net_ns'])}, mean {format_duration(launch['call_mean_net_ns'])}, p99 {format_duration(launch['call_p99_ns'])}"
        if launch["queue_full_rows"]:
            text += f" (queue-full waits of {format_duration(launch['queue_full_ns'])} taken out: with them the mean is {format_duration(launch['call_mean_ns'])})"
        lines += labelled("launches", text, width)
    if facts.get("graph_mode") == "graph" and p.get("graphs"):
        lines += labelled("graphs", f"{p['graphs']} whole graphs: graph mode, no kernels inside", width)
    return lines


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def _kernel_lines(kernels: Sequence[KernelClass], width: int) -> list[Text]:
    lines: list[Text] = []
    for k in sorted(kernels, key=lambda c: -(c.dur_ns or 0))[:MAX_KERNELS]:
        lines += labelled("kernel", kernel_sentence(k, width), width)
    if len(kernels) > MAX_KERNELS:
        lines += labelled("", f"and {len(kernels) - MAX_KERNELS} shorter ones (--json lists all)", width)
    return lines


def kernel_sentence(k: KernelClass, width: int = 100) -> str:
    """A kernel's class with the numbers it rests on."""
    n = k.numbers
    parts = [
        f"{word} {n[key]:.1f} %"
        for key, word in (("sm_pct", "SM"), ("mem_pct", "memory"), ("dram_pct", "DRAM"), ("l2_pct", "L2"))
        if n.get(key) is not None
    ]
    waves = f", {n['waves_used']:.2f} waves" if n.get("waves_used") is not None else ""
    took = format_duration(k.dur_ns) if k.dur_ns else "duration unknown"
    mark = f" [{clean(k.mark)}]" if k.mark else ""
    own = f"; ncu says {k.tool_verdict}" if k.tool_verdict and k.tool_verdict != k.kind else ""
    return (
        f"{shorten(clean(k.name), max(20, width // 2))}{mark}: {k.label} ({', '.join(parts)}{waves}; {took}{own})"
        + "".join(f"; {note}" for note in k.notes)
    )


def prediction_lines(p: Comparison, width: int) -> list[Text]:
    """A prediction and what the report says of it."""
    e, q = p.prediction.expectation, p.prediction
    lines = labelled(
        "predicted",
        f"{clean(e.name) or 'kernel'}: {q.limit}; floors memory {format_duration(q.memory_ns)}, compute {format_duration(q.compute_ns)}, launch 2.5 µs; "
        f"{q.intensity:.1f} FLOP/byte against a ridge of {q.ridge:.1f} on {clean(q.ceiling.device)}; DRAM {q.dram_pct:.0f} %, compute {q.compute_pct:.0f} %",
        width,
    )
    lines += labelled("report", f"{p.outcome}: {p.reason} ({format_duration(p.measured_ns)})", width)
    for side in (p.dram, p.compute):
        measured = "not collected" if side.measured_pct is None else f"{side.measured_pct:.1f} %"
        verdict = "not compared" if side.agrees is None else "agrees" if side.agrees else side.reason
        lines += labelled("", f"{side.what}: implied {side.implied_pct:.1f} %, measured {measured}: {verdict}", width)
    return lines + [line for note in p.notes for line in labelled("", note, width)]


def diagnose_markdown(diagnosis: Diagnosis, predictions: Sequence[Comparison] = ()) -> str:
    """The report as markdown; whatever came from the file can neither format nor link."""
    md = escape_markdown
    parts = [f"# {md(clean(diagnosis.source))}", f"**{md(diagnosis.primary)}**: {md(_first_line(diagnosis))}"]
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
        ("Facts", [str(t) for t in _facts_lines(diagnosis, 10_000)]), ("Kernels", [kernel_sentence(k, 200) for k in diagnosis.kernels]),
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
    style = "body{font:15px system-ui;max-width:75em;margin:2em auto;padding:0 1em}td,th{padding:.2em .8em;text-align:left;vertical-align:top}pre{white-space:pre-wrap}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style><h1>{title}</h1><p><b>{escape(_first_line(diagnosis))}</b></p>'
        f"<table><tr><th>rule<th>outcome<th>% of the step<th>why{rows}</table>{chart}<pre>{body}</pre></html>\n"
    )
