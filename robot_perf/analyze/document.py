"""The JSON document of `robot-perf deadline --json`: the contract that scripts rely on (docs/metrics.md, "JSON")."""

from __future__ import annotations

import math
from typing import Any

from robot_perf.analyze.distribution import distribution
from robot_perf.analyze.explain.soak import soak_of
from robot_perf.analyze.metrics import OVERLOAD, harness, offered_load, response, response_executed, wakeup
from robot_perf.analyze.timeline import timeline
from robot_perf.analyze.types import SKIPPED, Distribution
from robot_perf.analyze.verdict import judge
from robot_perf.run.model import SCHEMA, Run
from robot_perf.specs import to_json
from robot_perf.units import US

__all__ = ["deadline_document"]

_KEYS = ("p50", "p90", "p99", "p99.9")


def deadline_document(run: Run) -> dict[str, Any]:
    """The document: verdict, percentiles in µs with the reason for each that has no value, conditions.

    A value is never NaN or infinite: it is null, and `<metric>_reason` says why.
    """
    line = timeline(run)
    load = offered_load(line)
    growing = load is not None and load[0] > 1 and line.overrun == "queue"
    document: dict[str, Any] = {"schema": SCHEMA, "verdict": to_json(judge(run))}
    if load is not None and load[0] > 1:
        document["warning"] = OVERLOAD
    execution = distribution("execution time", "", line.execution_ns, line.step)
    metrics = {
        "response_us": response(line, growing=growing),
        "response_executed_us": response_executed(line, growing=growing),
        "wakeup_us": wakeup(line),
        "execution_us": execution,
        "harness_us": harness(run, line),
    }
    for key, values in metrics.items():
        document[key], document[f"{key}_reason"] = _percentiles(values)
    if (soak := soak_of(run)) is not None:
        document["soak"] = to_json(soak)
    document["conditions"] = _finite(to_json(dict(run.conditions)))
    return document


def _finite(value: Any) -> Any:
    """Conditions as JSON can hold them: a float that isn't finite (only a hand-made file has one) is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _percentiles(d: Distribution) -> tuple[dict[str, float | None], dict[str, str]]:
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for key in _KEYS:
        quantile = d.quantile(key)
        values[key] = None if quantile.value is None else quantile.value / US
        if quantile.value is None:
            reasons[key] = quantile.reason or "no value"
    values["max"] = None if d.max is None else d.max / US
    if d.max is None:
        reasons["max"] = d.reason or (SKIPPED if d.infinite else "no samples")
    return values, reasons
