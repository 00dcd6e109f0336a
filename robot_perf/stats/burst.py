"""Misses that come together: runs of misses, the design effect, and how likely runs are by chance (measurement.md §10).

The unit of evidence is the overrun, not the miss: under `skip` with D = T each overrun costs at least two misses, the
late job and the dropped release. With L misses per run, `deff = max(1, 2L - 1)` and a bound takes k/deff of n/deff.
Overruns come together too, with hits between them, which L can't see: so deff is also at least the variance of the
misses per window over that of as many misses spread at random (`MissRuns.dispersion`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FEW_RUNS",
    "MOST_BURST",
    "MissRuns",
    "default_burst",
    "design_effect",
    "miss_runs",
    "probability_of_run",
    "probability_of_window",
    "worst_window",
]

FEW_RUNS = 10  # below this many separate miss runs the simulated coverage of the corrected bound falls under 0.92
MOST_BURST = 1e6  # longest burst that a verdict can assume
_SHORTEST_WINDOW = 8  # releases; one machine word of flags
_LEAST_WINDOWS = 20  # a variance of fewer counts says nothing
_CLUSTERED = 2.0  # independent misses show a larger dispersion in less than 1 % of runs
_MAX_STATES = 256  # a denser transition matrix costs seconds


@dataclass(frozen=True, slots=True)
class MissRuns:
    """Misses grouped into maximal runs of consecutive releases, and how the runs themselves cluster.

    `dispersion` is the variance of the misses per window over its mean if as many misses lay at random, at least 1: the
    largest over windows of 8, 16, 32 ... releases of which 20 fit. `window` is that window (0: none exceeds 1). `groups`
    counts runs with fewer than `window` hits between them as one where misses cluster beyond their runs; None: they don't.
    """

    misses: int
    runs: int
    longest: int
    longest_at: int | None  # release at which the longest run (the first of equals) begins
    dispersion: float = 1.0
    window: int = 0
    groups: int | None = None

    @property
    def mean_length(self) -> float | None:
        """L, misses per run; None without a miss, when there is no information on clustering."""
        return self.misses / self.runs if self.runs else None

    @property
    def separate(self) -> int:
        """Miss runs that count as separate evidence."""
        return self.runs if self.groups is None else self.groups

    @property
    def few(self) -> bool:
        """Misses were seen, in too few separate runs to tell how they cluster."""
        return 1 <= self.separate < FEW_RUNS


def miss_runs(miss: NDArray[np.bool_]) -> MissRuns:
    """Runs of True in one flag per release."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], miss, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return MissRuns(0, 0, 0, None)
    lengths = ends - begins
    worst = int(np.argmax(lengths))
    misses, runs = int(lengths.sum()), len(lengths)
    dispersion, window = _dispersion(miss)
    groups = None
    if dispersion > max(_CLUSTERED, design_effect(misses / runs)):
        groups = 1 + int(np.count_nonzero(begins[1:] - ends[:-1] >= window))
    return MissRuns(misses, runs, int(lengths[worst]), int(begins[worst]), dispersion, window, groups)


def _dispersion(miss: NDArray[np.bool_]) -> tuple[float, int]:
    """(largest variance of the misses per window over that of misses at random, its window); (1, 0) if none exceeds it.

    S misses at random in B windows of w releases, N = Bw, have the sample variance w S (N-S) / (N (N-1)) on average, so
    one lone miss has exactly 1. Windows double by adding neighbours, of those alone that hold a miss.
    """
    n, w, found = len(miss), _SHORTEST_WINDOW, (1.0, 0)
    if n < w * _LEAST_WINDOWS:
        return found
    words = np.ascontiguousarray(miss[: n // w * w]).view(np.uint64)  # eight flags of one byte each
    counts = (words * np.uint64(0x0101010101010101)) >> np.uint64(56)  # their sum gathers in the top byte
    index = np.flatnonzero(counts)
    count = counts[index].astype(np.int64)
    while n // w >= _LEAST_WINDOWS:
        blocks = n // w
        whole = int(np.searchsorted(index, blocks))
        index, count = index[:whole], count[:whole]
        total, squares, size = int(count.sum()), int(np.dot(count, count)), blocks * w
        if not 0 < total < size:
            break
        ratio = (blocks * squares - total**2) * (size - 1) / ((blocks - 1) * total * (size - total))
        found = max(found, (ratio, w), key=lambda pair: pair[0])
        index = index >> 1
        first = np.flatnonzero(np.concatenate(([True], index[1:] != index[:-1])))
        index, count, w = index[first], np.add.reduceat(count, first), 2 * w
    return found


def design_effect(burst: float) -> float:
    """max(1, 2L - 1): the variance of a count whose run lengths are geometric with mean L, over a binomial's."""
    return max(1.0, 2 * burst - 1)


def default_burst(overrun: str, deadline_ns: int, period_ns: int) -> float:
    """Misses per overrun that a verdict assumes unless told: 1 + max(1, floor(D/T)) under `skip`, 1 under `queue`.

    Under `skip` a job that misses D >= T ran beyond D, so at least floor(D/T) releases were dropped, each a miss. Where
    D < T a late job may or may not run into the next release: 2 again, the careful side. measurement.md §10 takes 1
    unless D = T; with that, runs of the default length at 1.02 times the allowed rate passed falsely in 9 % (D = 1.5 T,
    and D = 0.95 T with jobs that end beyond T), 20 % (2 T) and 31 % (3 T), instead of at most 5 %.
    """
    if overrun != "skip" or period_ns == 0:  # back to back nothing is released that could be dropped
        return 1.0
    return min(1.0 + max(1, deadline_ns // period_ns), MOST_BURST)


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
    added, so a tiny probability keeps its digits. A long run takes r+1 terms at a time from the r+1 before.
    """
    if length < 1:
        raise ValueError(f"a run of {length} misses")
    if n < length or p <= 0:
        return 0.0
    if length <= 64:
        return _absorbed(_run_matrix(p, length), n)
    ends_here = (1 - p) * p**length
    if n * ends_here < 1e-17:  # 1 - g is 1: each release adds as much
        return min(1.0, p**length + (n - length) * ends_here)
    g = np.zeros(length + 1)
    g[length] = p**length
    for _ in range(n // (length + 1)):
        last, g = g[-1], ends_here * (1 - g)
        g[0] += last
        g = np.add.accumulate(g)
        if g[-1] == last:  # the terms only shrink: nothing is added any more
            break
    return min(1.0, float(g[n % (length + 1)]))


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
