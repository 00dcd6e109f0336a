"""Where a Run goes: its default name, and whether it can be written there."""

from __future__ import annotations

import os
import re
import time
from fractions import Fraction
from pathlib import Path
from shlex import quote

from robot_perf.errors import UsageError

REPORTS = (".html", ".md", ".xml", ".json", ".txt")  # what `robot-perf report -o` writes


def check_folder(output: Path) -> None:
    """Refuses an output that could not be written, before the measurement rather than after it."""
    folder = output.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(
            f"{output} can't be written",
            why=f"{folder} is {'not writable' if folder.is_dir() else 'not a folder'}.",
            do="Choose another place with -o.",
        )


def check_run_file(output: Path, *, force: bool) -> None:
    """Refuses a Run file's name that can't be meant, or would replace a file unasked. Raises UsageError."""
    if str(output) == "-":
        raise UsageError(
            "-o - would write the Run to stdout",
            why="It is a Parquet file.",
            do="Name a file; --json prints the verdict.",
        )
    refuse_report_name(output)
    if output.is_dir():
        raise UsageError(f"{output} is a folder", do="Name a file in it.")
    if output.exists() and not force:
        raise UsageError(f"{output} exists", do="Choose another name with -o or add --force.")
    check_folder(output)


def refuse_report_name(output: Path) -> None:
    """Refuses a Run file's name that is a report's: what would lie there is no page. Raises UsageError with both commands."""
    if output.suffix.lower() in REPORTS:
        run = output.with_suffix(".parquet")
        raise UsageError(
            f"-o {output} is the name of a report, and a Run is a Parquet file",
            why="The Run is what is measured; each of its reports is made from it.",
            do=f"Write -o {quote(str(run))}, and then: robot-perf report {quote(str(run))} -o {quote(str(output))}",
        )


def make_folder(folder: Path) -> None:
    """The folder of a report, or of several Runs, before anything is measured for it. Raises UsageError."""
    check_folder(folder / "any")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} can't be made", do="Choose another folder with -o.", detail=error.strerror or str(error)
        ) from None


def default_output(policy: str, backend: str, rate_hz: str) -> Path:
    """`runs/<UTC>-<policy>-<backend>-<rate>hz.parquet`, with a number appended if two runs start in one second."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", policy).strip("._") or "policy"
    rate = f"{float(Fraction(rate_hz)):g}"
    stem = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{safe[:60]}-{backend}-{rate}hz"
    path = Path("runs") / f"{stem}.parquet"
    number = 2
    while path.exists():
        path = Path("runs") / f"{stem}-{number}.parquet"
        number += 1
    return path
