"""`compare`: two saved Runs, perhaps with an A/A pair that says how much two runs of the same thing differ."""

from __future__ import annotations

from pathlib import Path

from robot_perf.analyze.comparison.comparable import CHECKED
from robot_perf.analyze.comparison.compare import Comparison, compare
from robot_perf.errors import RobotPerfError, unknown
from robot_perf.run.parquet import load

__all__ = ["compare_files"]


def compare_files(
    a: Path, b: Path, *, same: tuple[Path, Path] | None = None, allow: tuple[str, ...] = ()
) -> Comparison:
    """B seen from A. Raises UsageError where the Runs can't stand beside one another, naming both files."""
    for field in allow:
        if field not in CHECKED:
            raise unknown("--allow", field, CHECKED)
    runs = load(a), load(b)
    pair = None if same is None else (load(same[0]), load(same[1]))
    try:
        return compare(*runs, same=pair, allow=allow)
    except RobotPerfError as error:
        error.what = f"{error.what} (A is {a}, B is {b})"
        raise
