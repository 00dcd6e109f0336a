"""What benchmarks/rmsnorm_trial.py times: the shapes that missed the copy's speed, and ways that might reach it.

The questions, each a difference between two lines of the result:
- is a gain of evict-last reads real, or lines of x that the cache kept from the call before? (`us` against `us_one_set`)
- do evict-first outputs help (dirty lines leave early)?
- does the exchange by remote stores beat the cluster barrier (which waits for all stores and empties the L1)?
- what does the weight of a wide row cost, which every row reads again (`--weightless`)?
- wide rows (`--wide`): does reading the weight after the sum, or more warps with less each, let more rows be under way per SM?
"""

from __future__ import annotations

from dataclasses import replace

from robot_perf.kernels.rmsnorm_config import Launch

__all__ = ["GUARDS", "SHAPES", "WIDE", "candidates", "weighty", "wide"]

SHAPES = [(2048, 65536), (4096, 32768), (16384, 8192), (8192, 16384), (32768, 4096), (8192, 5120)]
GUARDS = [(1024, 65536), (2048, 49152), (1024, 131072), (4096, 11008)]

WIDE = [(2048, 65536), (4096, 32768), (2048, 32768), (512, 65536), (1024, 65536), (2048, 49152), (1024, 131072)]

READS = (0, 2, 4)  # policies of the row and split kernels: none, weight evict-last, x and weight evict-last
OUTS = (5, 6, 7)  # and the same with evict-first outputs


def _row(block: int, warps: int, rows: int = 1, **more: object) -> Launch:
    return Launch("row", warps, block=block, rows=rows, pdl=1, **more)  # type: ignore[arg-type]


def _loop(ctas: int, warps: int, block: int, registers: int = 0) -> Launch:
    return Launch("loop", warps, block=block, ctas=ctas, registers=registers, pdl=1, policy=4)


def _split(ctas: int, warps: int) -> Launch:
    return Launch("split", warps, ctas=ctas, pdl=1)


def _with(launch: Launch, *policies: int) -> list[Launch]:
    return [replace(launch, policy=p) for p in policies]


def _remote(*launches: Launch) -> list[Launch]:
    return [replace(x, remote=True) for x in launches]


def _wide() -> list[Launch]:
    loops = [_loop(4, 16, 4096), _loop(2, 32, 16384, 32), _loop(8, 8, 4096), _loop(4, 32, 8192, 32)]
    splits = [_split(8, 8), _split(4, 16), _split(2, 32)]
    whole = _loop(1, 32, 16384)
    return [
        *loops, *_remote(*loops), *_with(loops[0], 0, 6), *_with(_remote(loops[0])[0], 0, 6),
        whole, replace(whole, reverse=False), *splits, *_remote(*splits), *_with(_remote(splits[0])[0], 2, 4, 5, 6, 7),
    ]  # fmt: skip


def _32k() -> list[Launch]:
    loops = [_loop(1, 32, 16384), _loop(1, 32, 8192)]
    row = _row(32768, 32, weight_early=False, pack16=True)
    return [
        *(y for x in loops for y in _with(x, 0, 4, 6, 5)), *_with(row, *READS, *OUTS), *_remote(_split(4, 8), _split(2, 16)),
    ]  # fmt: skip


def _16k() -> list[Launch]:
    return [
        *_with(_row(16384, 16), *READS, *OUTS), *_with(_split(1, 16), 0, 4, 5, 6), *_with(_split(1, 32), 0, 4, 6),
        *_with(_loop(1, 32, 16384), 0, 4, 6), *_with(_loop(1, 32, 8192, 32), 0, 4),
    ]  # fmt: skip


def _8k() -> list[Launch]:
    return [
        *_with(_row(8192, 16), *READS, *OUTS), *_with(_row(8192, 16, rows=2), 0, 4), *_with(_row(8192, 8), 0, 4, 6),
        *_with(_split(1, 32), 0, 4, 6), *_with(_loop(1, 16, 4096), 0, 4, 6), *_with(_loop(1, 32, 8192, 32), 0, 4, 6),
    ]  # fmt: skip


def _4k() -> list[Launch]:
    return [
        *_with(_row(4096, 16, rows=2), *READS, *OUTS), *_with(_row(4096, 16, rows=4), 0, 4, 6), *_with(_row(4096, 8), 0, 4, 5),
        *_with(_row(4096, 32, rows=2), 0, 4, 6), *_with(_loop(1, 16, 4096), 0, 4, 6),
    ]  # fmt: skip


def _5120() -> list[Launch]:
    return [
        *_with(_row(8192, 8), *READS, *OUTS), *_with(_row(8192, 16), *READS, 6), *_with(_row(8192, 4), 0, 4, 6),
        replace(_row(8192, 16), weight_early=False), *_with(_split(1, 8), 0, 4), *_with(_loop(1, 4, 1024), 0, 4, 6),
        *_with(_loop(1, 8, 1024), 0, 4), *_with(_loop(1, 16, 8192), 0, 4),
    ]  # fmt: skip


def _guard(d: int) -> list[Launch]:
    if d < 32768:
        return [_row(16384, 8), _row(16384, 16), *_with(_row(16384, 8), 4)]
    return [_loop(4, 16, 4096), _loop(8, 16, 4096), *_remote(_loop(8, 16, 4096), _loop(4, 16, 4096), _split(8, 8))]


def wide(d: int) -> list[Launch]:
    """`--wide`: launches above 16384 elements that differ in how many blocks fit an SM, with the hints and the exchange of the table."""
    if d > 32768:
        splits = [_split(8, 8), _split(8, 16), _split(4, 16)]
        loops = [
            _loop(4, 16, 4096), _loop(4, 16, 8192), _loop(8, 16, 4096), _loop(8, 16, 8192), _loop(8, 8, 4096), _loop(8, 8, 2048),
            _loop(2, 32, 8192, 32), _loop(4, 32, 16384, 32),
        ]  # fmt: skip
    else:
        splits = [_split(4, 8), _split(4, 16), _split(2, 16), _split(8, 8)]
        loops = [
            _loop(1, 32, 16384), _loop(1, 32, 8192), _loop(1, 16, 8192), _loop(1, 16, 4096), _loop(2, 16, 4096), _loop(2, 16, 8192),
            _loop(2, 32, 8192, 32),
        ]  # fmt: skip
    late = [replace(x, weight_early=False) for x in splits]
    capped = [replace(late[0], registers=48)]
    return [replace(x, policy=6, remote=x.ctas > 1) for x in [*splits, *late, *capped, *loops]]


def weighty(d: int) -> list[Launch]:
    """`--weightless`: splits and loops for wide rows with the hints and the exchange of the table, to be timed without a weight too."""
    if d > 65536:
        splits, loops = [_split(8, 16), _split(8, 32), _split(4, 32)], [_loop(8, 16, 4096)]
    elif d > 32768:
        splits, loops = [_split(8, 8), _split(8, 16), _split(4, 16), _split(4, 32)], [_loop(4, 16, 4096)]
    else:
        splits = [_split(4, 8), _split(4, 16), _split(2, 16), _split(8, 8), _split(8, 4)]
        loops = [_loop(1, 32, 16384), _loop(1, 32, 8192)]
    return [replace(x, policy=6, remote=x.ctas > 1) for x in [*splits, *loops]]


def candidates(m: int, d: int) -> list[Launch]:
    """The launches for a shape."""
    if (m, d) in GUARDS:
        return _guard(d)
    made = {65536: _wide, 32768: _32k, 16384: _16k, 8192: _8k, 4096: _4k, 5120: _5120}
    return list(dict.fromkeys(made[d]()))
