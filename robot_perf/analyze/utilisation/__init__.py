"""The five-rung ladder for a GPU that looks idle, and the utilisation numbers beside it.

The rungs are a literal table in the order in which they are asked: the cheap and likely causes first, kernels last.
"""

from __future__ import annotations

from collections.abc import Callable

from robot_perf.analyze.diagnose.model import CANT, FOUND, Finding
from robot_perf.analyze.utilisation import rungs
from robot_perf.analyze.utilisation.model import Evidence, Ladder, LadderThresholds

__all__ = ["RUNGS", "Evidence", "Ladder", "LadderThresholds", "climb"]

Rung = Callable[[Evidence, LadderThresholds], Finding]

RUNGS: dict[str, Rung] = {
    "is there work": rungs.work,
    "is the batch capped": rungs.batch,
    "is the CPU in the path": rungs.cpu,
    "transfers or other GPUs": rungs.transfers,
    "kernels": rungs.kernels,
}


def climb(evidence: Evidence, limits: LadderThresholds | None = None) -> Ladder:
    """Asks the rungs in order and stops at the first that is found. Pure: the same evidence gives the same ladder."""
    used = limits or LadderThresholds()
    asked: list[Finding] = []
    for rung in RUNGS.values():
        asked.append(rung(evidence, used))
        if asked[-1].outcome == FOUND:
            break
    return Ladder(tuple(asked), tuple(RUNGS)[len(asked) :], _headline(asked))


def _headline(asked: list[Finding]) -> str:
    last, number = asked[-1], len(asked)
    open_ = [i for i, f in enumerate(asked[:-1], 1) if f.outcome == CANT]
    before = f" (rung {', '.join(map(str, open_))} could not be answered)" if open_ else ""
    if last.outcome == FOUND:
        return f"rung {number}, {last.rule}: {last.reason}{before}"
    if all(f.outcome == CANT for f in asked):
        return "can't answer: no rung has evidence here"
    return "no rung found a cause" + (f" (rung {', '.join(str(i) for i, f in enumerate(asked, 1) if f.outcome == CANT)} could not be answered)" if any(f.outcome == CANT for f in asked) else "")  # fmt: skip
