"""The errors a person sees, each with the exit code that a script sees.

A message has at most four lines: what is wrong, why we think so, what to do, and the library's own detail.
Programming errors are not among them: they keep their traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

__all__ = [
    "BackendUnavailableError",
    "ExitCode",
    "InvalidMeasurementError",
    "PolicyError",
    "ProfileError",
    "RobotPerfError",
    "RunFileError",
    "UsageError",
    "did_you_mean",
    "install_line",
    "unknown",
]


class ExitCode(IntEnum):
    """Exit codes of the command line and the nodes (docs/metrics.md, "Exit codes")."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INVALID = 4


class RobotPerfError(Exception):
    """A fault that is not ours, said so that a person can mend it.

    `what` names the thing and what is wrong with it, `why` gives the evidence (got and allowed, with units), `do` one
    command or step, `detail` the first line of a library's own text.
    """

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, what: str, *, why: str = "", do: str = "", detail: str = "") -> None:
        super().__init__(what, why, do, detail)
        self.what = what
        self.why = why
        self.do = do
        self.detail = detail.strip().splitlines()[0][:400] if detail.strip() else ""

    def __str__(self) -> str:
        lines = [self.what, self.why, self.do, f"detail: {self.detail}" if self.detail else ""]
        return "\n".join(" ".join(line.split()) for line in lines if line)

    @property
    def one_line(self) -> str:
        """The same as sentences of one line: for a log, a service's answer, a table's cell."""
        return ". ".join(line.rstrip(".") for line in str(self).splitlines())


class UsageError(RobotPerfError):
    """A bad option, a bad combination of options, or a value out of range."""


class PolicyError(RobotPerfError):
    """A policy file, factory or pipeline that can't be loaded or used as asked."""


class ProfileError(RobotPerfError):
    """A profile (nsys, ncu, Kineto) that can't be read, or an exporter that failed."""


class RunFileError(RobotPerfError):
    """A Run file or step map that can't be read."""


class BackendUnavailableError(RobotPerfError):
    """A backend that can't run here; `do` carries the install line."""


class InvalidMeasurementError(RobotPerfError):
    """The measurement itself can't be trusted. Raised only before a Run exists; later it is the Run's verdict."""

    exit_code = ExitCode.INVALID


def unknown(what: str, name: str, known: Iterable[str], *, why: str = "") -> UsageError:
    """The refusal of a word outside a closed list: all of the list (or `why`), and the nearest word of it."""
    words = list(known)
    return UsageError(
        f"{what} {name!r} is unknown", why=why or f"Known: {', '.join(words)}.", do=did_you_mean(name, words)
    )


def install_line(extra: str) -> str:
    """The command that installs an extra of this package, quoted for a shell; the name is the one in setup.py."""
    return f"pip install 'robot_perf[{extra}]'"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean …?` with the nearest of the known words, case apart; empty where none is near."""
    import difflib  # on use: the measured process imports this module and never asks

    spelled = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return f"Did you mean {spelled[near[0]]}?" if near else ""
