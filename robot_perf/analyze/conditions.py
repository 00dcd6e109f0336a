"""Reads of a Run's conditions that may come from a damaged or hand-made file: a wrong kind of value is one clear error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.errors import RunFileError
from robot_perf.run.model import Run

__all__ = ["check_run", "mapping", "sequence"]

_LONGEST_NS = 10**17  # three years: sums of such durations still fit an int64
_MOST_STEPS = 10**9
_LATEST_NS = 2**60  # 36 years after the host's start


def mapping(run: Run, key: str) -> Mapping[str, Any]:
    """The object under `key`; empty where it is absent or null. Raises RunFileError for anything else."""
    value = run.conditions.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _damaged(key, value, "an object")
    return value


def sequence(run: Run, key: str) -> Sequence[Any]:
    """The list under `key`; empty where it is absent or null. Raises RunFileError for anything else."""
    value = run.conditions.get(key)
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise _damaged(key, value, "a list")
    return value


def check_run(run: Run) -> None:
    """Raises RunFileError where a Run holds what no run can have asked for or recorded."""
    _check_stamps(run)
    _check_request(run)


def _check_stamps(run: Run) -> None:
    """What is left can be added and subtracted in an int64; whether it makes sense is the verdict's business."""
    for name in ("step", "release_ns", "wake_ns", "start_ns", "end_ns"):
        column = run.columns[name]
        limit = _MOST_STEPS if name == "step" else _LATEST_NS
        bad = np.flatnonzero((column > limit) | (column < -limit))
        if len(bad):
            raise RunFileError(
                f"the Run's column {name} is damaged",
                why=f"Row {bad[0]} holds {column[bad[0]]:,}; allowed: up to {limit:,} either way.",
            )


def _check_request(run: Run) -> None:
    try:
        loop, budget = run.loop, run.budget
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"{type(error).__name__}: {error}"
        raise RunFileError("the Run's conditions loop or budget are damaged", detail=detail) from None
    _whole("loop.period_ns", loop.period_ns, 0, _LONGEST_NS)
    _whole("loop.deadline_ns", loop.deadline_ns, 0, _LONGEST_NS)
    _whole("loop.steps", loop.steps, 0, _MOST_STEPS)
    if loop.overrun not in ("skip", "queue"):
        raise _damaged("loop.overrun", loop.overrun, "skip or queue")
    furthest = max(loop.steps, int(np.abs(run.columns["step"]).max()) if len(run.columns["step"]) else 0)
    if furthest * max(loop.period_ns, 1) > _LATEST_NS:
        raise _damaged("loop.steps", loop.steps, "fewer at this period")
    _share("budget.miss_rate", budget.miss_rate)
    _share("budget.confidence", budget.confidence)
    burst = budget.assumed_burst
    if not isinstance(burst, (int, float)) or not math.isfinite(burst) or not 0 <= burst <= 1e6:
        raise _damaged("budget.assumed_burst", burst, "a number from 1 to 1,000,000")
    if budget.m_in_k is not None:
        _whole("budget.m_in_k", budget.m_in_k[0], 0, _MOST_STEPS)
        _whole("budget.m_in_k", budget.m_in_k[1], 1, _MOST_STEPS)
    if budget.max_consecutive_misses is not None:
        _whole("budget.max_consecutive_misses", budget.max_consecutive_misses, 0, _MOST_STEPS)
    if budget.release_jitter_limit_ns is not None:
        _whole("budget.release_jitter_limit_ns", budget.release_jitter_limit_ns, 0, _LONGEST_NS)
    if not isinstance(budget.percentile_limits_ns, Mapping):
        raise _damaged("budget.percentile_limits_ns", budget.percentile_limits_ns, "an object")
    for name, limit_ns in budget.percentile_limits_ns.items():
        _whole(f"budget.percentile_limits_ns.{name}", limit_ns, 0, _LONGEST_NS)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _damaged(name, value, f"a whole number from {low:,} to {high:,}")


def _share(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or not 0 < value < 1:
        raise _damaged(name, value, "a number above 0 and below 1")


def _damaged(name: str, value: Any, allowed: str) -> RunFileError:
    return RunFileError(f"the Run's condition {name} is damaged", why=f"Got {value!r:.80}, allowed: {allowed}.")
