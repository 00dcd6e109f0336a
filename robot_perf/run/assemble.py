"""A Run out of a step map, whoever is left to make it: the conductor, the keeper, or `recover` after a crash."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_perf.errors import RunFileError
from robot_perf.run.model import Run
from robot_perf.run.stepmap import Phase, StepMap, Word

COMPLETE = "complete"


def run_from_map(stepmap: StepMap, *, state: str | None = None, extra: dict[str, Any] | None = None) -> Run:
    """All committed rows and all conditions. `state` says why the Run is not complete; None lets the map itself say.

    A Run is complete only if the worker said that it was done and every release of the window was reached. Raises RunFileError
    for a map whose request or report is not what was written.
    """
    try:
        run = _assembled(stepmap, state, extra or {})
        _ = run.policy, run.loop, run.budget
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RunFileError(
            f"{stepmap.path} is a damaged step map",
            why="Its conditions are not those of a measurement.",
            detail=f"{type(error).__name__}: {error}",
        ) from None
    return run


def _assembled(stepmap: StepMap, state: str | None, extra: dict[str, Any]) -> Run:
    rows = stepmap.rows()
    request = {k: v for k, v in stepmap.request.items() if k != "columns"}
    report = stepmap.report
    warmup = stepmap[Word.WARMUP_ROWS]
    if warmup < 0:
        # It ended in warm-up, before the rows got their numbers.
        rows["step"] = np.arange(-len(rows["step"]), 0, dtype=np.int64)
        warmup = len(rows["step"])
    reached = stepmap.reached()
    conditions: dict[str, Any] = {
        **request,
        **{k: v for k, v in report.items() if k not in ("invalid", "notes")},
        **extra,
    }
    conditions["origin_ns"] = stepmap[Word.ORIGIN]
    conditions["warmup_rows"] = warmup
    conditions["reached"] = reached
    # Before the window begins, the row of a warm-up call that never returned carries an index that no release has.
    in_window = stepmap[Word.ORIGIN] >= 0 and stepmap[Word.WARMUP_ROWS] >= 0
    conditions["in_flight"] = stepmap.row_in_flight() if in_window else None
    conditions["invalid"] = [*request.get("invalid", []), *report.get("invalid", []), *extra.get("invalid", [])]
    conditions["notes"] = [*request.get("notes", []), *report.get("notes", []), *extra.get("notes", [])]
    done = stepmap[Word.PHASE] == Phase.DONE and reached >= request["loop"]["steps"]
    conditions["state"] = (
        state if state is not None else COMPLETE if done else _unfinished(stepmap, reached, conditions)
    )
    return Run(rows, conditions)


def _unfinished(stepmap: StepMap, reached: int, conditions: dict[str, Any]) -> str:
    phase = Phase(stepmap[Word.PHASE]) if stepmap[Word.PHASE] in list(Phase) else Phase.CREATED
    steps = conditions["loop"]["steps"]
    where = {
        Phase.CREATED: "before the policy was loaded",
        Phase.LOADING: "while the policy was loading",
        Phase.LOADED: "before warm-up",
        Phase.WARMUP: "in warm-up",
    }.get(phase, f"after {reached:,} of {steps:,} releases")
    return f"interrupted {where}"
