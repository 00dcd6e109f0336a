"""Phase-wise floor of a policy: t >= sum over phases of n x max(bytes / bandwidth, FLOP / peak).

Bytes alone bound a VLA badly: its image and text prefix is compute-bound on small GPUs. FLOP = 2 x parameters x tokens;
attention FLOP and activations are left out, so the floor is lower than the truth, never higher.
"""

from __future__ import annotations

from dataclasses import dataclass

from robot_perf.analyze.ceiling.bound import RESIDENT_SHARE, Launches
from robot_perf.devices import bandwidth_of, peak_of
from robot_perf.errors import UsageError
from robot_perf.specs.device import DeviceSpec, PowerMode
from robot_perf.specs.model import SizedPolicy, Stage


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """One phase, all its repeats together. Times in ns; `compute_ns` None: tokens or peak unknown, bytes alone
    count.
    """

    name: str
    repeats: int
    tokens: int | None
    bytes: float
    flop: float | None
    memory_ns: float
    compute_ns: float | None
    least_ns: float
    limited_by: str  # DRAM | compute | cache


@dataclass(frozen=True, slots=True)
class PhaseFloor:
    """The floor of one call (one chunk). `at_least` names stages without a size: the true floor is higher."""

    device: str
    power_mode: str | None
    phases: tuple[PhaseTime, ...]
    floor_ns: float
    bytes_only_ns: float
    bytes: float
    limited_by: str
    launch_ns: float | None
    fits_memory: bool | None
    at_least: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def fraction(self, measured_ns: float) -> float:
        """Share of the measured latency that the floor explains; above 1 the claim beats the hardware."""
        return self.floor_ns / measured_ns


def phase_floor(
    policy: SizedPolicy,
    device: DeviceSpec,
    mode: PowerMode | None = None,
    *,
    weight_bits: float = 16,
    compute: str = "bf16",
    launches: Launches | None = None,
) -> PhaseFloor:
    """The floor of one call of a sized policy on a device. Raises UsageError where bandwidth is unknown or no stage
    is.
    """
    if not policy.stages:
        raise UsageError("no stage with a known size", do="Give --params, or the parameters of each part.")
    bandwidth = bandwidth_of(device, mode)
    peak, notes = _peak(device, compute, mode)
    touched = sum(s.params if s.new_params is None else s.new_params for s in policy.stages) * weight_bits / 8
    cached = device.l2_bytes is not None and touched < RESIDENT_SHARE * device.l2_bytes
    if device.l2_bytes is None:
        notes.append("L2 size unknown: whether weights stay in cache could not be checked")
    phases = tuple(_phase(s, device, bandwidth, peak, weight_bits, cached) for s in policy.stages)
    if cached:
        notes.append("DRAM bound not applicable (L2-resident): compute and launch bounds only")
    notes += [
        f"{p.name}: its repeats read from L2, DRAM once" for p in phases if p.limited_by == "cache" and not cached
    ]
    floor = sum(p.least_ns for p in phases)
    launch_ns = launches.total_ns if launches else None
    limit = max(phases, key=lambda p: p.least_ns).limited_by
    moved = policy.read_params * weight_bits / 8
    return PhaseFloor(
        device=device.name,
        power_mode=mode.name if mode else None,
        phases=phases,
        floor_ns=max(floor, launch_ns or 0.0),
        bytes_only_ns=0.0 if cached else moved / bandwidth * 1e9,
        bytes=moved,
        limited_by="launch" if launch_ns is not None and launch_ns > floor else limit,
        launch_ns=launch_ns,
        fits_memory=None
        if device.memory_bytes is None
        else policy.resident_params * weight_bits / 8 <= device.memory_bytes,
        at_least=policy.missing,
        notes=tuple(notes),
    )


def _phase(
    stage: Stage, device: DeviceSpec, bandwidth: float, peak: float | None, weight_bits: float, cached: bool
) -> PhaseTime:
    once = stage.params * weight_bits / 8
    held = device.l2_bytes is not None and once < RESIDENT_SHARE * device.l2_bytes
    reads = 0 if cached else 1 if held else stage.repeats
    flop = None if stage.tokens is None else 2.0 * stage.params * stage.tokens * stage.repeats
    memory_ns = reads * once / bandwidth * 1e9
    compute_ns = None if flop is None or peak is None else flop / peak * 1e9
    least = max(memory_ns, compute_ns or 0.0)
    if compute_ns is not None and compute_ns > memory_ns:
        limit = "compute"
    else:
        limit = "cache" if reads < stage.repeats else "DRAM"
    return PhaseTime(stage.name, stage.repeats, stage.tokens, reads * once, flop, memory_ns, compute_ns, least, limit)


def _peak(device: DeviceSpec, compute: str, mode: PowerMode | None) -> tuple[float | None, list[str]]:
    try:
        return peak_of(device, compute, mode), []
    except UsageError:
        return None, [f"compute bound not checked, bytes only: {compute} peak unknown (--peak {compute}=…)"]
