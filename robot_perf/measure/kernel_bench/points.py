"""The shapes of the RMSNorm bench, the bytes each must move (counted from the tensors that are touched), and what a bench is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BIG_BYTES",
    "HEADLINE",
    "MIXED",
    "WIDE",
    "WIDE_LEFT_OUT",
    "BenchRequest",
    "Point",
    "bytes_touched",
    "left_out",
]

PLAIN, ADD = "rms_norm", "add_rms_norm"
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Point:
    """One op on m rows of d elements. Dtypes are torch's names."""

    op: str
    m: int
    d: int
    dtype: str = "bfloat16"
    weight: str = "bfloat16"

    @property
    def name(self) -> str:
        """For people: `rms_norm 1 x 4096`."""
        extra = "" if self.weight == self.dtype else f", {self.weight} weight"
        return f"{self.op} {self.m} x {self.d}{extra}"


def bytes_touched(point: Point) -> int:
    """Bytes of inputs read once plus outputs written once: 2 passes over m x d plain, 4 fused, and the weight once."""
    passes = 4 if point.op == ADD else 2
    return passes * point.m * point.d * ITEM_BYTES[point.dtype] + point.d * ITEM_BYTES[point.weight]


_SHAPES = (
    (1, 1024), (1, 4096), (1, 16384), (1, 65536), (16, 4096), (256, 4096), (4096, 4096), (32768, 4096), (65536, 256),
    (8192, 1000), (8192, 5120), (16384, 8192), (8192, 16384), (4096, 32768), (2048, 65536),
)  # fmt: skip
HEADLINE: tuple[Point, ...] = tuple(Point(op, m, d) for op in (PLAIN, ADD) for m, d in _SHAPES)

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192, 32768)
_WIDTHS = (64, 127, 256, 384, 768, 1000, 2048, 3072, 4096, 5120, 8192, 11008, 16384, 32768, 65536)
_LARGEST_BYTES = 2**29  # of one tensor: every provider holds its own inputs and outputs, the eager one FP32 copies too


def _wide() -> tuple[Point, ...]:
    # a chessboard of counts and widths: half the grid, no corner favoured
    shapes = [(m, d) for j, d in enumerate(_WIDTHS) for i, m in enumerate(_COUNTS) if (i + j) % 2 == 0]
    shapes = [(m, d) for m, d in shapes if m * d * 2 <= _LARGEST_BYTES and (m, d) not in _SHAPES]
    return tuple(Point(op, m, d) for op in (PLAIN, ADD) for m, d in shapes)


WIDE: tuple[Point, ...] = _wide()
MIXED: tuple[Point, ...] = tuple(Point(PLAIN, m, 4096, weight="float32") for m in (1, 4096))

# Who is not run at which points of the wide sweep. Fixed before any of it was measured; the report says so.
# How often one leads at the headline points is counted in each report: a number written here was another report's.
COMPILES = "compiles for each shape anew, for seconds"
WIDE_LEFT_OUT = {
    "eager": "nine kernels with FP32 temporaries, ten times the bytes",
    "robot-perf, no dependent launch": "a switch of ours, not a peer",
    "torch.compile": COMPILES,
    "torch.compile max-autotune": COMPILES,
    "copy": "below 256 MB, where no share of it is asked for",
}
BIG_BYTES = 256e6  # from here on a share of the copy is asked for
BATCH = 16  # points that are compiled together, then measured; each further batch is twice as large


def left_out() -> dict[str, tuple[str, frozenset[Point]]]:
    """(why, points of the wide sweep) at which a provider, or the copy, is not run."""
    found = {name: (why, frozenset(WIDE)) for name, why in WIDE_LEFT_OUT.items()}
    small = frozenset(p for p in WIDE if bytes_touched(p) < BIG_BYTES)
    return found | {"copy": (WIDE_LEFT_OUT["copy"], small)}


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What to measure. `rounds` interleaved turns of `replays` samples each; `budget_s` stops before the next point.

    `parts` are measured one after the other, so that a budget cuts the last. `left_out` are points at which a provider (or the
    copy) is not run, and why: the report says so. `resumed` is an earlier report whose points are kept, not measured again.
    """

    parts: tuple[tuple[Point, ...], ...]
    providers: tuple[str, ...]
    rounds: int = 3
    replays: int = 5
    ahead: int = 0  # extra processes that compile a batch before it is timed; 0 compiles at each point
    budget_s: float | None = None
    profiled: frozenset[Point] = field(default_factory=frozenset)  # kernels named, gaps and host cost measured
    left_out: Mapping[str, tuple[str, frozenset[Point]]] = field(default_factory=dict)
    resumed: Mapping[str, Any] | None = None

    @property
    def known(self) -> frozenset[Point]:
        """The points of the earlier report."""
        found = [] if self.resumed is None else self.resumed["points"]
        return frozenset(Point(*(p[k] for k in ("op", "m", "d", "dtype", "weight"))) for p in found)

    @property
    def points(self) -> tuple[Point, ...]:
        """Those of all parts that are still to be measured."""
        known = self.known
        return tuple(p for part in self.parts for p in part if p not in known)

    @property
    def batches(self) -> list[tuple[Point, ...]]:
        """The points as they are compiled ahead, of one part at a time: few at first, so that a short budget has those measured.

        A batch waits for its slowest point, so that many small ones would leave most processors idle.
        """
        if not self.ahead:
            return [self.points]
        known, found, size = self.known, [], BATCH
        for part in self.parts:
            left = tuple(p for p in part if p not in known)
            while left:
                found.append(left[:size])
                left = left[size:]
                size *= 2
        return found

    def wanted(self, name: str, points: Sequence[Point]) -> list[Point]:
        """The points at which a provider is run."""
        _, absent = self.left_out.get(name, ("", frozenset()))
        return [p for p in points if p not in absent]
