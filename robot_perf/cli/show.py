"""Printing: a styled text in colour on a terminal that wants it, plain everywhere else; a reader that is gone changes no exit code."""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_WIDEST = 100


def show(text: Text) -> bool:
    """Prints to stdout. NO_COLOR, TERM=dumb and a pipe get no escape sequence; lines are never re-wrapped or cut. False as for `say`."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            """Rich would exit with code 1 here, which means FAIL."""
            raise BrokenPipeError

    tolerate_narrow_encoding()
    try:
        Ours(highlight=False, soft_wrap=True).print(text)
        sys.stdout.flush()
    except OSError as error:
        return _without_reader(error)
    return True


def say(text: str, *, err: bool = False) -> bool:
    """Prints lines to stdout, or stderr. False where nobody reads any more (`| head`, a terminal that was closed).

    The exit code stays the verdict's then. typer.echo would let typer exit with 1, which means FAIL.
    """
    stream = sys.stderr if err else sys.stdout
    try:
        stream.write(text + "\n")
        stream.flush()
    except OSError as error:
        return _without_reader(error, err=err)
    return True


def _without_reader(error: OSError, *, err: bool = False) -> bool:
    """A reader that has left is no fault; a disk that is full or broken is."""
    stream = (sys.stderr if err else sys.stdout).fileno()
    closed_terminal = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(stream).st_mode)
    # Rich's broken pipe comes without a number
    if not isinstance(error, BrokenPipeError) and not closed_terminal:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    return False


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
