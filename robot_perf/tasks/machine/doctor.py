"""`doctor`: what on this machine hurts latency, why, and the one command that mends it: printed, never run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_perf.analyze.doctor import Finding, judge_facts
from robot_perf.measure.machine.doctor_facts import doctor_facts

__all__ = ["Examination", "examine"]


@dataclass(frozen=True, slots=True)
class Examination:
    """The facts of a machine, and one finding per check."""

    facts: Mapping[str, Any]
    findings: tuple[Finding, ...]


def examine(root: Path = Path("/"), **given: Any) -> Examination:
    """Reads the machine under `root` and judges it; `given` goes to `doctor_facts`."""
    facts = doctor_facts(root, **given)
    return Examination(facts, judge_facts(facts))
