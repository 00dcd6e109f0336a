"""An ncu report held against the prediction: agree, or disagree with the first reason whose own test holds (profiles.md section 13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robot_perf.analyze.prediction.predict import LIMIT_COMPUTE, LIMIT_DRAM, LIMIT_LAUNCH, Ceiling, Prediction

AGREE_POINTS = 10.0
COMPUTE_FROM_PCT = 60.0  # below, sm % is the issue rate or another pipe and says nothing of FLOP
REREAD_FACTOR = 1.25
CLOCK_TOLERANCE = 0.05
FASTER_THAN_FLOOR = 0.9
COLD_FACTOR = 3.0
HIGH_HIT_PCT = 60.0
NEAR_ZERO = 0.10  # written bytes under this share of the compulsory writes


@dataclass(frozen=True)
class Agreement:
    """One percentage against its implied value. `agrees` None: not compared."""

    what: str
    implied_pct: float
    measured_pct: float | None
    agrees: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """The outcome: confirmed, disagrees, or can't answer, with the reason and every number."""

    prediction: Prediction
    outcome: str
    reason: str
    measured_ns: float
    dram: Agreement
    compute: Agreement
    measured_bytes: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One row of an ncu report, and what is known of its neighbours."""

    name: str
    dur_ns: float
    kind: str  # class of profiles.md section 11
    numbers: Mapping[str, Any]
    cache_control: str | None = None
    same_count: int = 1  # launches of this name and grid in the report
    same_median_ns: float | None = None
    first_of_name: bool = False

    def get(self, name: str) -> float | None:
        """A counter, None where it was not collected."""
        value = self.numbers.get(name)
        return None if value is None else float(value)

    @property
    def grid(self) -> int | None:
        """Blocks of the grid."""
        sizes = [self.numbers.get(f"grid_{a}") for a in "xyz"]
        return None if any(s is None for s in sizes) else int(sizes[0]) * int(sizes[1]) * int(sizes[2])  # type: ignore[arg-type]

    @property
    def dram_bytes(self) -> float | None:
        """DRAM bytes: read and written counters, else the rate times the duration (rule C15)."""
        read, written, rate = self.get("dram_read_bytes"), self.get("dram_write_bytes"), self.get("dram_bytes_s")
        if read is not None and written is not None:
            return read + written
        return None if rate is None else rate * self.dur_ns / 1e9


def compare(prediction: Prediction, launch: Launch) -> Comparison:
    """Holds the report against the prediction; a disagreement gets the first reason whose own test holds."""
    expected, ceiling = prediction.expectation, prediction.ceiling
    seconds = launch.dur_ns / 1e9
    clock = _clock_factor(ceiling, launch)
    implied_dram = 100 * expected.bytes / (seconds * ceiling.bandwidth_bytes_s)
    implied_compute = 100 * expected.flop / (seconds * ceiling.peak_flop_s * clock)
    dram, sm = launch.get("dram_pct"), launch.get("sm_pct")
    dram_side = _agreement("DRAM", implied_dram, dram)
    compared = (
        sm is not None and max(implied_compute, sm if prediction.limit == LIMIT_COMPUTE else 0.0) >= COMPUTE_FROM_PCT
    )
    compute_side = _agreement("compute", implied_compute, sm if compared else None, shown=sm)
    if dram_side.agrees is False:
        dram_side = Agreement("DRAM", implied_dram, dram, False, reason_for(prediction, launch, implied_dram, dram))
    if compute_side.agrees is False:
        compute_side = Agreement(
            "compute", implied_compute, sm, False, reason_for(prediction, launch, implied_compute, sm, dram=False)
        )
    outcome, reason = _outcome(prediction, launch, dram_side, compute_side)
    return Comparison(
        prediction,
        outcome,
        reason,
        launch.dur_ns,
        dram_side,
        compute_side,
        launch.dram_bytes,
        tuple(_notes(prediction, launch, clock, dram_side)),
    )


def _clock_factor(ceiling: Ceiling, launch: Launch) -> float:
    """Measured SM frequency over the clock that the peak fits; 1 where either is unknown."""
    measured = launch.get("sm_hz")
    return measured / ceiling.peak_clock_hz if measured and ceiling.peak_clock_hz else 1.0


def _agreement(what: str, implied: float, measured: float | None, *, shown: float | None = None) -> Agreement:
    if measured is None:
        return Agreement(what, implied, shown, None)
    return Agreement(what, implied, measured, abs(implied - measured) <= AGREE_POINTS)


def _outcome(prediction: Prediction, launch: Launch, dram: Agreement, compute: Agreement) -> tuple[str, str]:
    if other := _other_grid(prediction, launch):  # whatever its numbers are, they are another kernel's
        return "can't answer", other
    if prediction.limit == LIMIT_LAUNCH:
        short = launch.dur_ns < 10_000
        if launch.kind in ("small grid", "latency", "small grid or latency") or short:
            return "confirmed", f"{LIMIT_LAUNCH}: the kernel is {launch.kind}" + (", short" if short else "")
        return "disagrees", f"predicted {LIMIT_LAUNCH}, the kernel is {launch.kind}"
    side = dram if prediction.limit == LIMIT_DRAM else compute
    if side.agrees is None:
        return (
            "can't answer",
            f"{'gpu__dram_throughput' if side is dram else 'sm__throughput'} was not collected, or is too low to compare",
        )
    return ("confirmed", prediction.limit) if side.agrees else ("disagrees", side.reason)


def reason_for(
    prediction: Prediction, launch: Launch, implied: float, measured: float | None, *, dram: bool = True
) -> str:
    """The first reason whose own test holds, in the order of section 13's table."""
    for reason in (_wrong_kernel, _cold, _flushed, _resident, _writes_stayed, _reread, _clock, _tail):
        if text := reason(prediction, launch, implied, measured if measured is not None else 0.0, dram):
            return text
    return "disagrees, reason unknown"


