"""What so many releases with such misses say about a miss rate (measurement.md §9, §10): pure counts, no Run.

PASS iff the upper bound of the miss rate is within the budget, FAIL iff the lower one is beyond it. Both bounds take
the overrun, not the miss, as the unit of evidence: k/deff misses of n/deff releases. deff is max(1, 2L - 1), where L
is the larger of the observed and the assumed number of misses per overrun (of hits, where most releases miss), or the
dispersion of the misses per window where that is larger: overruns that come together with hits between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from robot_perf.specs import Budget
from robot_perf.stats.binomial import lower_bound, upper_bound
from robot_perf.stats.burst import MissRuns, design_effect

__all__ = ["MissEvidence", "assumption", "judge_misses", "rarer_run_length"]


@dataclass(frozen=True, slots=True)
class MissEvidence:
    """What n releases say about the miss rate. Bounds are None where n = 0."""

    status: str
    releases: int
    runs: MissRuns
    burst: float  # L: the larger of observed and assumed
    deff: float
    upper: float | None
    lower: float | None
    plain_upper: float | None
    plain_lower: float | None
    clustered: bool  # only the plain bound passes

    @property
    def window(self) -> int | None:
        """Releases within which the misses cluster, where that and not L decides `deff`."""
        return self.runs.window if self.deff > design_effect(self.burst) else None


def judge_misses(runs: MissRuns, releases: int, budget: Budget) -> MissEvidence:
    """The miss-rate part of a verdict: pure counts, so that a plan and a simulation judge as a run is judged."""
    burst = max(budget.assumed_burst, rarer_run_length(runs, releases))
    deff = max(design_effect(burst), runs.dispersion)
    if releases == 0:
        return MissEvidence("INCONCLUSIVE", 0, runs, burst, deff, None, None, None, None, False)
    k, n, c = runs.misses, releases, budget.confidence
    upper, lower = upper_bound(k / deff, n / deff, c), lower_bound(k / deff, n / deff, c)
    plain_upper, plain_lower = upper_bound(k, n, c), lower_bound(k, n, c)
    if upper <= budget.miss_rate:
        status = "PASS"
    elif lower > budget.miss_rate:
        status = "FAIL"
    else:
        status = "INCONCLUSIVE"
    clustered = status == "INCONCLUSIVE" and plain_upper <= budget.miss_rate
    return MissEvidence(status, n, runs, burst, deff, upper, lower, plain_upper, plain_lower, clustered)


def rarer_run_length(runs: MissRuns, releases: int) -> float:
    """Mean run length of whichever is rarer, misses or hits: what the bounds take as one observation.

    Where most releases miss, a run of misses is no burst but the rule, and counting it as one observation would leave a
    loop that missed every single release INCONCLUSIVE. The two-state chain behind deff = 2L - 1 is symmetric in the two.
    """
    hits = releases - runs.misses
    if runs.misses <= hits:
        return runs.mean_length or 1.0
    # Between m runs of misses lie m - 1 to m + 1 runs of hits: the fewest give the longest, the careful side.
    return hits / max(1, runs.runs - 1)


def assumption(evidence: MissEvidence, budget: Budget) -> str:
    """What the bounds assume about bursts, in words: part of every verdict's reason."""
    observed, floor = evidence.runs.mean_length, budget.assumed_burst
    if evidence.window is not None:
        like = (evidence.deff + 1) / 2
        text = f"misses come together within {evidence.window} releases, and count like bursts of {like:.3g}"
    elif 2 * evidence.runs.misses > evidence.releases:
        text = f"most releases missed, and hits come in runs of {evidence.burst:.3g}"
    elif observed is not None and observed > floor:
        text = f"assumes {observed:.3g} misses per overrun, as observed"
    else:
        text = f"assumes {floor:g} misses per overrun" if floor > 1 else "assumes independent misses"
    if evidence.clustered and observed is not None:
        text = f"misses are clustered; {text}"
    return f"{text}; few miss runs, bound may be optimistic" if evidence.runs.few else text
