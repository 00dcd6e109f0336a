"""`compare`: two saved Runs, perhaps with an A/A pair: how far two runs of the same thing lay apart, once."""

from __future__ import annotations

from pathlib import Path

from robot_perf.analyze.comparison.comparable import CHECKED
from robot_perf.analyze.comparison.compare import Comparison, compare
from robot_perf.errors import RobotPerfError, UsageError, unknown
from robot_perf.run.parquet import load

__all__ = ["compare_files"]


def compare_files(
    a: Path, b: Path, *, same: tuple[Path, Path] | None = None, allow: tuple[str, ...] = ()
) -> Comparison:
    """B seen from A. Raises UsageError where the Runs can't stand beside one another, naming both files."""
    for field in allow:
        if field not in CHECKED:
            raise unknown("--allow", field, CHECKED)
    for one, other, words in ((a, b, "A and B"), *(((*same, "the A/A pair"),) if same else ())):
        if one.exists() and other.exists() and one.samefile(other):
            # A slip in a script would read as "no difference", and an A/A pair of one Run as a noise floor of zero.
            raise UsageError(f"{words} are the same file: {one}", do="Name two Runs.")
    runs = load(a), load(b)
    pair = None if same is None else (load(same[0]), load(same[1]))
    try:
        return compare(*runs, same=pair, allow=allow)
    except RobotPerfError as error:
        error.what = f"{error.what} (A is {a}, B is {b})"
        raise
