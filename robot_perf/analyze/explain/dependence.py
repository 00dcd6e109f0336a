"""Are the steps independent and steady? Diagnostics and labels, which never fail a run (measurement.md §10, §12)."""

from __future__ import annotations

import numpy as np

from robot_perf.analyze.conditions import mapping, sequence
from robot_perf.analyze.timeline import Timeline
from robot_perf.analyze.types import Dependence
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run
from robot_perf.stats.burst import MissRuns
from robot_perf.stats.contrast import mann_whitney
from robot_perf.stats.dependence import rank_ljung_box, runs_test

__all__ = ["dependence", "labels"]

_LAGS = 10
# (shift of the median, Mann-Whitney p): short runs shift by chance, and long ones make a trifle significant
_DRIFT = ((0.05, 0.05), (0.01, 0.01))
# a shift of the response from which on our own work's is held beside it: that one scatters by some per cent
_TOLD = 0.1


def dependence(run: Run, line: Timeline) -> Dependence:
    """Autocorrelation and Ljung-Box of the ranks, runs test and first half against second half of the executed steps' response.

    And of the harness's own work beside it, a yardstick of the processor's speed.
    """
    response = line.response_ns
    box = rank_ljung_box(response, _LAGS)
    test = runs_test(response) if len(response) else None
    half = len(response) // 2
    first, second = response[:half], response[half:]
    medians = (int(np.median(first)), int(np.median(second))) if half else None
    return Dependence(
        n=len(response),
        lag1=box.lag1 if box else None,
        ljung_box_q=box.q if box else None,
        ljung_box_p=box.p_value if box else None,
        ljung_box_lags=_LAGS,
        runs_z=test.z if test else None,
        runs_p=test.p_value if test else None,
        first_half_median_ns=medians[0] if medians else None,
        second_half_median_ns=medians[1] if medians else None,
        half_shift=medians[1] / medians[0] - 1 if medians and medians[0] > 0 else None,
        half_p=mann_whitney(first, second) if half else None,
        own_shift=_own_shift(run, line, half),
    )


def _own_shift(run: Run, line: Timeline, half: int) -> float | None:
    if "own_ns" not in run.columns:
        return None
    own = run.columns["own_ns"][line.rows]
    first, second = (part[part != NOT_MEASURED] for part in (own[:half], own[half:]))
    if not (len(first) and len(second)) or np.median(first) <= 0:
        return None
    return float(np.median(second) / np.median(first)) - 1


def labels(run: Run, runs: MissRuns, depends: Dependence) -> tuple[str, ...]:
    """Words on the result: the recorder's own (`conditions["labels"]`), then drift and few miss runs."""
    found = [str(label) for label in sequence(run, "labels")]
    shift, p = depends.half_shift, depends.half_p
    if shift is not None and p is not None and any(abs(shift) > least and p < level for least, level in _DRIFT):
        words = f"drift (thermal?): median response {shift:+.0%} from the first half to the second"
        found.append(words + _with_the_processor(shift, depends.own_shift))
    if mapping(run, "warmup").get("settled") is False:
        found.append("warm-up not settled")
    if runs.few:
        found.append("few miss runs")
    return tuple(dict.fromkeys(found))


def _with_the_processor(shift: float, own_shift: float | None) -> str:
    """Where our own work, the same in each step and on no device, went the same way at least half as far: it is the processor."""
    if own_shift is None or abs(shift) < _TOLD or shift * own_shift <= 0 or abs(own_shift) < abs(shift) / 2:
        return ""
    return f", our own work between the steps {own_shift:+.0%} with it: the processor's doing, its clock or caches"
