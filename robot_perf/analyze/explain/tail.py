"""An advisory look beyond the sample: a Pareto tail, shown only where its conditions hold (measurement.md §11).

It never enters a verdict. A stall that the run did not contain is not in its tail: with one stall in 10,000 steps, three
runs of 3,000 in four see none, and their fitted tails say nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robot_perf.analyze.timeline import Timeline, timeline
from robot_perf.run.model import Run
from robot_perf.stats.contrast import mann_whitney
from robot_perf.stats.dependence import ljung_box
from robot_perf.stats.ranks import Sample, parse_percentile
from robot_perf.stats.tail import ParetoFit, decluster, fit_pareto, quantile_interval

__all__ = ["TailAdvice", "TailPoint", "tail_advice"]

_THRESHOLD = "p95"
_EXCEEDANCES = 50
_CLUSTER_GAP = 5  # steps: exceedances this close count as one event
_INDEPENDENT = 0.01  # least Ljung-Box p after declustering
_SHIFT = 0.05
_HEAVIEST = 0.5  # upper end of the xi interval: beyond it the variance is infinite
_BEYOND = 10  # times 1/n


@dataclass(frozen=True, slots=True)
class TailPoint:
    """The response time exceeded once in `one_in` executed steps, ns, with its interval."""

    one_in: int
    low_ns: int
    value_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True)
class TailAdvice:
    """Advisory. `points` is empty and `reason` says why where a display condition fails."""

    reason: str | None
    n: int
    threshold_ns: int | None
    exceedances: int  # after declustering
    xi: float | None
    xi_low: float | None
    xi_high: float | None
    sigma_ns: float | None
    points: tuple[TailPoint, ...]
    confidence: float


def tail_advice(run: Run, confidence: float = 0.95) -> TailAdvice:
    """A generalised Pareto fit to the response of executed steps above their p95, if every condition of §11 holds."""
    line = timeline(run)
    n = line.executed
    if not n:
        return TailAdvice("no samples", 0, None, 0, None, None, None, None, (), confidence)
    response = line.response_ns.astype(np.float64)
    threshold = Sample.of(line.response_ns).percentile(parse_percentile(_THRESHOLD))
    peaks = decluster(response > threshold, response, _CLUSTER_GAP)
    refusal = _refuse_sample(line, peaks)
    if refusal is not None:
        return TailAdvice(refusal, n, int(threshold), len(peaks), None, None, None, None, (), confidence)
    fit = fit_pareto(peaks - threshold)
    low, high = fit.xi_interval(confidence)
    reason = _refuse_fit(fit, high)
    points: tuple[TailPoint, ...] = ()
    if reason is None:
        share = float(np.count_nonzero(response > threshold)) / n
        points = tuple(_point(fit, threshold, share, n, one_in, confidence) for one_in in (n, _BEYOND * n))
    return TailAdvice(reason, n, int(threshold), len(peaks), fit.xi, low, high, fit.sigma, points, confidence)


def _point(fit: ParetoFit, threshold: float, share: float, n: int, one_in: int, confidence: float) -> TailPoint:
    low, value, high = quantile_interval(fit, threshold, share, n, 1 - 1 / one_in, confidence)
    return TailPoint(one_in, int(low), int(value), int(high))


def _refuse_sample(line: Timeline, peaks: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str | None:
    if len(peaks) < _EXCEEDANCES:
        return f"only {len(peaks)} separate exceedances of {_THRESHOLD} (needs {_EXCEEDANCES})"
    if np.ptp(peaks) == 0:
        return f"the responses above {_THRESHOLD} are all equal"
    box = ljung_box(peaks)
    if box is not None and box.p_value <= _INDEPENDENT:
        return f"exceedances depend on one another (Ljung-Box p {box.p_value:.2g})"
    half = len(line.response_ns) // 2
    first, second = line.response_ns[:half], line.response_ns[half:]
    shift = float(np.median(second) / np.median(first) - 1)
    if abs(shift) > _SHIFT and mann_whitney(first, second) < _INDEPENDENT:
        return f"the response time drifted by {shift * 100:+.0f} % between the halves"
    return None


def _refuse_fit(fit: ParetoFit, xi_high: float) -> str | None:
    if fit.xi <= -0.5:
        return f"the fit is irregular (xi {fit.xi:.2f}): the tail seems to end at the sample's maximum"
    if xi_high >= _HEAVIEST:
        return f"the tail may be too heavy to extrapolate (xi up to {xi_high:.2f}, allowed below {_HEAVIEST})"
    return None
