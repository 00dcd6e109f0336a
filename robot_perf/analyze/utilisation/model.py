"""What the ladder climbs on: evidence of load, of the inside of a step, of host and neighbours; and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from robot_perf.analyze.diagnose.model import Finding, Fix

SOURCES: dict[str, str] = {
    "half_empty": "ours: at or below half of the places in use on average, more than half of the time is for want of work",
    "full": "ours: from here on the places count as full",
    "waiting_share": "ours: this much waiting beside full places is a queue that the places hold up",
    "step_share": "ours: without this part of a step it would be a quarter faster; below it the climb goes on",
    "listed_share": "profiles.md V3, as in diagnose: smaller parts of a step are not listed",
    "primary_share": "profiles.md V3, as in diagnose: a part this large limits the step",
    "quota_share": "ours: stopped by its quota for 10 ms in each second",
    "queue_share": "ours: of the time in which the loop's thread wanted a processor, the part that it waited for one",
    "steal_share": "ours: of all processor time, the part that the hypervisor gave to others",
    "clock_share": "ours: median clock of the loop's processor over its highest",
}


@dataclass(frozen=True)
class LadderThresholds:
    """Values of the ladder's thresholds; shares in percent, `half_empty` and `full` as fractions of the places."""

    half_empty: float = 0.5
    full: float = 0.9
    waiting_share: float = 10.0
    step_share: float = 20.0
    listed_share: float = 10.0
    primary_share: float = 30.0
    quota_share: float = 1.0
    queue_share: float = 10.0
    steal_share: float = 5.0
    clock_share: float = 80.0


def documented() -> list[tuple[str, object, str]]:
    """(name, value, source) of every threshold."""
    return [(f.name, getattr(LadderThresholds(), f.name), SOURCES[f.name]) for f in fields(LadderThresholds)]


@dataclass(frozen=True)
class Load:
    """Time-averaged numbers in the system. A robot's loop has one place, its step; a server has a place per slot of its batch."""

    running: float
    waiting: float
    places: int
    unit: str  # step | request
    source: str
    rate_hz: float | None = None
    duration_s: float | None = None  # mean time in service
    skipped: int | None = None


@dataclass(frozen=True)
class Inside:
    """Where the time inside a step goes, percent of the step (medians); None = not known."""

    source: str
    host_pct: float | None = None
    host_name: str = "host"  # launch/CPU | sync | host stage
    host_words: str = ""
    transfer_pct: float | None = None
    communication_pct: float | None = None
    dependency_pct: float | None = None
    gpu_pct: float | None = None
    unknown_pct: float | None = None
    fixes: tuple[Fix, ...] = ()

    @property
    def idle_pct(self) -> float | None:
        """Share of the step in which the device does nothing."""
        parts = (self.host_pct, self.dependency_pct, self.unknown_pct)
        return None if any(p is None for p in parts) else float(sum(p for p in parts if p is not None))


@dataclass(frozen=True)
class HostTime:
    """What the host took from the loop in the window, percent; None = not readable, with the reason in `reasons`."""

    window_s: float
    quota_share: float | None = None
    quota_stops: int | None = None
    queue_share: float | None = None
    steal_share: float | None = None
    clock_share: float | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """All that the rungs may look at. `absent` says why a part is None: load, inside, host, neighbours."""

    load: Load | None = None
    inside: Inside | None = None
    host: HostTime | None = None
    neighbours: int | None = None  # other processes with a context on this GPU
    gpus: int | None = None  # that this work runs on
    on_cpu: bool = False  # the policy itself runs on the CPU
    absent: Mapping[str, str] = field(default_factory=dict)

    def why(self, part: str) -> str:
        """The reason why a part is absent."""
        return self.absent.get(part, "not measured")


@dataclass(frozen=True)
class Ladder:
    """The rungs that were asked, in order, up to and with the first that was found."""

    rungs: tuple[Finding, ...]
    not_asked: tuple[str, ...]
    headline: str

    @property
    def found(self) -> Finding | None:
        """The rung at which the climb stopped; None when none was found."""
        return next((f for f in self.rungs if f.outcome == "found"), None)

    @property
    def answered(self) -> bool:
        """True when at least one rung ended in found or clean."""
        return any(f.outcome != "can't answer" for f in self.rungs)


@dataclass(frozen=True)
class Reading:
    """One utilisation number: what it is, what it was, what it says. `mean` None: can't answer, with the reason."""

    field: str
    label: str
    unit: str
    source: str
    says: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    period_s: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Busy:
    """Busy fractions measured from device work, percent (profiles.md T5: each with its name); None with a reason."""

    source: str
    all_work_pct: float | None = None
    kernels_pct: float | None = None
    within_step_pct: float | None = None
    rate_hz: float | None = None
    steps: int | None = None
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
