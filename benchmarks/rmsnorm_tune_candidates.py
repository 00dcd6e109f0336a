"""The launches of the RMSNorm kernels that benchmarks/rmsnorm_tune.py and rmsnorm_trial.py time, and their names."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

from robot_perf.kernels.rmsnorm_config import KEEP, Launch
from robot_perf.kernels.rmsnorm_launch import Variant, compile_variant

HEADLINE = [
    (1, 1024), (1, 4096), (1, 16384), (1, 65536), (16, 4096), (256, 4096), (4096, 4096), (32768, 4096), (65536, 256),
    (8192, 1000), (8192, 5120), (16384, 8192), (8192, 16384), (4096, 32768), (2048, 65536),
]  # fmt: skip
WIDTHS = [
    64, 128, 256, 384, 512, 768, 1000, 1024, 1536, 2048, 3072, 4096, 5120, 7168, 8192, 11008, 16384, 32768, 65536, 131072,
]  # fmt: skip


# Row counts that the first tuning left out, at the widths where its choice might not hold: where blocks per row stop fitting the
# chip at once, and many short rows. And rows below 8 KB whose x is larger than the L2, for the cache hints.
BETWEEN = [
    *((16, d) for d in WIDTHS if d >= 8192), *((2048, d) for d in WIDTHS if d <= 1000), (8192, 64), (8192, 128),
    *((m, d) for m in (128, 512, 64) for d in WIDTHS if d >= (512 if m == 512 else 2048)),
]  # fmt: skip
NARROW = [(32768, 3072), (65536, 2048), (65536, 1024), (32768, 1000)]


def pow2(value: int) -> int:
    """The power of two at or above a number."""
    return 1 << max(0, value - 1).bit_length()


def structures(m: int, d: int) -> list[Launch]:
    """Launches that differ in how the row is laid over threads and blocks."""
    found = []
    block = pow2(d)
    base = {"pdl": 1, "policy": 0}
    if d <= 32768:
        for rows in (1, 2, 4, 8, 16, 32):
            if rows > max(1, m) or (rows > 1 and rows * block > 16384):
                continue
            for warps in (1, 2, 4, 8, 16, 32):
                each = rows * block / (32 * warps)
                if (8 <= each <= 64 or (warps == 1 and each < 8)) and not (each == 64 and rows > 1 and block < 2048):
                    found.append(
                        Launch("row", warps, block=block, rows=rows, weight_early=d < 32768, pack16=d == 32768, **base)
                    )
    if d >= 512 and d % 8 == 0 and (m <= 1024 or d >= 8192):
        for ctas in (1, 2, 4, 8, 16):
            for warps in (2, 4, 8, 16, 32):
                each = pow2(math.ceil(d / ctas)) / (32 * warps)
                if 8 <= each <= 32 and (ctas == 1 or d / ctas >= 1024) and (ctas < 16 or m <= 16):
                    found.append(Launch("split", warps, ctas=ctas, **base))
    if d >= 2048:
        found += loops(d, {**base, "policy": KEEP})
    return found


def loops(d: int, base: dict) -> list[Launch]:
    """Two-pass launches: chunks, warps, blocks per row, and a register cap that lets two blocks of 1024 threads share an SM."""
    found = []
    for ctas in (1, 2, 4, 8) if d > 16384 else (1,):
        for width, warps in itertools.product((2048, 4096, 8192, 16384), (4, 8, 16, 32)):
            if 8 <= width / (32 * warps) <= 16 and d / ctas >= max(width, 2048):
                found += [
                    Launch("loop", warps, block=width, ctas=ctas, registers=r, **base)
                    for r in ((0, 32) if warps == 32 else (0,))
                ]
    return found


def refined(report: Path, m: int, d: int, margin: float) -> list[Launch]:
    """The structures of an earlier report within `margin` of its best at this shape, in either op, and every two-pass one."""
    found = structures(m, d)
    keep = set()
    for point in json.loads(report.read_text())["points"]:
        if (point["m"], point["d"]) == (m, d):
            timed = [e for e in point["found"] if "us" in e]
            best = min(e["us"] for e in timed)
            keep |= {shape_of(Launch(**e["launch"])) for e in timed if e["us"] <= margin * best}
    return [x for x in found if not keep or shape_of(x) in keep or (x.kernel == "loop" and m > 16)]


def at_this_width(report: Path, m: int, d: int, margin: float) -> list[Launch]:
    """The structures for m rows within `margin` of the best at the same width and up to 8 times as many or as few, in either op.

    Exits where the report has no such point.
    """
    keep = set()
    for point in json.loads(report.read_text())["points"]:
        if point["d"] == d and m <= 8 * point["m"] <= 64 * m:
            timed = [e for e in point["found"] if "us" in e]
            best = min((e["us"] for e in timed), default=0.0)
            keep |= {shape_of(Launch(**e["launch"])) for e in timed if e["us"] <= margin * best}
    found = [x for x in structures(m, d) if shape_of(x) in keep]
    if not found:
        raise SystemExit(f"{report} timed nothing at {d} elements and about {m} rows: nothing says what to try there")
    return [replace(x, policy=p) for x in found for p in (0, 4, 6)] if (m, d) in NARROW else found


def shape_of(launch: Launch) -> tuple:
    """What decides the order of a row's sum."""
    return launch.kernel, launch.warps, launch.block, launch.rows, launch.ctas, launch.remote


def switches(launch: Launch) -> list[Launch]:
    """The same structure with one switch changed."""
    if launch.kernel == "loop":
        return [replace(launch, pdl=0), replace(launch, policy=0), replace(launch, reverse=False)]
    changed = [replace(launch, pdl=0), replace(launch, pdl=2), replace(launch, policy=1), replace(launch, policy=2)]
    return [*changed, replace(launch, weight_early=not launch.weight_early)]


def compile_one(variant: Variant, chip: int) -> str:
    """Compiles a variant into Triton's cache on disk; the error, if any."""
    from triton.backends.compiler import GPUTarget

    try:
        compile_variant(variant, GPUTarget("cuda", chip, 32))
    except Exception as error:  # noqa: BLE001 - a candidate that does not compile is a result
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def variant_of(launch: Launch, d: int, fused: bool) -> Variant:
    """The BF16 variant of a launch."""
    return Variant(launch, d, "bf16", "bf16", True, fused)


def short(launch: dict) -> str:
    """A launch in a few words."""
    turned = "" if launch["reverse"] else " forward"
    where = {
        "row": f"r{launch['rows']}",
        "split": f"c{launch['ctas']}",
        "loop": f"c{launch['ctas']} b{launch['block']}{turned}",
    }
    parts = [
        launch["kernel"],
        f"w{launch['warps']}",
        where[launch["kernel"]],
        f"pdl{launch['pdl']} p{launch['policy']}",
    ]
    flags = {
        "remote": launch["remote"],
        "late": not launch["weight_early"],
        "k16": launch["pack16"],
        f"m{launch['registers']}": launch["registers"],
    }
    return " ".join([*parts, *(name for name, on in flags.items() if on)])
