"""What a diagnosis is made of. Every rule ends as found, clean or can't answer; an empty result is never a fourth outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FOUND, CLEAN, CANT = "found", "clean", "can't answer"
GPU_UNMEASURED = "GPU, class not measured"
COMPONENTS = ("transfer", "communication", "host", "dependency", "unknown", "GPU")


@dataclass(frozen=True)
class Fix:
    """One thing to do about a finding: what it gains, what it costs, and a command where one exists."""

    what: str
    gains: str
    costs: str
    command: str = ""


@dataclass(frozen=True)
class Finding:
    """The outcome of one rule. `share` is its part of a step in percent; `evidence` holds numbers with their unit in the name."""

    rule: str
    outcome: str
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    share: float | None = None
    concerned: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    confirm: str = ""


@dataclass(frozen=True)
class CantAnswer:
    """A question that this file can't answer, why, and the capture that would."""

    question: str
    reason: str
    capture: str


@dataclass(frozen=True)
class KernelClass:
    """What limits one kernel (profiles.md section 11)."""

    name: str
    kind: str  # small grid | latency | small grid or latency | memory | compute | balanced | high throughput
    side: str | None  # DRAM | L2 | L1 | compute | ... for memory and high throughput
    dur_ns: int | None
    numbers: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    source: str = "counters"  # where the waves came from
    tool_verdict: str | None = None
    done: bool = False  # at 90 % of the probed bandwidth or more: only fewer bytes help
    mark: str = ""  # NVTX range around the launch

    @property
    def label(self) -> str:
        """`memory, L2`, `small grid`: the name a verdict uses."""
        return f"{self.kind}, {self.side}" if self.side and self.kind in ("memory", "high throughput") else self.kind


@dataclass(frozen=True)
class StepCost:
    """Compulsory bytes and FLOP of one step; None where unknown."""

    bytes_read: float | None
    flop: float | None
    dtype: str


@dataclass(frozen=True)
class Diagnosis:
    """Facts first, then one primary limit, then every rule's outcome."""

    primary: str
    headline: str
    findings: tuple[Finding, ...]
    profile: Mapping[str, Any]  # kernels, launches, busy_fraction and more counts
    facts: Mapping[str, Any]
    deadline: str = ""
    reasons: tuple[str, ...] = ()  # why the verdict is can't answer
    kernels: tuple[KernelClass, ...] = ()
    cant_answer: tuple[CantAnswer, ...] = ()
    checks: tuple[Finding, ...] = ()  # rules beyond the normative names: graph and compile fallbacks
    notes: tuple[str, ...] = ()
    source: str = ""
    invalid: str = ""  # why the Run is INVALID: all of the above is about a measurement from which nothing follows

    @property
    def answered(self) -> bool:
        """True when at least one rule ended in found or clean."""
        return any(f.outcome != CANT for f in self.findings)
