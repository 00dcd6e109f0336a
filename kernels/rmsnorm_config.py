"""Which kernel, tile and launch options an RMSNorm gets: one static table, no tuning at run time.

A static table is safe inside CUDA-graph capture and gives the same bits in every process. It reads the chip from the device
(compute capability, SM count, L2 size), never from a name. Plain and fused calls share the entry of their shape, so that
`add_rms_norm` sums in the same order as `rms_norm` and their results agree bit for bit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.kernels.rmsnorm_table import H200, Cell

__all__ = ["MAX_D", "DeviceFacts", "Launch", "choose", "device_facts", "table_entries"]

MAX_D = (
    2**24
)  # int32 column offsets would allow 2^31; nobody has a row of more than 16 M elements and no test covers one
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
    ctas: int = 1  # split, loop: programs per row, one cluster
    weight_early: bool = True  # load the weight before the reduction
    pack16: bool = False  # keep the row in 16-bit registers across the reduction
    pdl: int = 0  # 0 off, 1 trigger then wait, 2 wait then trigger
    policy: int = 0  # index into POLICIES
    reverse: bool = True  # loop: second pass backwards
    remote: bool = False  # clusters: exchange sums by stores that count on a barrier, not by cluster barriers
    registers: int = 0  # at most this many per thread, so that more blocks fit an SM; 0 leaves it to the compiler
    basis: str = ESTIMATE

    def grid(self, m: int) -> int:
        """Programs for m rows, clusters counted as one (the launcher multiplies by `ctas`)."""
        return -(-m // self.rows)

    def words(self) -> str:
        """For people: how a row is laid over threads and blocks, how blocks exchange their sums, the cache hints."""
        parts = [self.kernel]
        if self.kernel == "row":
            parts.append(f"{self.rows} x {self.block}")
        elif self.kernel == "loop":
            parts.append(f"chunks of {self.block}")
        parts += [f"{self.ctas} blocks per row"] * (self.kernel != "row") + [f"{self.warps} warps"]
        if self.ctas > 1:
            parts.append(f"sums exchanged by {'remote stores' if self.remote else 'cluster barriers'}")
        hints = zip(("x", "weight", "outputs"), POLICIES[self.policy], strict=True)
        return ", ".join([*parts, *(f"{what} {hint.replace('_', '-')}" for what, hint in hints if hint)])


# (x and residual, weight, outputs): cache hints. On the H200 reading x evict-first costs 5 % at 512 MB; evict-last gains 3 to 4 %
# of the fused add and up to 4 % of the plain norm where x is larger than the L2, and gains a plain copy 1 %. The loop kernel takes x
# evict-last as "keep the row between the passes, and no longer", at any size.
POLICIES: tuple[tuple[str, str, str], ...] = (
    ("", "", ""),
    ("evict_first", "evict_last", ""),
    ("", "evict_last", ""),
    ("evict_first", "", ""),
    ("evict_last", "evict_last", ""),
    ("", "", "evict_first"),
    ("evict_last", "evict_last", "evict_first"),
    ("", "evict_last", "evict_first"),
)
KEEP = 4  # what the loop kernel takes by default
PASS = 6  # what every kernel takes where x is larger than the L2

# Up to FEW rows one program or cluster per row leaves most of the chip idle.
FEW = 16
MORE, LARGE, LARGE_ROW_BYTES = 3, 6, 2000
_ESTIMATE_CELL = (0, 1, 1, 2, 2, 3, 3)  # what stands for each regime where nobody has measured

# Bytes per row (as 16-bit elements) at most -> (few, at most one row per SM, more, many), each (rows, warps). Estimates for GPUs
# that nobody has tuned for; above the last width the loop kernel.
_ESTIMATE: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = (
    (256, ((1, 1), (1, 1), (4, 2), (16, 4))),
    (512, ((1, 2), (1, 2), (4, 4), (8, 4))),
    (1024, ((1, 4), (1, 4), (2, 4), (4, 4))),
    (2048, ((1, 8), (1, 4), (1, 4), (2, 8))),
    (4096, ((1, 16), (1, 8), (1, 8), (1, 8))),
    (8192, ((1, 32), (1, 16), (1, 16), (1, 16))),
    (16384, ((1, 32), (1, 16), (1, 16), (1, 16))),
)


def regime(m: int | None, row_bytes: int, facts: DeviceFacts) -> int:
    """0 at most FEW rows, 1 at most one per two SMs, 2 at most one per SM, 3 fewer than four per SM, 4 to 6 more.

    4 where x is less than a sixteenth of the L2 (on the H200 about 4 MB: there a launch is timed), 5 where it is more and the memory
    is the bound, 6 where it is as large as the L2, on sm_90, with rows of 2000 bytes and more: nothing narrower was tried with its
    cache hints; 6 comes before 3. None (not to matter) is 3.
    """
    if m is None:
        return MORE
    if m <= FEW:
        return 0
    if m <= facts.sm_count:
        return 1 if 2 * m <= facts.sm_count else 2
    if facts.capability == 90 and row_bytes >= LARGE_ROW_BYTES and m * row_bytes >= facts.l2_bytes:
        return LARGE
    if m < 4 * facts.sm_count:
        return MORE
    return 5 if m * row_bytes >= facts.l2_bytes // 16 else 4


@lru_cache(maxsize=4096)
def choose(m: int | None, d: int, itemsize: int, facts: DeviceFacts, *, vector: bool = True) -> Launch:
    """The launch for m rows of d elements of `itemsize` bytes; m None is the choice that does not depend on m.

    `vector` is false where 16-byte accesses are impossible. Raises UsageError for d above MAX_D.
    """
    if d > MAX_D:
        raise UsageError(f"rms_norm: d is {d}", why=f"Supported: 1 to {MAX_D} elements per row.")
    cell = regime(m, d * itemsize, facts)
    width = -(-d * itemsize // 2)  # in 16-bit elements: the table goes by bytes per row
    if facts.clusters and vector and width <= H200[-1][0]:
        measured = facts.capability == 90 and facts.sm_count == 132 and itemsize == 2
        found = next(cells[cell] for bound, cells in H200 if width <= bound)
        return _launch(found, d, itemsize, facts, MEASURED if measured else ESTIMATE, large=cell == LARGE)
    wide = width > _ESTIMATE[-1][0] or (not vector and width > 8192)
    if not wide:
        rows, warps = next(cells[_ESTIMATE_CELL[cell]] for bound, cells in _ESTIMATE if width <= bound)
        return _launch(("row", rows, warps), d, itemsize, facts, ESTIMATE)
    return _launch(_loop(width, facts, vector), d, itemsize, facts, ESTIMATE)


def _loop(width: int, facts: DeviceFacts, vector: bool) -> Cell:
    if facts.clusters and vector:
        return ("loop", 8, 32, 8192, 0)
    # Rows resident at once should fit half the L2, or the second pass reads the memory again: fewer, larger programs where the
    # cache is small.
    resident = facts.sm_count * 4 * width * 2
    return ("loop", 1, 16 if vector and resident * 2 <= facts.l2_bytes else 32, 8192, 0)


def _launch(cell: Cell, d: int, itemsize: int, facts: DeviceFacts, basis: str, *, large: bool = False) -> Launch:
    kernel, many, warps, *more = cell
    pdl = int(facts.dependent_launch)
    hints = PASS if large else 0
    if kernel == "row":
        return Launch("row", warps, block=_pow2(d), rows=many, pdl=pdl, policy=hints, basis=basis)
    if facts.capability != 90 and many > 8:  # clusters of 16 are Hopper's and Blackwell's data-centre parts' alone
        many, warps = 8, min(32, warps * many // 8)
    # Many clusters per SM: a cluster barrier would wait for each block's stores. Few rows were never timed without it.
    shared: dict[str, Any] = {"ctas": many, "remote": large and many > 1, "pdl": pdl, "basis": basis}
    if kernel == "split":
        return Launch("split", warps, policy=hints, **shared)
    chunk, registers = more
    # the loop reads a row twice: keeping it in the cache in between, and no longer, is worth 4 % at d = 32768 on the H200
    return Launch(
        "loop", warps, block=chunk * 2 // itemsize, registers=registers, policy=PASS if large else KEEP, **shared
    )


def _pow2(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


@lru_cache(maxsize=64)
def device_facts(index: int) -> DeviceFacts:
    """Facts of CUDA device `index`, read from the driver."""
    import torch

    found: Any = torch.cuda.get_device_properties(index)
    return DeviceFacts(found.major * 10 + found.minor, found.multi_processor_count, found.L2_cache_size)


def table_entries(facts: DeviceFacts) -> list[tuple[int | None, int, int, Launch]]:
    """(m, d, itemsize, launch) for a shape of every cell, at its widest and at a width that needs masks; tests compile them."""
    bounds = [bound for bound, _ in (H200 if facts.clusters else _ESTIMATE)]
    widths = [*bounds, *(bound // 8 * 7 // 8 * 8 for bound in bounds if bound >= 256), 49152, 2**18]
    found = []
    for d in widths:
        half = max(4 * facts.sm_count, facts.l2_bytes // (4 * d))  # half an L2 of rows
        for m in (1, FEW + 1, facts.sm_count, facts.sm_count + 1, 4 * facts.sm_count, half, 2**20, None):
            found += [(m, d // (size // 2), size, choose(m, d // (size // 2), size, facts)) for size in (2, 4)]
    return found
