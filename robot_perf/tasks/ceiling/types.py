"""What `robot-perf ceiling` is asked and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from robot_perf.analyze.ceiling.bound import Ceiling, RateCheck
from robot_perf.analyze.ceiling.check import RateVerdict
from robot_perf.analyze.ceiling.inverse import Limit
from robot_perf.analyze.ceiling.phases import PhaseFloor
from robot_perf.specs.device import DeviceSpec, PowerMode
from robot_perf.specs.model import Documented
from robot_perf.tasks.ceiling.model import ModelRequest
from robot_perf.tasks.ceiling.targets import TargetRequest


@dataclass(frozen=True, slots=True)
class CeilingRequest:
    """What is asked. `batch` None is one stream for a bound, and unknown for a measured rate. Rates in Hz."""

    target: TargetRequest
    model: ModelRequest
    weight_bits: float | None = None
    weight_format: str | None = None
    group_size: int | None = None
    weight_bytes: float | None = None
    kv_bits: float = 16
    compute: str | None = None
    context: int = 0
    batch: int | None = None
    accepted: float | None = None
    state_bytes: float = 0.0
    launches: int | None = None
    launch_us: float = 5.0
    probe: Path | None = None
    rate_hz: float | None = None
    action_tokens: int = 1
    executed: int | None = None
    measured: float | None = None
    measured_unit: str = "tok/s"
    speculative: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One device in one mode: the ceiling of a decoder or of a policy, or why there is none."""

    device: DeviceSpec
    mode: PowerMode | None
    decode: Ceiling | None = None
    policy: PhaseFloor | None = None
    reason: str = ""
    rate: RateCheck | None = None
    limits: tuple[Limit, ...] = ()
    verdict: RateVerdict | None = None
    measured_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class CeilingAnswer:
    """All rows, and what they assume. `actions` executed per chunk, None where the user must say."""

    name: str
    kind: str  # decoder | policy
    rows: tuple[Row, ...]
    assumptions: tuple[str, ...]
    weight_bits: float
    compute: str
    batch: int = 1
    rate_hz: float | None = None
    actions: int | None = None
    action_tokens: int = 1
    documented: tuple[Documented, ...] = ()
    views: int | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
