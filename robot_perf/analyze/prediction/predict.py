"""Predict a kernel's bound before its counters are read, then hold the report against it (profiles.md section 13).

Floors: t_c = FLOP / peak, t_m = bytes / bandwidth, t_l = 2.5 us for any kernel. The largest is the predicted duration and names
the predicted limit. Implied percentages come from the MEASURED duration; DRAM's peak does not scale with the SM clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from robot_perf.errors import UsageError

LAUNCH_FLOOR_NS = 2_500.0
LIMIT_DRAM, LIMIT_COMPUTE, LIMIT_LAUNCH = "DRAM", "compute", "small grid or latency"

# SM clock that a datasheet's peak fits, Hz (profiles.md section 13, from the vendor's figures): 989 TFLOP/s bf16 at 1830 MHz
PEAK_CLOCK_HZ: dict[str, dict[str, float]] = {"H200 SXM": {"bf16": 1.83e9, "fp16": 1.83e9, "fp32": 1.98e9}}


@dataclass(frozen=True)
class Ceiling:
    """The peaks a prediction is made with; stored with it, since a later change makes another prediction."""

    device: str
    bandwidth_bytes_s: float
    peak_flop_s: float
    l2_bytes: int | None = None
    peak_clock_hz: float | None = None
    sm_count: int | None = None


@dataclass(frozen=True)
class Expectation:
    """What one kernel has to do: FLOP, compulsory bytes (each operand once), and what it must be."""

    flop: float
    read_bytes: float
    write_bytes: float
    dtype: str
    working_set_bytes: float | None = None
    name: str = ""
    grid: int | None = None

    @property
    def bytes(self) -> float:
        """Compulsory bytes, read and written."""
        return self.read_bytes + self.write_bytes

    @property
    def working_set(self) -> float:
        """Bytes that must be cached for no DRAM traffic; the compulsory bytes unless given."""
        return self.bytes if self.working_set_bytes is None else self.working_set_bytes


@dataclass(frozen=True)
class Prediction:
    """Made before the counters are read. Durations in ns, percentages of the ceiling."""

    expectation: Expectation
    ceiling: Ceiling
    memory_ns: float
    compute_ns: float
    predicted_ns: float
    limit: str
    dram_pct: float
    compute_pct: float
    intensity: float
    ridge: float


def linear(rows: int, inner: int, outer: int, dtype: str, element_bytes: int) -> Expectation:
    """The expectation of [rows, inner] x [inner, outer]: 2 rows inner outer FLOP, each operand once."""
    return Expectation(
        2.0 * rows * inner * outer,
        float((rows * inner + inner * outer) * element_bytes),
        float(rows * outer * element_bytes),
        dtype,
    )


def elementwise(elements: int, dtype: str, element_bytes: int, *, reads: int = 1) -> Expectation:
    """One FLOP per element, `reads` operands read and one written."""
    return Expectation(float(elements), float(reads * elements * element_bytes), float(elements * element_bytes), dtype)


def predict(expectation: Expectation, ceiling: Ceiling) -> Prediction:
    """The prediction. Raises UsageError for peaks or amounts that are not positive."""
    if ceiling.bandwidth_bytes_s <= 0 or ceiling.peak_flop_s <= 0 or expectation.bytes <= 0 or expectation.flop < 0:
        raise UsageError("a prediction needs positive bytes, bandwidth and peak, and FLOP of 0 or more")
    memory = expectation.bytes / ceiling.bandwidth_bytes_s * 1e9
    compute = expectation.flop / ceiling.peak_flop_s * 1e9
    duration, limit = max(
        (LAUNCH_FLOOR_NS, LIMIT_LAUNCH), (memory, LIMIT_DRAM), (compute, LIMIT_COMPUTE), key=lambda f: f[0]
    )
    return Prediction(
        expectation, ceiling, memory, compute, duration, limit, 100 * memory / duration, 100 * compute / duration, expectation.flop / expectation.bytes,
        ceiling.peak_flop_s / ceiling.bandwidth_bytes_s,
    )  # fmt: skip
