"""The timeline of a Run: every metric of a control loop as arrays, by its definition (measurement.md §2 and §3).

Everything is derived from (release, wake, start, finish) of the executed steps and the number of scheduled releases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.conditions import check_run, mapping
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run

__all__ = ["Timeline", "timeline"]

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
_LEAST_OF_A_THIRD = 3


@dataclass(frozen=True, eq=False)
class Timeline:
    """Arrays over the executed jobs of the measured window (length `executed`), ns; `miss` has one flag per release.

    `releases` is the denominator of every ratio: all scheduled ones of a complete run, else those reached. Wherever a
    release has no finish its response is +infinity: `infinite` counts them (skipped and never finished).
    """

    period_ns: int
    deadline_ns: int
    overrun: str
    scheduled: int
    releases: int
    rows: Ints  # row of each job in the Run's columns
    step: Ints
    release: Ints
    wake: Ints  # -1: the loop was late and did not wait
    start: Ints
    end: Ints
    unfinished: int
    miss: Flags

    @property
    def executed(self) -> int:
        """Jobs that ran to their finish."""
        return len(self.step)

    @property
    def infinite(self) -> int:
        """Releases without a finish."""
        return self.releases - self.executed

    @property
    def skipped(self) -> int:
        """Releases never started because the previous job still ran (metric 11)."""
        return self.infinite - self.unfinished

    @property
    def waited(self) -> Flags:
        """Jobs whose loop waited for the release."""
        return np.not_equal(self.wake, NOT_MEASURED)

    @property
    def wakeup_ns(self) -> Ints:
        """Wake-up latency `w_k - r_k`, only of jobs that waited (metric 1)."""
        return (self.wake - self.release)[self.waited]

    @property
    def start_latency_ns(self) -> Ints:
        """`s_k - r_k`: wake-up, backlog of the previous job and work before the policy (metric 3)."""
        return self.start - self.release

    @property
    def execution_ns(self) -> Ints:
        """`f_k - s_k` on the host, device work complete (metric 4)."""
        return self.end - self.start

    @property
    def response_ns(self) -> Ints:
        """`R_k = f_k - r_k` of executed jobs (metric 5); the other releases are +infinity."""
        return self.end - self.release

    @property
    def lateness_ns(self) -> Ints:
        """`L_k = R_k - D`, signed; negative is slack (metric 8)."""
        return self.response_ns - self.deadline_ns

    @property
    def tardiness_ns(self) -> Ints:
        """`max(0, L_k)` (metric 9)."""
        return np.maximum(self.lateness_ns, 0)

    @property
    def late(self) -> Flags:
        """Executed jobs that finished after their deadline: strictly, equality is a hit (metric 10)."""
        return self.response_ns > self.deadline_ns

    @property
    def has_gap(self) -> Flags:
        """Of the pairs of consecutive executed jobs, those with a skipped release between them."""
        return np.diff(self.step) > 1

    @property
    def period_jitter_ns(self) -> Ints:
        """`(s_k - s_prev) - T` over consecutive executed jobs, signed (metric 6)."""
        return np.diff(self.start) - self.period_ns

    @property
    def early_steps(self) -> int:
        """Jobs that started less than half a period after the one before; 0 back to back, where nothing is released."""
        return int(np.count_nonzero(2 * np.diff(self.start) < self.period_ns))

    @property
    def bursts_after_stall(self) -> int:
        """Runs of two or more jobs in a row that did not wait, begun by a job that finished beyond its whole period."""
        if self.period_ns == 0 or self.executed < 3:
            return 0
        hurried = ~self.waited
        begins = hurried[1:-1] & hurried[2:] & ~(hurried & np.append(False, hurried[:-1]))[1:-1]
        return int(np.count_nonzero(begins & (self.response_ns[:-2] > self.period_ns)))

    @property
    def output_jitter_ns(self) -> Ints:
        """`(f_k - f_prev) - T`: what the plant sees (metric 7)."""
        return np.diff(self.end) - self.period_ns

    @property
    def staleness_ns(self) -> Ints:
        """Age of the action in use at each release, `r_k - s_j` with the newest `f_j <= r_k` (metric 15).

        One value per release that has a finished job before it, in order of release.
        """
        if not self.executed or self.period_ns == 0:
            return np.zeros(0, np.int64)
        origin = int(self.release[0]) - int(self.step[0]) * self.period_ns
        grid = origin + np.arange(self.releases, dtype=np.int64) * self.period_ns
        newest = np.searchsorted(self.end, grid, side="right") - 1
        known = newest >= 0
        return grid[known] - self.start[newest[known]]

    @property
    def max_gap(self) -> tuple[int, int] | None:
        """(largest `f_k - f_prev`, step of that f_k): metric 17."""
        if self.executed < 2:
            return None
        gaps = np.diff(self.end)
        at = int(np.argmax(gaps))
        return int(gaps[at]), int(self.step[at + 1])

    @property
    def drift_ppm(self) -> float | None:
        """Rate drift of the starts against the period asked, ppm (metric 21)."""
        if self.executed < 2 or self.period_ns == 0:
            return None
        spans = int(self.step[-1]) - int(self.step[0])
        excess_ns = int(self.start[-1]) - int(self.start[0]) - spans * self.period_ns
        return excess_ns / (spans * self.period_ns) * 1e6

    @property
    def resistant_drift_ppm(self) -> float | None:
        """The same as the slope of Tukey's resistant line: medians of the first and the last third of the steps that ran.

        `drift_ppm` is by the first and the last start alone, so that one late step at either end reads as a clock that is wrong.
        None where the medians differ by less than the steps of a third scatter (interquartile range), which wake-up latencies do:
        then no drift can be told; or where a third has too few steps for one of them not to count.
        """
        third = self.executed // 3
        if third < _LEAST_OF_A_THIRD or self.period_ns == 0:
            return None
        off_grid = self.start - self.start[0] - (self.step - self.step[0]) * self.period_ns
        low, middle, high = np.percentile((off_grid[:third], off_grid[-third:]), (25, 50, 75), axis=1)
        excess_ns = float(middle[1] - middle[0])
        if abs(excess_ns) < float((high - low).max()):
            return None
        steps = float(np.median(self.step[-third:])) - float(np.median(self.step[:third]))
        return excess_ns / (steps * self.period_ns) * 1e6

    @property
    def backlog_ns(self) -> Ints:
        """How far the previous job ran past each job's release, 0 where it did not."""
        if not self.executed:
            return np.zeros(0, np.int64)
        before = np.concatenate((self.release[:1], self.end[:-1]))
        late: Ints = np.maximum(before - self.release, 0)
        return late


