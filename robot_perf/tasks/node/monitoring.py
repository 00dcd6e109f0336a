"""What the monitor says of a watched topic: its report, its diagnostics once a second, its last words. No ROS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robot_perf.analyze import arrivals
from robot_perf.analyze.distribution import distribution
from robot_perf.measure.node.levels import STALE, Level
from robot_perf.measure.node.watching import OwnCost, Watched, latency_by_stamp
from robot_perf.specs import to_json

RECENT = 1000  # arrivals of the diagnostics
_GAP_WARN, _GAP_ERROR = 2.5, 10.0  # periods


def report(
    output: Watched, inputs: Watched | None, asked: Mapping[str, Any], own: OwnCost, now_ns: int
) -> dict[str, Any]:
    """Everything seen so far as JSON. `asked` are the monitor's parameters."""
    outputs = np.array(output.arrivals, dtype=np.int64)
    seen = arrivals.view(
        outputs,
        period_ns=round(1e9 / asked["rate"]) if asked["rate"] else None,
        releases=asked["releases"] or None,
        miss_rate=asked["miss_rate"],
        confidence=asked["confidence"],
        lost=output.lost or 0,
    )
    return {
        "schema": "robot-perf/monitor-1",
        "output": {**_counts(output), "deadline_events": output.deadline_events},
        "input": None if inputs is None else _counts(inputs),
        "view": None if seen is None else to_json(seen),
        "age_since_last_output_ns": now_ns - int(outputs[-1]) if len(outputs) else None,
        "latency": _latency(output, inputs, asked["match"]),
        "own": to_json(own),
    }


def _counts(watched: Watched) -> dict[str, Any]:
    """`publishers` and `lost` are the middleware's word, null where it says nothing."""
    return {
        "topic": watched.topic, "received": watched.received, "publishers": watched.publishers, "lost": watched.lost
    }  # fmt: skip


def _latency(output: Watched, inputs: Watched | None, match: str) -> dict[str, Any] | None:
    if inputs is None or not output.arrivals or not inputs.arrivals:
        return None
    if match == "order":
        text = "newest input before each output, at the observer"
        values = arrivals.latency_by_order(np.array(inputs.arrivals, np.int64), np.array(output.arrivals, np.int64))
    else:
        text = "equal header stamps, at the observer"
        values = np.array(latency_by_stamp(inputs, output), dtype=np.int64)
    found: dict[str, Any] = to_json(distribution("input-to-output latency", text, values, np.arange(len(values))))
    return found


class Health:
    """The level of a watched topic, from its largest recent gap in periods, with hysteresis."""

    def __init__(self) -> None:
        self._gap = Level()

    def look(
        self, output: Watched, inputs: Watched | None, rate_hz: float, own: OwnCost, now_ns: int
    ) -> tuple[int, str, dict[str, str]]:
        """(level, one sentence, one number per key with its unit). A topic that stopped has a gap that grows."""
        recent = np.array(output.newest(RECENT), dtype=np.int64)
        gaps = np.diff(recent)
        period_ns = 1e9 / rate_hz if rate_hz else float(np.median(gaps)) if len(gaps) > 1 else None
        age_ns = now_ns - int(recent[-1]) if len(recent) else None
        gap_ns = None if age_ns is None else max(int(gaps.max(initial=0)), age_ns)
        values = {
            "messages": str(output.received),
            f"period mean, last {RECENT} (ms)": _ms(float(gaps.mean()) if len(gaps) else None),
            f"max gap, last {RECENT} (ms)": _ms(gap_ns),
            "age (ms)": _ms(age_ns),
            "inputs": "" if inputs is None else str(inputs.received),
            "deadline events": str(output.deadline_events),
            "publishers": "" if output.publishers is None else str(output.publishers),
            "lost on the way here": "" if output.lost is None else str(output.lost),
            "own cost per message (us)": "" if own.cpu_ns_per_message is None else f"{own.cpu_ns_per_message / 1e3:.2f}",
            "own processor share": f"{own.cpu_share:.4f}",
        }  # fmt: skip
        if gap_ns is None:
            return STALE, f"nothing received on {output.topic}", values
        if not period_ns:
            return self._gap.value, "arrives", values
        level = self._gap.look(gap_ns / period_ns, _GAP_WARN, _GAP_ERROR)
        text = f"largest gap {gap_ns / 1e6:.1f} ms at a period of {period_ns / 1e6:.3g} ms"
        return level, text if level else "arrives in time", values


def _ms(value_ns: float | None) -> str:
    return "" if value_ns is None else f"{value_ns / 1e6:.4f}"


def last_words(document: Mapping[str, Any]) -> str:
    """A report in one line, the observer's own cost included."""
    seen, own, output = document["view"], document["own"], document["output"]
    if seen is None:
        return f"{output['received']} messages on {output['topic']}: too few to say anything"
    lost = f" ({output['lost']} more were lost on the way here)" if output["lost"] else ""
    grid = (
        ""
        if seen["has_grid"]
        else " (its arrivals keep to no grid: gaps are told by distance; give its rate if it has one)"
    )
    return (
        f"{output['topic']}: {seen['received']} messages{lost} on {seen['releases']} releases, misses {seen['misses_low']} to {seen['misses_high']}: "
        f"{seen['status']} (seen from outside){grid}; largest gap {seen['max_gap_ns'] / 1e6:.2f} ms; own cost "
        f"{own['cpu_ns_per_message'] / 1e3:.1f} us a message, {own['cpu_share']:.1%} of a processor"
    )
