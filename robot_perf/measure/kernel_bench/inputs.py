"""The tensors of one point of the RMSNorm bench: enough sets of inputs that a cache is left cold."""

from __future__ import annotations

import math
from typing import Any

from robot_perf.measure.kernel_bench.points import Point

__all__ = ["DEVICE", "Inputs"]

DEVICE = "cuda"
COLD_L2 = 3  # sets rotate over at least this many times the L2
LEAST_SETS, MAX_SETS = (
    3,
    64,
)  # a cache that protects part of what it read would serve it again if a tensor came back at once
MEMORY_SHARE = (
    0.05  # of the GPU for one provider's inputs and outputs: about ten providers hold theirs at the same time
)


class Inputs:
    """Enough sets of x (and residual) to rotate past the cache, at most MAX_SETS; the same numbers in every process.

    At least LEAST_SETS, as far as `memory` (bytes of the GPU) allows. With an l2 of 0 one set.
    """

    def __init__(self, point: Point, l2: int, memory: int = 0) -> None:
        import torch

        generator = torch.Generator(device=DEVICE).manual_seed(point.m * 131 + point.d)
        dtype, wide = getattr(torch, point.dtype), point.op == "add_rms_norm"

        def new(rows: int) -> Any:
            return torch.randn(rows, point.d, device=DEVICE, generator=generator, dtype=torch.float32).to(dtype)

        self.bytes = point.m * point.d * dtype.itemsize * (2 if wide else 1)
        least = max(1, min(LEAST_SETS, int(MEMORY_SHARE * memory / (2 * self.bytes)))) if l2 else 1
        self.sets = max(least, min(MAX_SETS, math.ceil(COLD_L2 * l2 / self.bytes)))
        self.rotates = self.sets * self.bytes >= COLD_L2 * l2
        self.weight = (1 + 0.1 * torch.randn(point.d, device=DEVICE, generator=generator)).to(
            getattr(torch, point.weight)
        )
        self.x = [new(point.m) for _ in range(self.sets)]
        self.r: list[Any] = [new(point.m) if wide else None for _ in range(self.sets)]

    def for_copy(self) -> Inputs:
        """x and residual of a set as one tensor, so that a copy of it moves the op's bytes."""
        import torch

        if self.r[0] is not None:
            self.x = [torch.cat((x, r)) for x, r in zip(self.x, self.r, strict=True)]
            self.r = [None] * self.sets
        return self
