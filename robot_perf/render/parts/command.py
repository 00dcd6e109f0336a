"""The command that repeats a Run, ready to paste."""

from __future__ import annotations

import shlex

from robot_perf.render.lines import clean
from robot_perf.run.model import Run
from robot_perf.units import MS, NS_PER_S

__all__ = ["rerun_command"]

# options of the old run that a new one must not repeat: length (given anew) and files (never overwritten)
_WITH_VALUE = ("--steps", "--duration", "--soak", "-o", "--output", "--junit")
_ALONE = ("--force", "--json", "--quiet", "--github")


def rerun_command(run: Run, *, steps: int | None = None) -> str:
    """`robot-perf deadline …` as it was called, with the new number of steps; made up from the Run if it wasn't."""
    argv = run.conditions.get("argv")
    words = [str(w) for w in argv] if isinstance(argv, list) and argv[:1] == ["deadline"] else _from_scratch(run)
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in _WITH_VALUE:
            skip = True
        elif word not in _ALONE and not word.startswith(tuple(f"{o}=" for o in _WITH_VALUE)):
            kept.append(word)
    if steps is not None:
        kept += ["--steps", str(steps)]
    elif not run.conditions.get("planned"):
        kept += ["--steps", str(run.scheduled)]
    return clean("robot-perf " + " ".join(shlex.quote(w) for w in kept))


def _from_scratch(run: Run) -> list[str]:
    loop, budget, policy = run.loop, run.budget, run.policy
    rate = run.conditions.get("rate_hz") or f"{NS_PER_S / loop.period_ns:g}" if loop.period_ns else "50"
    words = ["deadline", policy.path or policy.factory or policy.name, "--rate", str(rate)]
    if loop.deadline_ns != loop.period_ns:
        words += ["--deadline-ms", f"{loop.deadline_ns / MS:g}"]
    if budget.miss_rate != 1e-3:
        words += ["--miss-rate", f"{budget.miss_rate:g}"]
    return words
