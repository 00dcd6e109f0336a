"""Sentences about a Run that more than one kind of report prints: its rate, its cold start, its worst steps, its labels."""

from __future__ import annotations

from collections.abc import Sequence

from robot_perf.analyze.types import Outlier, Summary
from robot_perf.render.cells import percent
from robot_perf.render.lines import clean
from robot_perf.render.parts.phases import phase_words
from robot_perf.run.model import Run
from robot_perf.specs import LoopSpec
from robot_perf.units import MS, format_count, format_duration

__all__ = ["cold_words", "context_pairs", "loop_words", "outlier_words", "rate_words"]

_SLIGHT_PPM = 5.0  # what crystals differ by, and nobody asks about
_WORST = 3
_INTERPRETER = ("process", "import")  # rows of the interpreter's own start: part of the first action, not of the policy


def context_pairs(run: Run, summary: Summary, known: Sequence[str]) -> list[tuple[str, str]]:
    """(label, sentence) of what stands around the figures. `known` are the verdict's notes: a label repeats none of them."""
    pairs = [("rate", rate_words(summary))] if summary.period_ns else []
    loop = loop_words(run.loop)
    pairs += [("loop", loop)] if loop and summary.period_ns else []
    phases = phase_words(run)
    pairs += [("phases", phases)] if phases else []
    cold = cold_words(summary)
    pairs += [("cold start", cold)] if cold else []
    labels = (
        summary.labels if summary.period_ns else [w for w in summary.labels if "miss" not in w]
    )  # nothing could miss
    pairs += [("label", clean(w)) for w in labels if not any(note.startswith(w) for note in known)]
    pairs += [("refused", clean(w)) for w in (run.conditions.get("real_time") or {}).get("refused") or ()]
    pairs += [("note", clean(w)) for w in run.conditions.get("notes") or ()]
    if not summary.period_ns:
        return pairs
    late = [outlier for outlier in summary.outliers if outlier.kind == "late"]
    worst = (late or summary.outliers[:1])[:_WORST]
    return pairs + [("" if i else "worst", outlier_words(outlier)) for i, outlier in enumerate(worst)]


def _ppm(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f} ppm"  # + 0.0: no minus before a zero


def _but(drift: float, resistant: float | None) -> str:
    """One late step at either end reads as a clock that is wrong: what the first and the last third say of it."""
    if abs(drift) < _SLIGHT_PPM:
        return ""
    if resistant is None:
        return " (no more than the wake-ups scatter)"
    return f" ({_ppm(resistant)} but for its first and last step)" if abs(drift - resistant) > abs(drift) / 5 else ""


def rate_words(summary: Summary) -> str:
    """Period asked and achieved, drift, overrun policy, utilisation, the longest gap that the plant saw, early steps and bursts."""
    words = f"period {summary.period_ns / MS:.6g} ms asked"
    if summary.rate_achieved_hz:
        words += f", {1e3 / summary.rate_achieved_hz:.6g} ms achieved"
    if summary.drift_ppm is not None:
        words += f", drift {_ppm(summary.drift_ppm)}{_but(summary.drift_ppm, summary.resistant_drift_ppm)}"
    words += f"; overrun policy {summary.overrun}"
    if summary.utilisation_mean is not None:
        words += f"; utilisation {percent(float(f'{summary.utilisation_mean:.3g}'))}"
    if summary.max_gap is not None:
        words += f"; longest gap between actions {format_duration(summary.max_gap.value_ns)}"
        words += f" at release {format_count(summary.max_gap.step)}"
    return words + _pace_words(summary)


def loop_words(loop: LoopSpec) -> str:
    """What the loop did otherwise than by default: figures with a cure or a spinning wait hold for a robot that has it too."""
    parts = []
    if loop.shape != "absolute":
        parts.append(f"shape {clean(loop.shape)}")
    if loop.wait == "hybrid":
        parts.append(f"wait hybrid, spinning {format_duration(loop.spin_margin_ns)} before each release")
    elif loop.wait != "sleep":
        parts.append(f"wait {clean(loop.wait)}, a whole processor")
    if loop.keep_warm != "none":
        parts.append(f"kept warm by {clean(loop.keep_warm)}")
    if loop.gc != "freeze":
        parts.append(f"Python's garbage collector {'as by default' if loop.gc == 'default' else clean(loop.gc)}")
    return "; ".join(parts)


def _pace_words(summary: Summary) -> str:
    """Steps that came too soon and bursts that caught up, where there were any."""
    early, bursts = summary.early_steps, summary.bursts_after_stall
    words = f"; {format_count(early)} early step{'s' * (early != 1)}, less than half a period after the one before"
    burst = f"; {format_count(bursts)} burst{'s' * (bursts != 1)} after a stall"
    return words * bool(early) + burst * bool(bursts)


def cold_words(summary: Summary) -> str:
    """Load, build and capture, then the first calls one by one; the interpreter's own start is in the first action's."""
    cold = summary.cold_start
    parts = [f"{clean(label)} {_short(ns)}" for label, ns in cold.rows if not label.startswith(_INTERPRETER)]
    parts += [f"{name} {_short(ns)}" for name, ns in zip(("first call", "second", "third"), cold.calls, strict=False)]
    if cold.first_action_ns is not None:
        parts.append(f"first action {_short(cold.first_action_ns)} after the start")
    text = ", ".join(parts)
    if text and cold.would_have_missed is not None and summary.period_ns:
        count = cold.would_have_missed
        text += f": {format_count(count)} release{'s' * (count != 1)} would have been missed with motors on"
    return text


def _short(ns: int) -> str:
    """A duration of the cold start: seen once, so without decimals that it can't have."""
    return f"{ns / MS:.0f} ms" if ns >= 10 * MS else format_duration(ns)


def outlier_words(outlier: Outlier) -> str:
    """One of the worst steps: when, how long, which part was long, what was recorded beside it."""
    parts = [f"release {format_count(outlier.step)}: {format_duration(outlier.response_ns)}, {outlier.kind}"]
    if outlier.skipped_after:
        parts.append(f"{format_count(outlier.skipped_after)} skipped after it")
    if outlier.wakeup_ns is not None:
        parts.append(f"wake-up {format_duration(outlier.wakeup_ns)}")
    elif outlier.backlog_ns:
        parts.append(f"backlog {format_duration(outlier.backlog_ns)}")
    parts.append(f"execution {format_duration(outlier.execution_ns)}")
    if outlier.gc_ns:
        parts.append(f"garbage collection {format_duration(outlier.gc_ns)}")
    for count, word in ((outlier.nivcsw, "involuntary switch"), (outlier.majflt, "major fault")):
        if count:
            parts.append(
                f"{format_count(count)} {word}{'es' * (count != 1 and word.endswith('ch')) or 's' * (count != 1)}"
            )
    if outlier.cpu is not None and outlier.cpu_before is not None and outlier.cpu != outlier.cpu_before:
        parts.append(f"moved from CPU {outlier.cpu_before} to {outlier.cpu}")
    cause = f" ({clean(outlier.cause)})" if outlier.kind == "late" else ""
    return ", ".join(parts) + cause
