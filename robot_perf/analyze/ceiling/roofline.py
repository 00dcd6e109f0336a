"""The roofline: what bandwidth and peak allow for work of a given operational intensity.

Sources: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009; the counts per operation as derived beside each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robot_perf.errors import UsageError

DTYPE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


@dataclass(frozen=True, slots=True)
class Roof:
    """One device's two limits at one precision: bytes/s (spec) and dense FLOP/s."""

    bandwidth_bytes_s: float
    peak_flop_s: float
    name: str = ""
    dtype: str = "bf16"

    def __post_init__(self) -> None:
        if not (0 < self.bandwidth_bytes_s < math.inf and 0 < self.peak_flop_s < math.inf):
            raise UsageError(
                f"roof of {self.name or 'the device'}: bandwidth and peak must be above 0 and finite",
                why=f"Got {self.bandwidth_bytes_s:g} bytes/s and {self.peak_flop_s:g} FLOP/s.",
            )

    @property
    def ridge(self) -> float:
        """Ridge point, FLOP/byte: peak / bandwidth. Left of it memory limits, right of it arithmetic."""
        return self.peak_flop_s / self.bandwidth_bytes_s

    def attainable(self, intensity: float) -> float:
        """FLOP/s that work of this intensity (FLOP/byte) can reach at most: min(peak, intensity x bandwidth)."""
        return min(self.peak_flop_s, intensity * self.bandwidth_bytes_s)

    def place(self, work: Work) -> Placement:
        """Where the work lies: side of the ridge, attainable rate, the two times (ns) and the larger of them."""
        memory_ns = work.bytes / self.bandwidth_bytes_s * 1e9
        compute_ns = work.flop / self.peak_flop_s * 1e9
        return Placement(
            work=work,
            roof=self,
            limited_by="memory" if memory_ns >= compute_ns else "compute",
            attainable_flop_s=self.attainable(work.intensity),
            memory_ns=memory_ns,
            compute_ns=compute_ns,
            least_ns=max(memory_ns, compute_ns),
        )


@dataclass(frozen=True, slots=True)
class Work:
    """What one execution does: FLOP (2 per multiply-add) and bytes moved to and from DRAM, each value once."""

    flop: float
    bytes: float
    name: str = ""

    def __post_init__(self) -> None:
        if self.flop < 0 or not self.bytes > 0 or not math.isfinite(self.flop + self.bytes):
            raise UsageError(f"{self.name or 'work'}: needs bytes above 0 and FLOP of at least 0")

    @property
    def intensity(self) -> float:
        """Operational intensity, FLOP/byte."""
        return self.flop / self.bytes


@dataclass(frozen=True, slots=True)
class Placement:
    """Work under a roof. Times in ns; `least_ns` is the bound, the larger of the two."""

    work: Work
    roof: Roof
    limited_by: str  # memory | compute
    attainable_flop_s: float
    memory_ns: float
    compute_ns: float
    least_ns: float

    @property
    def ridge_factor(self) -> float:
        """Intensity over ridge: below 1 is left of the ridge (memory-bound)."""
        return self.work.intensity / self.roof.ridge

    @property
    def peak_share(self) -> float:
        """Share of the dense peak that the work can reach at most."""
        return self.attainable_flop_s / self.roof.peak_flop_s


def linear(hidden: int, tokens: int, *, element_bytes: float = 2.0, activations: bool = True) -> Work:
    """A linear layer of `hidden` x `hidden` on `tokens` tokens: 2 N d^2 FLOP; weights, input and output moved once.

    bytes = b (d^2 + 2 N d), so in BF16 the intensity is N d / (d + 2 N). Without `activations` only weights count
    (intensity N in BF16): that is the usual shorthand, and wrong as soon as N nears d.
    """
    _positive(hidden=hidden, tokens=tokens, element_bytes=element_bytes)
    moved = hidden * hidden + (2 * tokens * hidden if activations else 0)
    return Work(2.0 * tokens * hidden * hidden, element_bytes * moved, f"linear d={hidden} N={tokens}")


def crossover_tokens(roof: Roof, hidden: int, *, element_bytes: float = 2.0, activations: bool = True) -> float:
    """Tokens at which a linear layer of `hidden` reaches the ridge; infinity where it never does.

    From linear(): 2 N d / (b (d + 2 N)) = R gives N = b R d / (2 (d - b R)), in BF16 R d / (d - 2 R). Weights alone: b
    R / 2.
    """
    _positive(hidden=hidden, element_bytes=element_bytes)
    reduced = element_bytes * roof.ridge / 2
    if not activations:
        return reduced
    return reduced * hidden / (hidden - 2 * reduced) if hidden > 2 * reduced else math.inf


def decode_attention(
    query_heads_per_kv: int, *, context: int = 1, kv_heads: int = 1, head_dim: int = 128, kv_bytes: float = 2.0
) -> Work:
    """One token's attention over a cache of `context` tokens in one layer: 2 FLOP per query head on each cached value.

    K and V are read once and shared by the query heads of a group, so the intensity is 2 g / kv_bytes whatever the
    context.
    """
    _positive(query_heads_per_kv=query_heads_per_kv, context=context, kv_heads=kv_heads, head_dim=head_dim, kv=kv_bytes)
    values = 2.0 * context * kv_heads * head_dim
    return Work(
        2.0 * query_heads_per_kv * values, kv_bytes * values, f"decode attention, {query_heads_per_kv} heads per KV"
    )


def rmsnorm(rows: int, hidden: int, *, bytes_per_element: float = 4.0) -> Work:
    """RMSNorm of [rows, hidden]: about 4 FLOP per element; fused in BF16 it reads 2 and writes 2 bytes of each.

    Unfused eager code moves about 14 bytes per element (upcast, square, mean, scale as kernels of their own): give 14.
    The weight vector is left out: it is read from cache after the first row.
    """
    _positive(rows=rows, hidden=hidden, bytes_per_element=bytes_per_element)
    return Work(4.0 * rows * hidden, bytes_per_element * rows * hidden, f"RMSNorm {rows} x {hidden}")


def gemm_launches(blocks: int, per_block: int = 7) -> int:
    """Matrix launches of one decode step: q, k, v, o, gate, up, down in each block, if nothing is fused."""
    _positive(blocks=blocks, per_block=per_block)
    return blocks * per_block


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value <= 1e12:
            raise UsageError(f"{name.replace('_', ' ')} must be above 0 and at most 1e12", why=f"Got {value}.")
