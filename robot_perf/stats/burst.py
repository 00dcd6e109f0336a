"""Misses that come together: runs of misses, the design effect, and how likely runs are by chance (measurement.md §10).

The unit of evidence is the overrun, not the miss: under `skip` with D = T each overrun costs at least two misses, the
late job and the dropped release. With L misses per run, `deff = max(1, 2L - 1)` and a bound takes k/deff of n/deff.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FEW_RUNS",
    "MissRuns",
    "default_burst",
    "design_effect",
    "miss_runs",
    "probability_of_run",
    "probability_of_window",
    "worst_window",
]

FEW_RUNS = 10  # below this many miss runs the simulated coverage of the corrected bound falls under 0.93
_MAX_STATES = 256  # a denser transition matrix costs seconds


@dataclass(frozen=True, slots=True)
class MissRuns:
    """Misses grouped into maximal runs of consecutive releases."""

    misses: int
    runs: int
    longest: int
    longest_at: int | None  # release at which the longest run (the first of equals) begins

    @property
    def mean_length(self) -> float | None:
        """L, misses per run; None without a miss, when there is no information on clustering."""
        return self.misses / self.runs if self.runs else None


def miss_runs(miss: NDArray[np.bool_]) -> MissRuns:
    """Runs of True in one flag per release."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], miss, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return MissRuns(0, 0, 0, None)
    lengths = ends - begins
    worst = int(np.argmax(lengths))
    return MissRuns(int(lengths.sum()), len(lengths), int(lengths[worst]), int(begins[worst]))


def design_effect(burst: float) -> float:
    """max(1, 2L - 1): the variance of a count whose run lengths are geometric with mean L, over a binomial's."""
    return max(1.0, 2 * burst - 1)


def default_burst(overrun: str, deadline_ns: int, period_ns: int) -> float:
    """Misses per overrun that a verdict assumes unless told: 2 (late job, dropped release) under `skip`, D >= T."""
    return 2.0 if overrun == "skip" and deadline_ns >= period_ns else 1.0


def worst_window(miss: NDArray[np.bool_], window: int) -> tuple[int, int] | None:
    """(most misses in any `window` consecutive releases, release at which that window begins); None if n < window."""
    if window < 1:
        raise ValueError(f"a window of {window} releases")
    if len(miss) < window:
        return None
    total = np.concatenate(([0], np.cumsum(miss, dtype=np.int64)))
    counts = total[window:] - total[:-window]
    at = int(np.argmax(counts))
    return int(counts[at]), at


def probability_of_run(n: int, p: float, length: int) -> float:
    """P(some run of at least `length` misses in n releases), misses independent with probability p.

    g(i) = g(i-1) + (1-p) p**r (1 - g(i-r-1)): a run of r ends at i for the first time. Only positive terms are
    added, so a tiny probability keeps its digits.
    """
    if length < 1:
        raise ValueError(f"a run of {length} misses")
    if n < length or p <= 0:
        return 0.0
    if length <= 64:
        return _absorbed(_run_matrix(p, length), n)
    ends_here = (1 - p) * p**length
    g = [0.0] * length + [p**length]
    for i in range(length + 1, n + 1):
        g.append(g[i - 1] + ends_here * (1 - g[i - length - 1]))
    return min(1.0, g[n])


def _run_matrix(p: float, length: int) -> NDArray[np.float64]:
    """States 0..r-1: misses at the end so far; state r is absorbing."""
    matrix = np.zeros((length + 1, length + 1))
    matrix[:length, 0] = 1 - p
    matrix[np.arange(length), np.arange(1, length + 1)] = p
    matrix[length, length] = 1
    return matrix


def probability_of_window(n: int, p: float, m: int, window: int) -> float | None:
    """P(some window of `window` consecutive releases has more than m misses), misses independent with probability p.

    An exact Markov chain over the positions of the last window-1 outcomes' misses. None where it has too many states
    (a long window with a large m).
    """
    if window < 1 or m < 0:
        raise ValueError(f"({m}, {window}) is no window requirement")
    if m >= window or p <= 0 or n <= m:
        return 0.0
    if sum(math.comb(window - 1, j) for j in range(min(m, window - 1) + 1)) > _MAX_STATES:
        return None
    # a state is the ages (0 = latest) of the misses among the last window-1 releases, at most m of them
    ages = range(window - 1)
    states = [c for j in range(min(m, window - 1) + 1) for c in combinations(ages, j)]
    index = {state: i for i, state in enumerate(states)}
    absorbing = len(states)
    matrix = np.zeros((absorbing + 1, absorbing + 1))
    matrix[absorbing, absorbing] = 1
    for state, i in index.items():
        older = tuple(age + 1 for age in state if age + 1 < window - 1)
        with_miss = (0, *older) if window > 1 else ()
        matrix[i, index[older]] += 1 - p
        matrix[i, absorbing if len(state) + 1 > m else index[with_miss]] += p
    return _absorbed(matrix, n)


def _absorbed(matrix: NDArray[np.float64], n: int) -> float:
    return min(1.0, float(np.linalg.matrix_power(matrix, n)[0, -1]))
