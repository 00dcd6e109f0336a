"""Two one-line graphs for a terminal: the distribution of response time, and where on the timeline releases were missed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run

__all__ = ["DEADLINE", "LATE", "LOST", "ON_TIME", "histogram", "timeline_marks"]

BARS = "▁▂▃▄▅▆▇█"
DEADLINE, ON_TIME, LATE, LOST = "┊", "·", "╷", "✕"


def histogram(response_ns: NDArray[np.int64], deadline_ns: int, cells: int) -> str:
    """Bars of the distribution from its smallest value to the deadline or, if later, its largest; logarithmic axis.

    The tallest bar is full height; a bar that holds a single step is still drawn. The deadline has a cell of its own: bars
    left of it are on time, bars right of it are late. The string has `cells` characters.
    """
    low, high = max(1, int(response_ns.min())), max(int(response_ns.max()), deadline_ns)
    low = min(low, deadline_ns)
    span = math.log(high / low) or 1.0
    at = min(cells - 1, int(math.log(deadline_ns / low) / span * (cells - 1)))
    on_time, late = response_ns[response_ns <= deadline_ns], response_ns[response_ns > deadline_ns]
    # no side that has a step is left without a cell
    at = max(1 if len(on_time) else 0, min(at, cells - 2 if len(late) else cells - 1))
    left, right = _counts(on_time, low, deadline_ns, at), _counts(late, deadline_ns, high, cells - 1 - at)
    tallest = max(left.max(initial=0), right.max(initial=0), 1)
    return f"{_bars(left, tallest)}{DEADLINE}{_bars(right, tallest)}"


def _bars(counts: NDArray[np.int64], tallest: int) -> str:
    return "".join(BARS[math.ceil(c / tallest * len(BARS)) - 1] if c else " " for c in counts)


def _counts(values: NDArray[np.int64], low: int, high: int, cells: int) -> NDArray[np.int64]:
    if cells <= 0:
        return np.zeros(0, np.int64)
    if not len(values):
        return np.zeros(cells, np.int64)
    span = math.log(high / low) or 1.0
    position = np.log(np.maximum(values, 1) / low) / span * cells
    return np.bincount(np.clip(position.astype(np.int64), 0, cells - 1), minlength=cells)


def timeline_marks(run: Run, cells: int) -> tuple[str, float]:
    """(one mark per stretch of releases, releases per mark). A mark shows the worst of its stretch; unreached is blank.

    Worst first: a release that never ran to its end (skipped or unfinished), a late one, all on time.
    """
    scheduled, columns = run.scheduled, run.columns
    cells = min(cells, scheduled)
    if not cells:
        return "", 1.0
    inside = (columns["step"] >= 0) & (columns["step"] < scheduled)
    step, end = columns["step"][inside], columns["end_ns"][inside]
    finished = end != NOT_MEASURED
    late = finished & (end - columns["release_ns"][inside] > run.loop.deadline_ns)
    reached = scheduled if run.conditions["state"] == "complete" else int(step.max(initial=-1)) + 1
    edges = np.array([scheduled * i // cells for i in range(cells + 1)])
    due = np.diff(np.minimum(edges, reached))
    done, too_late = (np.histogram(np.unique(step[rows]), edges)[0] for rows in (finished, late))
    marks = np.where(due == 0, " ", np.where(done < due, LOST, np.where(too_late > 0, LATE, ON_TIME)))
    return "".join(marks.tolist()), scheduled / cells
