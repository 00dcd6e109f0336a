"""`robot-perf`: runs one command, turns our errors into one message and an exit code.

Imports nothing that takes time before `main` has begun: Ctrl-C meets a handler from there on, not a traceback.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

# What a full or broken disk, a quota or a terminal that is gone says: nothing that robot-perf could mend.
_REFUSED = ("EIO", "ENOSPC", "EROFS", "EDQUOT", "EPIPE")
# What it says of a name that it can't look up: a folder without search permission, 256 bytes, a file in a folder's place.
_UNUSABLE = ("EACCES", "EPERM", "ENAMETOOLONG", "ENOTDIR", "ELOOP")


def main(argv: list[str] | None = None) -> Any:
    """Entry point of the console script."""
    # A stream that was closed (`>&-`) would be None, and its number would go to the next file that is opened.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        from robot_perf.cli.root import root
        from robot_perf.cli.show import tolerate_narrow_encoding
        from robot_perf.errors import ExitCode, RobotPerfError
    except KeyboardInterrupt:
        _end("interrupted before it had begun", 4)
    tolerate_narrow_encoding()
    try:
        _run(root, argv)
    except RobotPerfError as error:
        if os.environ.get("ROBOT_PERF_DEBUG"):
            raise
        _end(str(error), error.exit_code)
    except KeyboardInterrupt:
        _end("interrupted; nothing was saved", ExitCode.INVALID)
    except Exception as error:
        if os.environ.get("ROBOT_PERF_DEBUG"):
            raise
        if isinstance(error, OSError) and _refused(error):
            _drop_output()
            _end(
                f"{error.filename or 'the output'} can't be written: {error.strerror}\n"
                "A Run that was measured is saved all the same: in runs/, or where -o says; else robot-perf recover lists it.",
                ExitCode.USAGE,
            )
        if isinstance(error, OSError) and (told := _named(error)):
            _end(told, ExitCode.USAGE)
        import traceback
        from pathlib import Path

        where = traceback.extract_tb(error.__traceback__)[-1]
        _end(
            f"a defect of robot-perf itself, not of the policy: {type(error).__name__}: {error}\n"
            f"It arose in {Path(where.filename).name}:{where.lineno}. Nothing above it is a verdict.\n"
            "Report it with the output of the same command after `robot-perf --debug`.",
            ExitCode.INVALID,
        )


def _run(root: Any, argv: list[str] | None) -> None:
    """The command. What it printed is written out here: left to the interpreter's end, a full disk would end it with 120."""
    try:
        root(args=argv, prog_name="robot-perf")
    except SystemExit:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_output()
        raise


def _refused(error: OSError) -> bool:
    import errno

    return error.errno in {getattr(errno, name) for name in _REFUSED}


def _named(error: OSError) -> str | None:
    """What the operating system says against a name or a folder that a person chose; None for anything else."""
    import errno
    from pathlib import Path

    if error.filename is not None and error.errno in {getattr(errno, name) for name in _UNUSABLE}:
        name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(error.filename)
        return f"{name if len(name) < 200 else name[:200] + '…'} can't be used: {error.strerror}\nName another file."
    try:
        Path.cwd()
    except FileNotFoundError:
        return "the current folder has been deleted\nGo to one that exists: cd"
    return None


def _drop_output() -> None:
    """What is still to be printed goes nowhere: the interpreter would try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"robot-perf: {message}\n")
    sys.exit(int(code))


if __name__ == "__main__":
    main()
