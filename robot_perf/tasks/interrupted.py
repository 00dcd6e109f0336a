"""Runs that a person ended: the conductor answers Ctrl-C with a saved Run, which a command of several measurements must notice."""

from __future__ import annotations

from robot_perf.run.model import Run

__all__ = ["interrupted", "whole"]


def interrupted(run: Run) -> bool:
    """Whether Ctrl-C, SIGTERM or a closed terminal ended it."""
    return str(run.conditions["state"]).startswith("interrupted by")


def whole(run: Run) -> Run:
    """The Run. Raises KeyboardInterrupt for one that a person ended: nothing follows from it, and no other one is to begin."""
    if interrupted(run):
        raise KeyboardInterrupt
    return run
