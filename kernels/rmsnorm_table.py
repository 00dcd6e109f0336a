"""Launches measured on an H200 (sm_90, 132 SM, L2 60 MiB), BF16. Written by benchmarks/rmsnorm_table.py; do not edit.

(d up to, (few, at most one row per SM, more, many rows)); a cell is (kernel, rows or blocks per row, warps) and for
the loop kernel its chunk and register cap. Behind each line: the cells' µs over the best structure measured there, both ops.
"""
# fmt: off

from __future__ import annotations

Cell = tuple[str, int, int] | tuple[str, int, int, int, int]

H200: tuple[tuple[int, tuple[Cell, Cell, Cell, Cell]], ...] = (
    (64, (("row", 1, 1), ("row", 1, 1), ("row", 16, 4), ("row", 32, 2))),  # 1.01 1.00 1.01 1.00; worst 1.02
    (128, (("row", 1, 1), ("row", 1, 1), ("row", 4, 2), ("row", 16, 4))),  # 1.00 1.00 1.02 1.00; worst 1.06
    (256, (("row", 1, 1), ("row", 1, 1), ("row", 2, 1), ("row", 8, 4))),  # 1.01 1.01 1.01 1.00; worst 1.05
    (384, (("row", 1, 1), ("row", 1, 1), ("row", 1, 1), ("row", 8, 4))),  # 1.01 1.01 1.01 1.00; worst 1.02
    (512, (("split", 1, 2), ("split", 1, 2), ("split", 1, 2), ("row", 4, 4))),  # 1.00 1.00 1.00 1.00; worst 1.00
    (768, (("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("row", 2, 4))),  # 1.00 1.00 1.01 1.00; worst 1.02
    (1000, (("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("row", 2, 4))),  # 1.00 1.00 1.00 1.01; worst 1.02
    (1024, (("split", 1, 4), ("split", 1, 4), ("split", 1, 4), ("row", 2, 4))),  # 1.00 1.00 1.00 1.00; worst 1.01
    (1536, (("split", 1, 4), ("split", 1, 4), ("row", 1, 4), ("row", 1, 4))),  # 1.01 1.00 1.02 1.00; worst 1.04
    (2048, (("split", 1, 4), ("split", 1, 4), ("row", 1, 4), ("row", 1, 8))),  # 1.01 1.00 1.02 1.02; worst 1.05
    (3072, (("split", 1, 8), ("split", 1, 4), ("split", 1, 16), ("row", 1, 8))),  # 1.00 1.00 1.00 1.00; worst 1.01
    (4096, (("split", 1, 8), ("split", 1, 4), ("split", 1, 16), ("row", 2, 16))),  # 1.00 1.00 1.00 1.04; worst 1.07
    (5120, (("split", 1, 8), ("split", 1, 16), ("row", 1, 16), ("row", 1, 8))),  # 1.00 1.01 1.00 1.02; worst 1.05
    (7168, (("split", 4, 4), ("split", 1, 16), ("row", 1, 16), ("row", 1, 8))),  # 1.01 1.00 1.00 1.01; worst 1.03
    (8192, (("split", 8, 2), ("split", 1, 16), ("row", 1, 16), ("row", 2, 16))),  # 1.00 1.03 1.01 1.01; worst 1.06
    (11008, (("split", 8, 4), ("split", 1, 32), ("row", 1, 8), ("row", 1, 8))),  # 1.00 1.00 1.02 1.01; worst 1.03
    (16384, (("split", 8, 4), ("split", 1, 16), ("row", 1, 8), ("row", 1, 16))),  # 1.00 1.00 1.00 1.01; worst 1.06
    (32768, (("split", 8, 4), ("split", 2, 32), ("loop", 1, 32, 16384, 0), ("loop", 1, 32, 16384, 0))),  # 1.00 1.00 1.00 1.00; worst 1.02
    (65536, (("split", 16, 4), ("split", 2, 32), ("loop", 1, 32, 16384, 0), ("loop", 1, 32, 16384, 0))),  # 1.02 1.00 1.02 1.01; worst 1.09
    (131072, (("split", 16, 8), ("split", 8, 16), ("split", 8, 16), ("loop", 1, 32, 16384, 0))),  # 1.09 1.01 1.01 1.00; worst 1.21
)
