"""Cold start: what happens before the policy answers at its usual pace (measurement.md §3 metric 20 and §12)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.conditions import mapping
from robot_perf.analyze.types import ColdStart
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run

__all__ = ["cold_start"]

_LABELS = {
    "process_ns": "process start",
    "modules_ns": "import of the harness",
    "import_ns": "import of the backend",
    "load_ns": "load of the policy",
}
_SINGLE_CALLS = 3
_LONGEST_NS = 2**53  # 104 days; a file that says more is damaged
_NOISE_NS = 5_000  # calls that differ by less are alike on any host


def cold_start(run: Run) -> ColdStart:
    """Rows before the first call from `conditions["cold_start"]`, then the first calls and the warm-up's calls.

    Keys that end in `_ns` become rows (`build_ns` is "build"); `first_calls_ns` holds the first calls' execution times.
    """
    told = mapping(run, "cold_start")
    rows = tuple(
        (_LABELS.get(key, key[: -len("_ns")].replace("_", " ")), int(value))
        for key, value in told.items()
        if key.endswith("_ns") and _is_duration(value)
    )
    listed = told.get("first_calls_ns")
    first = [ns for ns in listed if _is_duration(ns)] if isinstance(listed, (list, tuple)) else []
    calls, before_grid = _calls(run, first)
    warmup = mapping(run, "warmup")
    known = "steady_from_call" in warmup and not before_grid
    onset = _within(warmup["steady_from_call"], len(calls)) if known else _typical_from(calls)
    return ColdStart(
        rows=rows,
        calls=tuple(int(ns) for ns in calls[:_SINGLE_CALLS]),
        from_call=onset,
        steady_execution_ns=int(np.median(calls[onset - 1 :])) if onset is not None else None,
        would_have_missed=_would_have_missed(run, first[:before_grid]) if len(calls) else None,
        first_action_ns=sum(ns for _, ns in rows) + int(calls[0]) if rows and len(calls) else None,
    )


def _calls(run: Run, first: list[int]) -> tuple[NDArray[np.int64], int]:
    """Execution times of all calls before the window, and how many of them ran before the warm-up's grid.

    A recorder may list the warm-up's own first calls as `first_calls_ns`: the same durations are the same calls.
    """
    warmup = run.warmup
    done = warmup["end_ns"] != NOT_MEASURED
    paced = (warmup["end_ns"] - warmup["start_ns"])[done]
    if first and first == paced[: len(first)].tolist():
        return paced, 0
    return np.concatenate((np.asarray(first, np.int64), paced)), len(first)


def _is_duration(value: object) -> bool:
    return type(value) is int and 0 <= value < _LONGEST_NS


def _within(call: object, count: int) -> int | None:
    return call if isinstance(call, int) and 1 <= call <= count else None


def _typical_from(calls: NDArray[np.int64]) -> int | None:
    """The first 1-based call j that is not above Q3 + 1.5 IQR of the calls after it; None if none is."""
    for i in range(len(calls) - _SINGLE_CALLS):
        q1, q3 = np.quantile(calls[i + 1 :], [0.25, 0.75])
        if calls[i] <= q3 + 1.5 * (q3 - q1) + _NOISE_NS:
            return i + 1
    return None


def _would_have_missed(run: Run, before: list[int]) -> int:
    """Releases missed by the calls before the window: each late job and those that fall into it.

    Warm-up runs in several grids, so the releases that fall into a job are counted from its own release.
    """
    period, deadline = run.loop.period_ns, run.loop.deadline_ns
    if period == 0:
        return 0
    warmup = run.warmup
    done = warmup["end_ns"] != NOT_MEASURED
    response = np.concatenate((np.asarray(before, np.int64), (warmup["end_ns"] - warmup["release_ns"])[done]))
    fallen = np.maximum(-(-response // period) - 1, 0)
    return int(np.count_nonzero(response > deadline)) + int(fallen.sum()) + int(np.count_nonzero(~done))
