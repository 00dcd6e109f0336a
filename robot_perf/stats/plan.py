"""How many releases a verdict needs, before anything runs (measurement.md §7 "Planning", §9, §10)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from scipy import optimize as _optimize
from scipy import stats as _scipy

from robot_perf.stats.binomial import Thresholds, thresholds, upper_bound
from robot_perf.stats.burst import design_effect

__all__ = ["PlanRow", "independent_steps", "plan_rows", "plan_steps", "steps_to_pass"]


def independent_steps(miss_rate: float, confidence: float, allowed: int = 0) -> int:
    """Smallest n with which `allowed` independent misses still prove the miss rate: P(Bin(n, p0) <= allowed) <= 1-c."""
    if not (0 < miss_rate < 1 and 0 < confidence < 1 and allowed >= 0):
        raise ValueError(f"no plan for miss rate {miss_rate}, confidence {confidence}, {allowed} misses")

    def proves(n: int) -> bool:
        return float(_scipy.binom.cdf(allowed, n, miss_rate)) <= 1 - confidence

    high = max(allowed + 1, math.ceil(math.log1p(-confidence) / math.log1p(-miss_rate)))
    while not proves(high):
        high *= 2
    low = allowed  # n = allowed proves nothing: every trial may miss
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if proves(middle) else (middle, high)
    return high


def plan_steps(miss_rate: float, confidence: float, *, allowed: int = 0, burst: float = 1.0) -> int:
    """Releases of a run that passes with `allowed` overruns of up to `burst` misses: 2L-1 times the independent n."""
    deff = design_effect(burst)
    return steps_to_pass(allowed * deff, miss_rate, confidence, deff)


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One length of run and what it decides. `allowed` counts overruns at the assumed burst."""

    allowed: int
    steps: int
    duration_ns: int
    thresholds: Thresholds


def plan_rows(
    miss_rate: float, confidence: float, period_ns: int, *, burst: float = 1.0, most: int = 5
) -> list[PlanRow]:
    """Rows for 0..`most` allowed overruns: releases, duration, and the miss counts that pass or fail."""
    rows = []
    for allowed in range(most + 1):
        steps = plan_steps(miss_rate, confidence, allowed=allowed, burst=burst)
        decides = thresholds(miss_rate, steps, confidence, deff=design_effect(burst))
        rows.append(PlanRow(allowed, steps, steps * period_ns, decides))
    return rows


@lru_cache(maxsize=1024)
def steps_to_pass(misses: float, miss_rate: float, confidence: float, deff: float) -> int:
    """Releases of a new run that would PASS with as many misses and the same design effect; what a plan says too.

    Whole independent observations, the fewest that pass, times `deff`: up to `deff` - 1 above the smallest that would do.
    """
    k = misses / deff
    if k == round(k):
        return math.ceil(deff * independent_steps(miss_rate, confidence, round(k)))
    # the bound falls monotonically in n; bracket n/deff and solve, then settle on whole observations
    low = high = max(k + 1, math.log1p(-confidence) / math.log1p(-miss_rate))
    while upper_bound(k, high, confidence) > miss_rate:
        low, high = high, 2 * high
    root = (
        high
        if low == high
        else _optimize.brentq(lambda n: upper_bound(k, n, confidence) - miss_rate, low, high, xtol=0.01)
    )
    observations = max(math.ceil(k), math.floor(root) - 1)
    while upper_bound(k, observations, confidence) > miss_rate:
        observations += 1
    return math.ceil(deff * observations)
