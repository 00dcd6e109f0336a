"""Triton copies for benchmarks/rmsnorm_trial.py, and what the compiler says of a kernel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from robot_perf.kernels.rmsnorm_launch import Variant, compile_variant


@triton.jit
def _copy(x, y, n, BLOCK: tl.constexpr, READ: tl.constexpr, WRITE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n, eviction_policy=READ), mask=at < n, eviction_policy=WRITE)


@triton.jit
def _pair(x, r, y, s, n, BLOCK: tl.constexpr, READ: tl.constexpr, WRITE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, eviction_policy=READ)
    b = tl.load(r + at, mask=at < n, eviction_policy=READ)
    tl.store(s + at, b, mask=at < n, eviction_policy=WRITE)
    tl.store(y + at, a, mask=at < n, eviction_policy=WRITE)


def copy_kernel(point: Any, block: int, warps: int, read: str, write: str) -> Callable[[int], Any]:
    """Copies a set's inputs, as one tensor, to its outputs."""
    n = point.read[0].numel()
    grid = (-(-n // block),)
    return lambda i: _copy[grid](
        point.read[i], point.written[i], n, BLOCK=block, READ=read, WRITE=write, num_warps=warps
    )


def pair_kernel(point: Any, block: int, warps: int, read: str, write: str) -> Callable[[int], Any]:
    """Copies x to y and the residual to s: two streams of reads and two of writes, as the fused add has."""
    n = point.x[0].numel()
    grid = (-(-n // block),)
    return lambda i: _pair[grid](
        point.x[i], point.r[i], point.y[i], point.s[i], n, BLOCK=block, READ=read, WRITE=write, num_warps=warps
    )


def resources(variant: Variant, chip: int) -> str:
    """Registers, stack (spills) and shared bytes of a variant compiled for a chip, or why it does not compile."""
    try:
        compiled = compile_variant(variant, GPUTarget("cuda", chip, 32))
    except Exception as error:  # noqa: BLE001 - that is the answer
        return f"DOES NOT COMPILE: {type(error).__name__}: {str(error)[:200]}"
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", text)
    assert found is not None
    return f"{found[1]} registers, {found[2]} stack, {int(found[3]) + compiled.metadata.shared} shared"
