"""Lengths of unions of intervals (profiles.md T1): durations are never summed across streams, devices or threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]


@dataclass(frozen=True)
class Union:
    """Disjoint intervals in order. Touching intervals are one."""

    start: Int
    end: Int

    @property
    def length(self) -> int:
        """Total length."""
        return int((self.end - self.start).sum())

    def before(self, at: Int) -> Int:
        """Covered length before each point: the length inside [a, b] is before(b) - before(a)."""
        if not len(self.start):
            return np.zeros(len(at), np.int64)
        covered = np.concatenate(([0], np.cumsum(self.end - self.start)))
        index = np.searchsorted(self.start, at, "right")
        inside = np.clip(
            np.minimum(at, self.end[np.maximum(index - 1, 0)]) - self.start[np.maximum(index - 1, 0)], 0, None
        )
        result: Int = np.where(index > 0, covered[np.maximum(index - 1, 0)] + inside, 0)
        return result

    def inside(self, low: Int, high: Int) -> Int:
        """Covered length within each [low, high]."""
        return self.before(np.maximum(low, high)) - self.before(low)

    def gaps(self, low: int, high: int) -> tuple[Int, Int]:
        """The uncovered intervals within [low, high], in order."""
        first = int(np.searchsorted(self.end, low, "right"))
        last = int(np.searchsorted(self.start, high, "left"))
        starts = np.concatenate(([low], np.maximum(self.end[first:last], low)))
        ends = np.concatenate((np.minimum(self.start[first:last], high), [high]))
        keep = ends > starts
        return starts[keep], ends[keep]


def union(start: Int, end: Int) -> Union:
    """The union of intervals given in any order; empty and reversed ones count nothing."""
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return Union(np.empty(0, np.int64), np.empty(0, np.int64))
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    fresh = np.concatenate(([True], start[1:] > end[:-1]))
    last = np.concatenate((np.flatnonzero(fresh)[1:] - 1, [len(start) - 1]))
    return Union(start[fresh], end[last])
