"""From a measured Run and its step map to a Run file: the map goes only when the file is there."""

from __future__ import annotations

from pathlib import Path

from robot_perf.errors import RobotPerfError, RunFileError
from robot_perf.measure.processes.process import on_ending
from robot_perf.run.model import Run
from robot_perf.run.parquet import save

__all__ = ["keep", "keep_or_discard"]


def keep(run: Run, output: Path, *, force: bool) -> Path:
    """Saves a measured Run, and only then removes its step map. Raises RunFileError that names the map where saving fails.

    A name that somebody else took in the meantime (two runs that began in one second) costs no Run: it gets a number.
    """
    path = run.conditions.get("step_map")
    run = Run(run.columns, {k: v for k, v in run.conditions.items() if k != "step_map"})
    undo = on_ending(lambda _number, _frame: None)  # what has been measured is saved first
    try:
        saved = save(run, output, force=force, numbered=True)
    except (OSError, RobotPerfError) as error:
        raise RunFileError(
            f"the Run can't be saved as {output}",
            why=f"Its {len(run.measured['step']):,} steps are still in {path}." if path else "",
            do=f"Make room, then: robot-perf recover {path} -o FILE.parquet" if path else "",
            detail=str(error),
        ) from None
    finally:
        undo()
    if path:
        Path(path).unlink(missing_ok=True)
    return saved


def keep_or_discard(run: Run, output: Path, *, force: bool) -> None:
    """Of a Run whose neighbour failed: its steps where it has some, else not even its map."""
    if len(run.measured["step"]):
        keep(run, output, force=force)
    elif path := run.conditions.get("step_map"):
        Path(path).unlink(missing_ok=True)
