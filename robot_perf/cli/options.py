"""Options and small actions that several commands share. Printing and files are the command line's alone."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from robot_perf.cli.show import say
from robot_perf.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Output file; '-' for stdout. Never overwritten without --force.")
]


def emit_json(document: Any) -> bool:
    """One JSON document on stdout. Infinity and NaN have no place in JSON: they are an error here, not `Infinity`.

    False where nobody reads any more.
    """
    return say(json.dumps(document, ensure_ascii=False, allow_nan=False))


def finite(value: float | None) -> float | None:
    """None for a value that JSON can't hold."""
    return None if value is None or not math.isfinite(value) else value


def in_range(name: str, value: float, low: float, high: float) -> float:
    """Refuses a number outside [low, high], NaN included."""
    if not low <= value <= high:
        raise UsageError(f"{name} {value:.10g} is out of range", why=f"Allowed: {low:,.10g} to {high:,.10g}.")
    return value


def write_output(path: Path, text: str | bytes, *, force: bool) -> None:
    """Writes a report; '-' is stdout. Raises UsageError instead of overwriting or of writing into a missing folder."""
    if str(path) == "-":
        if isinstance(text, bytes):
            sys.stdout.buffer.write(text)
        else:
            sys.stdout.write(text)
        return
    check_output(path, force=force)
    try:
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} can't be written", do="Make room, or name another file.", detail=error.strerror or str(error)
        ) from None


def check_output(path: Path, *, force: bool) -> None:
    """Refuses an output before the work starts rather than after it."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", do="Name a file in it.")
    if path.exists() and not force:
        raise UsageError(f"{path} exists", do="Choose another name or add --force.")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"{path}: the folder {folder} does not exist", do="Create it first.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(
            f"{path} can't be written",
            why=f"{path if path.exists() else folder} is not writable.",
            do="Name another file.",
        )
