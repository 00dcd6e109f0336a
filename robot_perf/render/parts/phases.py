"""Where a device policy's execution goes, in one sentence: the medians of the pass with marked phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_perf.analyze.explain.phases import PHASES, phases_of
from robot_perf.render.lines import clean
from robot_perf.run.model import Run
from robot_perf.units import NS_PER_S, format_count, format_duration

__all__ = ["PHASE_WORDS", "phase_words"]

PHASE_WORDS = dict(
    zip(PHASES, ("host prepare", "H2D", "policy", "D2H", "host finish", "queueing", "waiting"), strict=True)
)
_ON_THE_HOST = ("launch", "wait")


def phase_words(run: Run) -> str:
    """The sentence. Of a device's Run without phases the reason; empty for a host's, which has none to tell apart."""
    found = phases_of(run.conditions)
    if found is None:
        return _why_none(run)
    if not found.p50_ns:
        return f"none: {clean(found.reason)}"
    device, host = (
        ", ".join(
            f"{PHASE_WORDS[n]} {format_duration(ns) if ns else 0}"
            for n, ns in found.p50_ns.items()
            if (n in _ON_THE_HOST) == on
        )
        for on in (False, True)
    )
    source = f"from a pass of their own after the run, {format_count(found.steps)} steps {_rate(run)}"
    return "; ".join(w for w in (f"p50 {device}" if device else "", f"on the host {host}" if host else "", source) if w)


def _rate(run: Run) -> str:
    if not run.loop.period_ns:
        return "back to back"
    return f"at {clean(run.conditions.get('rate_hz') or f'{NS_PER_S / run.loop.period_ns:g}')} Hz"


def _why_none(run: Run) -> str:
    facts, backend = run.conditions.get("backend_facts") or {}, run.conditions.get("backend")
    named: Mapping[str, Any] = backend if isinstance(backend, Mapping) else {"name": backend}
    device = str(facts.get("device") or (named.get("options") or {}).get("device") or "cpu")
    if not device.startswith("cuda") or not len(run.measured["step"]):
        return ""
    if run.conditions.get("state", "complete") != "complete":
        return "none: the run was ended before the pass that marks them"
    return f"none: backend {clean(named.get('name', '?'))} marked none in this run"