def timeline(run: Run) -> Timeline:
    """The timeline of a Run's measured window.

    Rows missing at the end are skipped releases when the run is complete; an interrupted run is counted up to the last
    release it reached. Rows off the scheduled range or repeated are left out here and make the verdict INVALID.
    """
    check_run(run)
    columns, loop = run.columns, run.loop
    inside = (columns["step"] >= 0) & (columns["step"] < run.scheduled)
    step, first = np.unique(columns["step"][inside], return_index=True)
    rows = np.flatnonzero(inside)[first]
    finished = columns["end_ns"][rows] != NOT_MEASURED
    releases, hung = _reached(run, step)
    done = rows[finished]
    release, end = columns["release_ns"][done], columns["end_ns"][done]
    miss = np.ones(releases, np.bool_)
    miss[step[finished]] = end - release > loop.deadline_ns
    return Timeline(
        period_ns=loop.period_ns,
        deadline_ns=loop.deadline_ns,
        overrun=loop.overrun,
        scheduled=run.scheduled,
        releases=releases,
        rows=done,
        step=step[finished],
        release=release,
        wake=columns["wake_ns"][done],
        start=columns["start_ns"][done],
        end=end,
        unfinished=int(np.count_nonzero(~finished)) + hung,
        miss=miss,
    )


def _reached(run: Run, step: Ints) -> tuple[int, int]:
    """(releases that count, 1 if the last of them is a step still in flight when the run ended)."""
    if run.conditions["state"] == "complete":
        return run.scheduled, 0
    last = int(step[-1]) + 1 if len(step) else 0
    told = run.conditions.get("reached")
    reached = min(max(last, told if isinstance(told, int) else 0), run.scheduled)
    flying = mapping(run, "in_flight").get("step")
    if not isinstance(flying, int):
        return reached, 0
    return (flying + 1, 1) if last <= flying < run.scheduled else (reached, 0)