def _resident_set(prediction: Prediction) -> bool:
    l2 = prediction.ceiling.l2_bytes
    return l2 is not None and prediction.expectation.working_set < l2


def _other_grid(prediction: Prediction, launch: Launch) -> str:
    expected = prediction.expectation.grid
    if expected is None or launch.grid is None or expected == launch.grid:
        return ""
    return f"wrong kernel or shape matched: grid of {launch.grid} blocks, expected {expected}"


def _wrong_kernel(prediction: Prediction, launch: Launch, implied: float, measured: float, dram: bool) -> str:
    if other := _other_grid(prediction, launch):
        return other
    floor = max(prediction.memory_ns, prediction.compute_ns)
    if launch.dur_ns < FASTER_THAN_FLOOR * floor and not (_resident_set(prediction) and prediction.limit == LIMIT_DRAM):
        return (
            f"wrong kernel or shape matched: {launch.dur_ns / 1000:.2f} us is below the floor of {floor / 1000:.2f} us"
        )
    return ""


def _cold(prediction: Prediction, launch: Launch, implied: float, measured: float, dram: bool) -> str:
    if launch.same_median_ns and launch.dur_ns > COLD_FACTOR * launch.same_median_ns:
        return f"cold launch: {launch.dur_ns / launch.same_median_ns:.1f} times the median of the same kernel and grid"
    return "cold launch: the first of its name and grid" if launch.first_of_name and launch.same_count > 1 else ""


def _flushed(prediction: Prediction, launch: Launch, implied: float, measured: float, dram: bool) -> str:
    if dram and launch.cache_control == "all" and _resident_set(prediction) and measured > implied:
        return "caches flushed by the tool: DRAM % is right for a first call, not for the loop"
    return ""


