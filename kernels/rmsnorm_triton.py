"""The Triton kernels behind `robot_perf.kernels.rmsnorm`, by name.

| kernel | one program does | for |
|---|---|---|
| `row` | a tile of ROWS whole rows, in registers | d that fits the registers, any M |
| `split` | a whole row, or a CTAS-th of it in a thread-block cluster | small M, and rows wider than one block's registers |
| `loop` | a row, or its CTAS-th part, in two passes over chunks | wide rows: the second pass hits L1, or at least L2 |

All take the same run-time arguments, in this order: x, residual, weight, y, s (pointers; null where absent), m (rows), the
row strides of x, residual, y, s in units of UNIT elements, and the bits of eps and offset as FP32 (as integers, because Inductor
passes a Python float as FP64). Row offsets are 64-bit; every reduction is FP32 (reference: RMSNorm, Zhang and Sennrich 2019:
y = x / sqrt(mean(x^2) + eps) * w).

UNIT is the number of elements in 16 bytes when every pointer, stride and d allows 16-byte accesses, else 1: a stride that is
only known at run time would otherwise drop to scalar loads.
"""

from __future__ import annotations

from typing import Any

from robot_perf.kernels.rmsnorm_device import HAVE_TRITON
from robot_perf.kernels.rmsnorm_loop import rms_norm_loop
from robot_perf.kernels.rmsnorm_row import rms_norm_row
from robot_perf.kernels.rmsnorm_split import rms_norm_split

__all__ = ["HAVE_TRITON", "KERNELS"]

KERNELS: dict[str, Any] = {
    "row": rms_norm_row,
    "split": rms_norm_split,
    "loop": rms_norm_loop,
}
