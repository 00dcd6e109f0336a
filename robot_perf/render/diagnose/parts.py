"""Parts of a diagnosis report: evidence, facts, kernels, predictions, each in people's units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from robot_perf.analyze.diagnose.model import Diagnosis, Finding, KernelClass
from robot_perf.analyze.prediction.report import Comparison
from robot_perf.render.lines import clean, labelled, shorten
from robot_perf.units import format_bytes, format_duration

MAX_KERNELS = 12


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


def facts_lines(diagnosis: Diagnosis, width: int) -> list[Text]:
    """Counts, devices, copies, steps and launches."""
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
    lines += _step_lines(facts, width)
    launch = facts.get("launch") or {}
    if launch.get("call_median_ns") is not None:
        text = f"{launch['calls']:,} calls, median {format_duration(launch['call_median_net_ns'])}, mean {format_duration(launch['call_mean_net_ns'])}, p99 {format_duration(launch['call_p99_ns'])}"
        if launch["queue_full_rows"]:
            text += f" (queue-full waits of {format_duration(launch['queue_full_ns'])} taken out: with them the mean is {format_duration(launch['call_mean_ns'])})"
        lines += labelled("launches", text, width)
    if facts.get("graph_mode") == "graph" and p.get("graphs"):
        lines += labelled("graphs", f"{p['graphs']} whole graphs: graph mode, no kernels inside", width)
    return lines


def _step_lines(facts: Mapping[str, Any], width: int) -> list[Text]:
    """How the steps were found, and what one holds."""
    step = facts.get("step") or {}
    lines: list[Text] = []
    if step and not step["whole_capture"]:
        text = f"{step['steps']} ({clean(step['name'])}; {step['how']})"
        if step.get("launches_per_step") is not None:
            text += f", {step['launches_per_step']:.0f} launch{'' if step['launches_per_step'] == 1 else 'es'} and {step['ops_per_step']:.0f} device operations each"
        text += f", {step['gaps_per_step']:.0f} gaps" + (
            f" of median {format_duration(step['gap_median_ns'])}" if step.get("gap_median_ns") is not None else ""
        )
        lines += labelled(
            "steps",
            text + (f"; {step['steps'] - step['kept']} left out as warm-up" if step["kept"] != step["steps"] else ""),
            width,
        )
    if facts.get("roofline"):
        lines += labelled("roofline", facts["roofline"]["says"], width)
    return lines


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def kernel_lines(kernels: Sequence[KernelClass], width: int) -> list[Text]:
    """The kernels with counters, longest first."""
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
