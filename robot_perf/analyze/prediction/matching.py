"""How many kernels of a step match a pattern: ncu's skip and count are sized with it (profiles.md section 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from robot_perf.analyze.diagnose.steps import find_steps
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.diagnose.work import devices_of
from robot_perf.errors import UsageError
from robot_perf.profiles.model import KERNEL, Profile


@dataclass(frozen=True)
class Matching:
    """Matching launches per step, and the first of them: compared with ncu's first row after the run."""

    per_step: int
    steps: int
    name: str
    grid: tuple[int, int, int] | None


def matching_per_step(profile: Profile, pattern: str, steps_pattern: str | None = None) -> Matching:
    """m of a timeline of the same program. Graph nodes count one each.

    Raises UsageError when nothing matches, when the file has no steps, or when m varies between steps.
    """
    works = devices_of(profile) if profile.header.shape == "timeline" else []
    if not works:
        raise UsageError(
            f"{profile.header.source} has no timeline to count launches in",
            do="Give a Kineto trace or an nsys SQLite export.",
        )
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"the kernel filter {pattern!r} is not a regular expression", detail=str(error)) from None
    work = works[0]
    steps = find_steps(profile, work, Thresholds(), steps_pattern)
    if steps.whole:
        raise UsageError(
            f"{profile.header.source} marks no steps",
            do="Mark each step (NVTX or record_function), or give --steps-pattern.",
        )
    names = np.array([bool(wanted.search(s)) for s in work.ops.strings], bool)
    rows = np.flatnonzero((work.ops["kind"] == KERNEL) & names[work.ops["name"]] & (steps.owner >= 0))
    if not len(rows):
        raise UsageError(
            f"no kernel of a step matches {pattern!r}",
            why=f"Kernels: {', '.join(sorted({s[:40] for s in work.ops.strings}))[:300]}.",
        )
    counts = np.bincount(steps.owner[rows], minlength=len(steps))[steps.keep]
    if counts.min() != counts.max():
        raise UsageError(
            f"{pattern!r} matches {counts.min()} to {counts.max()} kernels a step",
            why="A skip count would stop in the middle of a step.",
            do="Use a narrower filter, or --nvtx-include around the step.",
        )
    row = int(rows[0])
    grid = tuple(int(work.ops[f"grid_{a}"][row]) for a in "xyz")
    return Matching(
        int(counts[0]),
        int(steps.keep.sum()),
        work.ops.text("name", row),
        None if min(grid) < 0 else (grid[0], grid[1], grid[2]),
    )