def _resident(prediction: Prediction, launch: Launch, implied: float, measured: float, dram: bool) -> str:
    hit = launch.get("l2_hit_pct")
    if (
        not dram
        or launch.cache_control == "all"
        or not _resident_set(prediction)
        or measured >= implied
        or hit is None
        or hit < HIGH_HIT_PCT
    ):
        return ""
    passes = launch.get("passes")
    warmed = (
        f", warmed by the replay itself ({passes:.0f} passes, cache control none)"
        if passes and passes > 1 and launch.cache_control == "none"
        else ""
    )
    return f"L2-resident at {hit:.0f} % hit rate{warmed}"


def _writes_stayed(prediction: Prediction, launch: Launch, implied: float, measured: float, dram: bool) -> str:
    expected = prediction.expectation
    read, written, total = launch.get("dram_read_bytes"), launch.get("dram_write_bytes"), launch.dram_bytes
    if not dram or not expected.write_bytes or total is None:
        return ""
    if read is not None and written is not None:
        stayed = abs(read / expected.read_bytes - 1) < 0.25 and written < NEAR_ZERO * expected.write_bytes
    else:
        stayed = abs(total / expected.read_bytes - 1) < NEAR_ZERO
    return "writes stayed in L2: the bytes read match, those written never reached DRAM in time" if stayed else ""


def _reread(prediction: Prediction, launch: Launch, implied: float, measured: float, dram: bool) -> str:
    total = launch.dram_bytes
    if total is None or total <= REREAD_FACTOR * prediction.expectation.bytes:
        return ""
    return f"re-reads: {total / prediction.expectation.bytes:.1f} times the compulsory bytes"


def _clock(prediction: Prediction, launch: Launch, implied: float, measured: float, dram: bool) -> str:
    factor = _clock_factor(prediction.ceiling, launch)
    if not dram and factor < 1 - CLOCK_TOLERANCE:
        return f"clock: {100 * factor:.0f} % of the clock that the peak fits, and still apart after scaling"
    tensor = launch.get("tensor_pct")
    if (
        not dram
        and prediction.expectation.dtype in ("bf16", "fp16", "fp8", "int8")
        and tensor is not None
        and tensor < 1
    ):
        return "peak of the wrong unit: the tensor pipe is idle, the arithmetic runs elsewhere"
    return ""


def _tail(prediction: Prediction, launch: Launch, implied: float, measured: float, dram: bool) -> str:
    waves = launch.get("waves_used") if launch.get("waves") is None else launch.get("waves")
    if waves is None:
        return ""
    if waves < 1:
        return f"small grid: {waves:.2f} waves"
    return f"tail: {waves:.2f} waves" if waves % 1 and 1 / (int(waves) + 1) >= 0.2 else ""


def _notes(prediction: Prediction, launch: Launch, clock: float, dram: Agreement) -> list[str]:
    notes = []
    if abs(clock - 1) > CLOCK_TOLERANCE:
        unscaled = 100 * prediction.expectation.flop / (launch.dur_ns / 1e9 * prediction.ceiling.peak_flop_s)
        notes.append(
            f"SM clock {(launch.get('sm_hz') or 0) / 1e9:.3f} GHz: implied compute is {scaled_compute_pct(prediction, launch, clock):.1f} % at it, {unscaled:.1f} % unscaled"
        )
    if dram.agrees and launch.cache_control == "all" and _resident_set(prediction):
        notes.append("DRAM agrees for a cold call: caches were flushed, the loop finds the data in L2")
    read = launch.get("dram_read_bytes")
    if (
        read is not None
        and launch.cache_control == "none"
        and _resident_set(prediction)
        and abs(read / prediction.expectation.read_bytes - 1) < 0.25
    ):
        notes.append("the loop reads it from DRAM: the work before it evicted the data")
    if prediction.ceiling.peak_clock_hz is None and launch.get("sm_hz"):
        notes.append("the clock that the peak fits is not known for this device: implied compute is not scaled")
    return notes


def scaled_compute_pct(prediction: Prediction, launch: Launch, clock: float) -> float:
    """Implied compute percentage at the measured clock."""
    return 100 * prediction.expectation.flop / (launch.dur_ns / 1e9 * prediction.ceiling.peak_flop_s * clock)
