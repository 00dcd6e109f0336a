"""The `loop` kernel of `rmsnorm_triton`: rows wider than the registers, in two passes."""
# mypy: ignore-errors
# ruff: noqa: PLR0915

from __future__ import annotations

from robot_perf.kernels.rmsnorm_device import _begin, _load, _scale, _start, _store, kernel, tl

__all__ = ["rms_norm_loop"]


@kernel
def rms_norm_loop(
    x,
    r,
    w,
    y,
    s,
    m: tl.int32,
    stride_x: tl.int64,
    stride_r: tl.int64,
    stride_y: tl.int64,
    stride_s: tl.int64,
    eps_bits: tl.int32,
    offset_bits: tl.int32,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    CTAS: tl.constexpr,
    SLICE: tl.constexpr,
    UNIT: tl.constexpr,
    HAS_R: tl.constexpr,
    HAS_W: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    HF: tl.constexpr,
    ROUND_SUM: tl.constexpr,
    PDL: tl.constexpr,
    REVERSE: tl.constexpr,
    HINTS: tl.constexpr,
    OUT_POLICY: tl.constexpr,
    START: tl.constexpr,
    ASM: tl.constexpr,
):
    """One row per cluster of CTAS programs (SLICE elements each) in two passes of BLOCK-wide chunks.

    The second pass walks back: its first chunks are still in L1. ASM (`rmsnorm_ptx.cluster_sum_asm`) adds the programs' sums.
    """
    _start(START)
    _begin(PDL)
    out = y.dtype.element_ty
    eps = tl.cast(eps_bits, tl.float32, bitcast=True)
    offset = tl.cast(offset_bits, tl.float32, bitcast=True)
    FIRST: tl.constexpr = "evict_last" if HINTS else ""
    AGAIN: tl.constexpr = "evict_first" if HINTS else ""
    pid = tl.program_id(0)
    at = (pid // CTAS).to(tl.int64)
    x += at * stride_x * UNIT
    y += at * stride_y * UNIT
    if HAS_R:
        r += at * stride_r * UNIT
        s += at * stride_s * UNIT
    CHUNKS: tl.constexpr = (SLICE + BLOCK - 1) // BLOCK
    MASKED: tl.constexpr = (SLICE % BLOCK != 0) or (SLICE * CTAS != D)
    begin = (pid % CTAS) * SLICE
    end = tl.minimum(begin + SLICE, D)
    lane = begin + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(CHUNKS):
        cols = i * BLOCK + lane
        mask = cols < end
        h = _load(x + cols, mask, MASKED, FIRST).to(tl.float32)
        if HAS_R:
            h += _load(r + cols, mask, MASKED, FIRST).to(tl.float32)
            if ROUND_SUM:
                sv = h.to(s.dtype.element_ty)
                _store(s + cols, sv, mask, MASKED, "")  # read again below
                h = sv.to(tl.float32)
        acc += h * h
    total = tl.sum(acc, 0)
    if CTAS > 1:
        total = tl.inline_asm_elementwise(ASM, "=f,f", [total], dtype=tl.float32, is_pure=False, pack=1)
    rstd = tl.rsqrt(total * (1.0 / D) + eps)
    if HAS_R:
        # the thread that re-reads an element of s need not be the one that wrote it
        tl.debug_barrier()
    for i in range(CHUNKS):
        cols = ((CHUNKS - 1 - i) if REVERSE else i) * BLOCK + lane
        mask = cols < end
        if HAS_R and ROUND_SUM:
            h = _load(s + cols, mask, MASKED, AGAIN).to(tl.float32)
        else:
            h = _load(x + cols, mask, MASKED, AGAIN).to(tl.float32)
            if HAS_R:
                # the unrounded sum is stored nowhere: both terms are read again and s is written here, so that s may be r
                h += _load(r + cols, mask, MASKED, AGAIN).to(tl.float32)
                _store(s + cols, h.to(s.dtype.element_ty), mask, MASKED, OUT_POLICY)
        h = h * rstd
        if HF:
            h = h.to(out).to(tl.float32)
        if HAS_W:
            h = _scale(h, _load(w + cols, mask, MASKED, "evict_last" if HINTS else ""), offset, HAS_OFFSET)
        _store(y + cols, h.to(out), mask, MASKED, OUT_POLICY)
