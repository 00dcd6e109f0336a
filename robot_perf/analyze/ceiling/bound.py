"""The ceiling of a decode step on one device: a bound that nothing can pass, and beside it what to expect.

bound: minimum bytes over spec bandwidth. expected: scales, distinct experts, and what a probe reached or 0.8 of spec.
Only the bound can be violated, and then the inputs are wrong (cache, batch, speculation, device, mode).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robot_perf.analyze.ceiling.decode_bytes import DecodeLoad
from robot_perf.devices import bandwidth_of, peak_of
from robot_perf.errors import UsageError
from robot_perf.specs.device import DeviceSpec, PowerMode

# Share of spec bandwidth to expect where no probe was run: copy and read probes reach 0.85 to 0.95, decode loops less.
EXPECTED_SHARE = 0.8
# Below this share of L2 the weights stay in cache between steps, and DRAM bandwidth bounds nothing.
RESIDENT_SHARE = 0.8
DEFAULT_LAUNCH_NS = 5_000.0


@dataclass(frozen=True, slots=True)
class Launches:
    """Kernel launches of a step and the host's cost of each, ns."""

    count: int
    cost_ns: float = DEFAULT_LAUNCH_NS

    @property
    def total_ns(self) -> float:
        """Least time that launching takes."""
        return self.count * self.cost_ns


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The bound of one decode step on one device. Times in ns; None is unknown or not applicable, with a note saying
    why.
    """

    device: str
    power_mode: str | None
    step_ns: float | None
    tokens_per_s: float | None  # all streams together
    expected_tokens_per_s: float | None
    bytes: float
    limited_by: str  # DRAM | compute | launch | unknown
    fits_memory: bool | None
    batch: int = 1
    memory_ns: float | None = None
    compute_ns: float | None = None
    launch_ns: float | None = None
    bandwidth_bytes_s: float | None = None
    dram_applies: bool = True
    accepted: float = 1.0
    notes: tuple[str, ...] = ()

    @property
    def tokens_per_s_per_stream(self) -> float | None:
        """Tokens per second that one of the batch's streams sees."""
        return None if self.tokens_per_s is None else self.tokens_per_s / self.batch


def decode_ceiling(
    load: DecodeLoad,
    device: DeviceSpec,
    mode: PowerMode | None = None,
    *,
    compute: str = "bf16",
    launches: Launches | None = None,
    probe_bytes_s: float | None = None,
) -> Ceiling:
    """The ceiling of `load`. Raises UsageError where the device's bandwidth is unknown; an unknown peak is only
    noted.
    """
    bandwidth = bandwidth_of(device, mode)
    notes: list[str] = []
    compute_ns = _compute_ns(load.flop, device, mode, compute, notes)
    launch_ns = launches.total_ns if launches else None
    resident = cache_resident(load.bound_bytes, device, notes)
    memory_ns = None if resident else load.bound_bytes / bandwidth * 1e9
    step_ns, limited_by = slowest({"DRAM": memory_ns, "compute": compute_ns, "launch": launch_ns})
    if resident and launches is None:
        notes.append("launch bound unknown: give --launches")
    expected_ns = None
    if not resident:
        likely = probe_bytes_s if probe_bytes_s is not None else EXPECTED_SHARE * bandwidth
        expected_ns, _ = slowest({"DRAM": load.expected_bytes / likely * 1e9, "c": compute_ns, "l": launch_ns})
    tokens = load.accepted * load.batch * 1e9
    return Ceiling(
        device=device.name,
        power_mode=mode.name if mode else None,
        step_ns=step_ns,
        tokens_per_s=None if step_ns is None else tokens / step_ns,
        expected_tokens_per_s=None if expected_ns is None else tokens / expected_ns,
        bytes=load.bound_bytes,
        limited_by=limited_by,
        fits_memory=None if device.memory_bytes is None else load.resident_bytes <= device.memory_bytes,
        batch=load.batch,
        memory_ns=memory_ns,
        compute_ns=compute_ns,
        launch_ns=launch_ns,
        bandwidth_bytes_s=bandwidth,
        dram_applies=not resident,
        accepted=load.accepted,
        notes=tuple(notes),
    )


def cache_resident(step_bytes: float, device: DeviceSpec, notes: list[str]) -> bool:
    """Whether a step's bytes stay in L2 between steps; adds the note that says so, or that nobody can say."""
    if device.l2_bytes is None:
        notes.append("L2 size unknown: whether the weights stay in cache could not be checked")
        return False
    if step_bytes >= RESIDENT_SHARE * device.l2_bytes:
        return False
    notes.append(
        f"DRAM bound not applicable (L2-resident): {step_bytes / 1e6:.2f} MB a step, L2 {device.l2_bytes / 2**20:g} MiB"
    )
    return True


def slowest(times_ns: dict[str, float | None]) -> tuple[float | None, str]:
    """The largest of the known times and its name; (None, "unknown") where none is known."""
    known = {name: value for name, value in times_ns.items() if value is not None}
    if not known:
        return None, "unknown"
    name = max(known, key=lambda n: known[n])
    return known[name], name


@dataclass(frozen=True, slots=True)
class RateCheck:
    """Whether work of `needed_ns` fits the period of a rate, and how much of the period stays free (negative:
    lacks).
    """

    rate_hz: float
    budget_ns: float
    needed_ns: float
    fits: bool
    headroom: float
    tokens_in_budget: int | None = None


def check_rate(rate_hz: float, needed_ns: float, *, actions: int = 1, token_ns: float | None = None) -> RateCheck:
    """Does it fit? The budget is `actions` / rate: a chunk of executed actions buys that many periods."""
    require_rate(rate_hz)
    if actions < 1:
        raise UsageError("executed actions must be at least 1", why=f"Got {actions}.")
    budget_ns = actions * 1e9 / rate_hz
    tokens = None if not token_ns else math.floor(budget_ns / token_ns * (1 + 1e-12))
    return RateCheck(rate_hz, budget_ns, needed_ns, needed_ns <= budget_ns, 1 - needed_ns / budget_ns, tokens)


def require_rate(rate_hz: float) -> None:
    """Raises UsageError unless the rate is one that a loop could have: once in twelve days to once in a microsecond."""
    if not 1e-6 <= rate_hz <= 1e6:
        raise UsageError(f"rate {rate_hz:g} Hz is out of range", why="From 1e-6 to 1e6 Hz: above 0 Hz and finite.")


def _compute_ns(
    flop: float, device: DeviceSpec, mode: PowerMode | None, compute: str, notes: list[str]
) -> float | None:
    try:
        return flop / peak_of(device, compute, mode) * 1e9
    except UsageError:
        notes.append(f"compute bound not checked: {compute} peak unknown (--peak {compute}=…)")
        return None
