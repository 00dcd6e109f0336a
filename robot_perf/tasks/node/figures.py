"""A live block's figures for diagnostics and `~/report`: a window of at least N periods, and everything since activation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.distribution import point
from robot_perf.measure.node.mailbox import STALE, STARVED, WITHHELD
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.stepmap import StepMap, Word
from robot_perf.stats.burst import miss_runs
from robot_perf.stats.ranks import Sample

WINDOW_PERIODS = 100
WINDOW_NS = 10_000_000_000
_KEYS = ("p50", "p99", "p99.9")
_USED = (
    "step",
    "release_ns",
    "wake_ns",
    "start_ns",
    "end_ns",
    "own_ns",
    "observation_ns",
    "published_ns",
    "header_age_ns",
    "flags",
)

Ints = NDArray[np.int64]


class Activation:
    """Totals over the blocks of one activation. `add` takes new rows of the block that began at `origin_ns`."""

    def __init__(self, period_ns: int, deadline_ns: int) -> None:
        self.period_ns, self.deadline_ns = period_ns, deadline_ns
        self.releases = self.executed = self.misses = self.starved = self.stale = self.withheld = 0
        self.max_response_ns = self.max_gap_ns = self.longest_miss_run = 0
        self.last_end_ns = NOT_MEASURED
        self._run = 0
        self._next_grid: int | None = None
        self._window: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in _USED}
        self._fresh: list[dict[str, Ints]] = []  # since `moments` was asked

    def add(self, rows: dict[str, Ints]) -> None:
        """New rows of the window, in order; grid positions are told by `release_ns`, so that blocks join without a seam."""
        if not len(rows["step"]):
            return
        grid = rows["release_ns"] // self.period_ns
        first = int(grid[0]) if self._next_grid is None else self._next_grid
        miss = np.ones(max(0, int(grid[-1]) - first + 1), np.bool_)
        finished = rows["end_ns"] != NOT_MEASURED
        response = np.where(finished, rows["end_ns"] - rows["release_ns"], np.iinfo(np.int64).max)
        inside = grid - first
        miss[inside[inside >= 0]] = response[inside >= 0] > self.deadline_ns
        self._next_grid = first + len(miss)
        self.releases += len(miss)
        self.executed += int(finished.sum())
        self.misses += int(miss.sum())
        self._longest(miss)
        ends = rows["end_ns"][finished]
        if len(ends):
            joined = ends if self.last_end_ns < 0 else np.concatenate(([self.last_end_ns], ends))
            self.max_gap_ns = max(self.max_gap_ns, int(np.diff(joined).max(initial=0)))
            self.max_response_ns = max(self.max_response_ns, int(response[finished].max()))
            self.last_end_ns = int(ends[-1])
        flags = rows["flags"]
        self.starved += int(np.count_nonzero(flags & STARVED))
        self.stale += int(np.count_nonzero(flags & STALE))
        self.withheld += int(np.count_nonzero(flags & WITHHELD))
        self._fresh.append(rows)
        oldest = int(rows["release_ns"][-1]) - max(WINDOW_NS, WINDOW_PERIODS * self.period_ns)
        joined_rows = {n: np.concatenate((self._window[n], rows[n])) for n in _USED}
        keep = joined_rows["release_ns"] > oldest
        self._window = {n: c[keep] for n, c in joined_rows.items()}

    def _longest(self, miss: NDArray[np.bool_]) -> None:
        joined = np.concatenate((np.ones(self._run, np.bool_), miss)) if self._run < 1_000_000 else miss
        self.longest_miss_run = max(self.longest_miss_run, miss_runs(joined).longest)
        tail = np.flatnonzero(~joined[::-1])
        self._run = int(tail[0]) if len(tail) else len(joined)

    def totals(self) -> dict[str, Any]:
        """Counts since activation; maxima exclude warm-up. ns."""
        return {
            "releases": self.releases, "executed": self.executed, "misses": self.misses,
            "skipped": self.releases - self.executed, "starved": self.starved, "stale": self.stale, "withheld": self.withheld,
            "longest_miss_run": self.longest_miss_run, "max_response_ns": self.max_response_ns or None,
            "max_gap_ns": self.max_gap_ns or None,
        }  # fmt: skip

    def window(self, now_ns: int, *, running: bool) -> dict[str, Any]:
        """Figures of the newest periods. A loop that stands still has an open gap that counts, and a rate of 0."""
        c = self._window
        starts, finished = c["start_ns"], c["end_ns"] != NOT_MEASURED
        phases = _phases(c)
        releases = int((c["release_ns"][-1] - c["release_ns"][0]) // self.period_ns) + 1 if len(starts) else 0
        skipped = releases - len(phases["response"])
        gaps = np.diff(c["end_ns"][finished])
        open_gap = now_ns - self.last_end_ns if running and self.last_end_ns > 0 and len(starts) else 0
        stalled = open_gap > max(20 * self.period_ns, 1_000_000_000)
        return {
            "releases": releases, "executed": releases - skipped,
            "misses": int(np.count_nonzero(phases["response"] > self.deadline_ns)) + skipped, "skipped": skipped,
            "starved": int(np.count_nonzero(c["flags"] & STARVED)), "stale": int(np.count_nonzero(c["flags"] & STALE)),
            "max_gap_ns": max(int(gaps.max(initial=0)), open_gap) or None,
            "period_mean_ns": None if len(starts) < 2 or stalled else float(starts[-1] - starts[0]) / (len(starts) - 1),
            "stalled": stalled,
            **{name: _figures(values, skipped if name == "response" else 0) for name, values in phases.items()},
        }  # fmt: skip

    def moments(self) -> dict[str, dict[str, Any]]:
        """Per phase n, mean, min, max and standard deviation (of the population) of the rows since the last call, ns; null without any."""
        rows = {name: np.concatenate([np.zeros(0, np.int64), *(r[name] for r in self._fresh)]) for name in _USED}
        self._fresh = []
        return {name: _moments(values) for name, values in _phases(rows).items()}


def _phases(c: dict[str, Ints]) -> dict[str, Ints]:
    """What is measured of each step, ns; rows that lack it are left out."""
    finished = c["end_ns"] != NOT_MEASURED
    fed, sent = (c["observation_ns"] > 0) & finished, (c["published_ns"] > 0) & finished
    aged, waited = c["header_age_ns"] != NOT_MEASURED, c["wake_ns"] != NOT_MEASURED
    return {
        "response": (c["end_ns"] - c["release_ns"])[finished],
        "wake": (c["wake_ns"] - c["release_ns"])[waited],
        "execution": (c["end_ns"] - c["start_ns"])[finished],
        "publish": (c["published_ns"] - c["end_ns"])[sent],
        "release_to_publish": (c["published_ns"] - c["release_ns"])[sent],
        "own": c["own_ns"][c["own_ns"] >= 0],
        "observation_age": (c["start_ns"] - c["observation_ns"])[fed],
        "header_age": c["header_age_ns"][aged],
    }


def _moments(values: Ints) -> dict[str, Any]:
    if not len(values):
        return {"n": 0, "mean": None, "min": None, "max": None, "stddev": None}
    return {
        "n": len(values), "mean": float(values.mean()), "min": int(values.min()), "max": int(values.max()), "stddev": float(values.std()),
    }  # fmt: skip


def new_rows(stepmap: StepMap, read: int) -> tuple[dict[str, Ints], int]:
    """Rows of the window from row `read` on, and the row to go on from. Warm-up rows are never among them."""
    if stepmap[Word.ORIGIN] < 0:
        return {name: np.zeros(0, np.int64) for name in _USED}, read
    start = max(read, stepmap[Word.WARMUP_ROWS], 0)
    rows = stepmap.rows(start)
    return {name: rows[name] for name in _USED}, start + len(rows["step"])


def _figures(values: Ints, infinite: int = 0) -> dict[str, Any] | None:
    """p50, p99, p99.9 and max in ns; null with `reason` where there is none."""
    if not len(values):
        return None
    sample = Sample.of(values, infinite)
    points = {key: point(sample, key) for key in _KEYS}  # without their intervals, which nobody here asks for
    figures: dict[str, Any] = {key: value for key, (value, _) in points.items()}
    figures |= {"n": sample.n, "max": None if infinite else int(sample.finite[-1])}
    figures["reason"] = {key: reason for key, (value, reason) in points.items() if value is None}
    return figures
