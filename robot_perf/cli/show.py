"""Printing a styled text: colour on a terminal that wants it, plain everywhere else."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_WIDEST = 100


def show(text: Text) -> None:
    """Prints to stdout. NO_COLOR, TERM=dumb and a pipe get no escape sequence; lines are never re-wrapped or cut."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            """Rich would exit with code 1 here, which means FAIL."""
            raise BrokenPipeError

    tolerate_narrow_encoding()
    try:
        Ours(highlight=False, soft_wrap=True).print(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # `robot-perf … | head`: the reader has what it wanted. The exit code stays the verdict's, and nothing is printed any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report_width() -> int:
    """Columns for a report: those of the terminal, at most 100; 100 where there is no terminal."""
    if not sys.stdout.isatty():
        return _WIDEST
    from rich.console import Console

    return min(_WIDEST, Console().width)


def table_width() -> int | None:
    """Columns for a table: those of the terminal; None, no limit, where there is no terminal: a file can be wide."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console().width


def tolerate_narrow_encoding() -> None:
    """A terminal that can't encode `→` or `█` gets a question mark for it, not a traceback."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        reconfigure(errors="replace")
