"""Launches measured on an H200 (sm_90, 132 SM, L2 60 MiB), BF16. Written by benchmarks/rmsnorm_table.py; do not edit.

(d up to, (few, at most one row per two SMs, one per SM, four per SM, more, many rows, x larger than the L2)); a cell is (kernel,
rows or blocks per row, warps) and for the loop kernel its chunk and register cap. Behind each line: the µs of all but the last over
the best structure measured there, both ops. The last is chosen from trials, with the cache hints and the exchange of rmsnorm_config;
where none was made it repeats the one before, as the third and the fifth repeat the second and the fourth where nothing was timed.
"""
# fmt: off

from __future__ import annotations

Cell = tuple[str, int, int] | tuple[str, int, int, int, int]

H200: tuple[tuple[int, tuple[Cell, ...]], ...] = (
    (64, (("row", 1, 1), ("row", 1, 1), ("row", 1, 1), ("row", 16, 4), ("row", 16, 4), ("row", 32, 2), ("row", 32, 2))),  # 1.01 1.04 1.04 1.00 1.02 1.00; worst 1.09
    (128, (("row", 1, 1), ("row", 1, 1), ("row", 1, 1), ("row", 4, 2), ("row", 8, 4), ("row", 16, 4), ("row", 16, 4))),  # 1.00 1.02 1.02 1.01 1.03 1.00; worst 1.08
    (256, (("row", 1, 1), ("row", 4, 4), ("row", 4, 4), ("row", 4, 4), ("row", 4, 4), ("row", 8, 4), ("row", 8, 4))),  # 1.01 1.02 1.02 1.02 1.01 1.00; worst 1.05
    (384, (("row", 1, 1), ("row", 1, 1), ("row", 1, 1), ("row", 1, 1), ("row", 2, 4), ("row", 8, 4), ("row", 8, 4))),  # 1.00 1.00 1.00 1.01 1.01 1.00; worst 1.05
    (512, (("split", 1, 2), ("split", 1, 2), ("split", 1, 2), ("split", 1, 2), ("row", 2, 4), ("row", 4, 4), ("row", 4, 4))),  # 1.00 1.00 1.00 1.00 1.04 1.00; worst 1.11
    (768, (("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("row", 2, 8), ("row", 2, 4), ("row", 2, 4))),  # 1.00 1.00 1.00 1.01 1.02 1.00; worst 1.07
    (1000, (("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("row", 2, 4), ("row", 2, 4))),  # 1.00 1.00 1.00 1.01 1.02 1.01; worst 1.05
    (1024, (("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("row", 2, 4), ("row", 4, 8))),  # 1.00 1.00 1.00 1.00 1.01 1.00; worst 1.02
    (1536, (("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("split", 1, 8), ("split", 1, 8), ("row", 1, 4), ("row", 1, 4))),  # 1.01 1.00 1.00 1.04 1.00 1.00; worst 1.10
    (2048, (("split", 1, 8), ("split", 1, 8), ("split", 1, 4), ("split", 1, 8), ("split", 1, 8), ("row", 1, 8), ("row", 1, 4))),  # 1.00 1.00 1.00 1.05 1.05 1.02; worst 1.12
    (3072, (("split", 1, 8), ("split", 1, 4), ("split", 1, 4), ("split", 1, 16), ("split", 1, 16), ("row", 2, 16), ("row", 1, 4))),  # 1.02 1.01 1.00 1.02 1.02 1.02; worst 1.09
    (4096, (("split", 1, 8), ("split", 1, 4), ("row", 1, 4), ("split", 1, 16), ("split", 1, 16), ("row", 2, 16), ("row", 2, 16))),  # 1.00 1.00 1.01 1.00 1.00 1.02; worst 1.03
    (5120, (("split", 1, 8), ("split", 1, 8), ("split", 1, 16), ("split", 1, 8), ("split", 1, 8), ("row", 1, 8), ("row", 1, 8))),  # 1.00 1.01 1.00 1.02 1.02 1.01; worst 1.10
    (7168, (("split", 4, 4), ("split", 1, 16), ("split", 1, 16), ("row", 1, 16), ("row", 1, 16), ("row", 1, 8), ("row", 1, 8))),  # 1.01 1.02 1.00 1.05 1.05 1.00; worst 1.11
    (8192, (("split", 8, 2), ("split", 1, 16), ("split", 1, 16), ("row", 1, 16), ("row", 1, 16), ("row", 1, 16), ("row", 1, 8))),  # 1.02 1.01 1.00 1.05 1.05 1.02; worst 1.09
    (11008, (("split", 8, 4), ("split", 1, 32), ("split", 1, 32), ("row", 1, 8), ("row", 1, 8), ("row", 1, 8), ("row", 1, 8))),  # 1.02 1.00 1.00 1.06 1.06 1.01; worst 1.10
    (16384, (("split", 8, 4), ("split", 1, 16), ("split", 1, 16), ("row", 1, 16), ("row", 1, 16), ("row", 1, 16), ("row", 1, 16))),  # 1.01 1.00 1.00 1.00 1.00 1.00; worst 1.03
    (32768, (("split", 8, 4), ("split", 2, 32), ("loop", 2, 32, 8192, 32), ("loop", 1, 32, 16384, 0), ("loop", 1, 32, 16384, 0), ("loop", 1, 32, 8192, 0), ("loop", 1, 32, 16384, 0))),  # 1.02 1.01 1.05 1.01 1.01 1.01; worst 1.07
    (65536, (("split", 8, 8), ("loop", 8, 8, 4096, 0), ("loop", 2, 32, 8192, 32), ("loop", 4, 16, 4096, 0), ("loop", 4, 16, 4096, 0), ("loop", 4, 16, 4096, 0), ("split", 8, 8))),  # 1.03 1.02 1.02 1.02 1.02 1.01; worst 1.08
    (131072, (("split", 8, 16), ("loop", 2, 32, 16384, 0), ("loop", 8, 16, 4096, 0), ("split", 4, 32), ("split", 4, 32), ("loop", 8, 16, 4096, 0), ("loop", 8, 16, 4096, 0))),  # 1.08 1.00 1.02 1.11 1.11 1.00; worst 1.17
)
