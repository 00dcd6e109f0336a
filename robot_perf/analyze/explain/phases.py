"""The medians of the pass with marked phases: where a device policy's execution goes (`measure/window/phases.py` makes it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from robot_perf.stats.ranks import Sample, not_estimable, smallest_n

__all__ = ["PHASES", "Phases", "phases_of"]

# In the order they happen. The host queues and waits while the device copies and computes: `launch` and `wait` overlap the others.
PHASES = ("host_prepare", "h2d", "policy", "d2h", "host_finish", "launch", "wait")
_HALF = Fraction(1, 2)
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Phases:
    """p50 of each phase, ns, over `steps` steps that are none of the window's; without medians `reason` says why."""

    steps: int
    p50_ns: dict[str, int]
    reason: str = ""


def phases_of(conditions: Mapping[str, Any]) -> Phases | None:
    """The medians of a Run's conditions; None where no pass was made. What is damaged counts as not measured."""
    found = conditions.get("phases")
    if not isinstance(found, Mapping):
        return None
    if found.get("reason"):
        return Phases(0, {}, str(found["reason"]))
    columns = found.get("columns")
    known = {} if not isinstance(columns, Mapping) else {name: _values(columns.get(f"{name}_ns")) for name in PHASES}
    steps = max((len(values) for values in known.values()), default=0)
    least = smallest_n(_HALF, _CONFIDENCE)
    medians = {n: int(Sample.of(np.array(v, np.int64)).percentile(_HALF)) for n, v in known.items() if len(v) >= least}
    return Phases(steps, medians, "" if medians else f"p50 is {not_estimable(_HALF)}, its pass had {steps}")


def _values(column: Any) -> list[int]:
    """What was measured: -1 and what is no whole number are not."""
    if not isinstance(column, Sequence) or isinstance(column, str):
        return []
    return [v for v in column if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63]
