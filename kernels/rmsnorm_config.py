"""Which kernel, tile and launch options an RMSNorm gets: one static table, no tuning at run time.

A static table is safe inside CUDA-graph capture and gives the same bits in every process. It reads the chip from the device
(compute capability, SM count, L2 size), never from a name. Plain and fused calls share the entry of their shape, so that
`add_rms_norm` sums in the same order as `rms_norm` and their results agree bit for bit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from robot_perf.errors import UsageError

__all__ = ["MAX_D", "DeviceFacts", "Launch", "choose", "device_facts", "table_entries"]

MAX_D = (
    2**24
)  # int32 column offsets would allow 2^31; nobody has a row of more than 16 M elements and no test covers one
ROW_BYTES = 65536  # a whole row in one block's registers: 32768 elements of 16 bit, 16384 of FP32
MEASURED = "measured on H200"
ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the table needs to know of a GPU. `capability` is major*10+minor; 0 is Triton's interpreter."""

    capability: int
    sm_count: int
    l2_bytes: int

    @property
    def clusters(self) -> bool:
        """Thread-block clusters and distributed shared memory (sm_90 and later; sm_87 has none)."""
        return self.capability >= 90

    @property
    def dependent_launch(self) -> bool:
        """Programmatic dependent launch (sm_90 and later), unless switched off."""
        return DEPENDENT_LAUNCH and self.capability >= 90


# Programmatic dependent launch lets a kernel be set up while the one before it runs. ROBOT_PERF_DEPENDENT_LAUNCH=0 turns it
# off for whoever suspects it; the benchmark measures both.
DEPENDENT_LAUNCH = os.environ.get("ROBOT_PERF_DEPENDENT_LAUNCH", "1") != "0"

INTERPRETER = DeviceFacts(capability=0, sm_count=16, l2_bytes=4 * 2**20)


@dataclass(frozen=True, slots=True)
class Launch:
    """One compiled form of a kernel. `basis` says whether the choice was measured or is an estimate."""

    kernel: str  # row | split | loop
    warps: int
    block: int = 0  # row: tile width; loop: chunk width
    rows: int = 1  # row: rows per program
    ctas: int = 1  # split: programs per row, one cluster
    weight_early: bool = True  # load the weight before the reduction
    pack16: bool = False  # keep the row in 16-bit registers across the reduction
    pdl: int = 0  # 0 off, 1 trigger then wait, 2 wait then trigger
    policy: int = 1  # index into POLICIES
    reverse: bool = True  # loop: second pass backwards
    registers: int = 0  # at most this many per thread, so that more blocks fit an SM; 0 leaves it to the compiler
    basis: str = ESTIMATE

    def grid(self, m: int) -> int:
        """Programs for m rows, clusters counted as one (the launcher multiplies by `ctas`)."""
        return -(-m // self.rows)


# (x and residual, weight): cache hints. x is read once; the weight is read by every program.
POLICIES: tuple[tuple[str, str], ...] = (
    ("", ""),
    ("evict_first", "evict_last"),
    ("", "evict_last"),
    ("evict_first", ""),
)

# Regimes by rows: up to FEW rows one program (or cluster) per row leaves most of the chip idle; from 4 rows per SM on, the
# memory is the bound.
FEW = 16

# d at most -> (few, some, many), each (rows, warps). Starting values for any GPU.
_ESTIMATE: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = (
    (256, ((1, 1), (4, 2), (16, 4))),
    (384, ((1, 2), (4, 4), (16, 4))),
    (512, ((1, 2), (4, 4), (8, 4))),
    (1024, ((1, 4), (2, 4), (4, 4))),
    (2048, ((1, 8), (1, 4), (2, 8))),
    (4096, ((1, 16), (1, 8), (1, 8))),
    (8192, ((1, 32), (1, 16), (1, 16))),
    (16384, ((1, 32), (1, 16), (1, 16))),
    (32768, ((1, 32), (1, 32), (1, 32))),
)


def regime(m: int | None, facts: DeviceFacts) -> int:
    """0 few, 1 some, 2 many rows; None (unknown or not to matter) is `some`."""
    if m is None:
        return 1
    return 0 if m <= FEW else 1 if m < 4 * facts.sm_count else 2


@lru_cache(maxsize=4096)
def choose(m: int | None, d: int, itemsize: int, facts: DeviceFacts, *, vector: bool = True) -> Launch:
    """The launch for m rows of d elements of `itemsize` bytes; m None is the choice that does not depend on m.

    `vector` is false where 16-byte accesses are impossible. Raises UsageError for d above MAX_D.
    """
    if d > MAX_D:
        raise UsageError(f"rms_norm: d is {d}", why=f"Supported: 1 to {MAX_D} elements per row.")
    if d * itemsize > ROW_BYTES:
        return _wide(d, itemsize, facts)
    rows, warps = next(entry[1] for entry in _ESTIMATE if d <= entry[0])[regime(m, facts)]
    if itemsize == 4:
        warps = min(32, 2 * warps)
    launch = Launch("row", warps, block=_pow2(d), rows=rows)
    if not facts.capability:
        return launch
    return replace(launch, pdl=int(facts.dependent_launch), weight_early=d * itemsize < ROW_BYTES)


def _wide(d: int, itemsize: int, facts: DeviceFacts) -> Launch:
    # Rows resident at once must fit half the L2, or the second pass reads the memory again.
    resident = facts.sm_count * 2 * d * itemsize
    warps = 16 if resident * 2 <= facts.l2_bytes else 32
    return Launch("loop", warps, block=8192 // (itemsize // 2), pdl=int(facts.dependent_launch))


def _pow2(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


@lru_cache(maxsize=64)
def device_facts(index: int) -> DeviceFacts:
    """Facts of CUDA device `index`, read from the driver."""
    import torch

    found: Any = torch.cuda.get_device_properties(index)
    return DeviceFacts(found.major * 10 + found.minor, found.multi_processor_count, found.L2_cache_size)


def table_entries(facts: DeviceFacts) -> list[tuple[int | None, int, int, Launch]]:
    """Every (m, d, itemsize, launch) the table can give for a representative shape of each cell; tests compile them all."""
    widths = [d for bound, _ in _ESTIMATE for d in (bound, bound * 3 // 4)] + [49152, 65536, 131072]
    counts = (1, FEW + 1, 4 * facts.sm_count, None)
    return [(m, d, size, choose(m, d, size, facts)) for d in widths for size in (2, 4) for m in counts]
