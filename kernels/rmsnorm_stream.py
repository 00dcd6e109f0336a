"""The `stream` kernel of `rmsnorm_triton`: blocks stay, walk over the rows, and have the next rows on their way."""
# mypy: ignore-errors
# ruff: noqa: SIM113 (the compiler has no enumerate)

from __future__ import annotations

from robot_perf.kernels.rmsnorm_device import _begin, _load, _scale, _start, _store, kernel, tl

__all__ = ["rms_norm_stream"]


@kernel
def rms_norm_stream(
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
    THREADS: tl.constexpr,
    REPEAT: tl.constexpr,
    VECTOR: tl.constexpr,
    CTAS: tl.constexpr,
    SLICE: tl.constexpr,
    UNIT: tl.constexpr,
    HAS_R: tl.constexpr,
    HAS_W: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    HF: tl.constexpr,
    ROUND_SUM: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
    OUT_POLICY: tl.constexpr,
    START: tl.constexpr,
    ASM: tl.constexpr,
):
    """A cluster of CTAS programs takes every (clusters)-th row, SLICE elements per program, its slice of the weight in registers.

    The loop is pipelined: STAGES - 1 rows are being copied into shared memory while one is normalised, so that the memory is
    read all the time, and no row's weight is read again (at d = 65536 the weight is as many bytes as a row). ASM
    (`rmsnorm_ptx.block_sum_asm`) takes the turn, because two sums in a row need two buffers. ASM "" sums with tl.sum.
    """
    _start(START)
    _begin(PDL)
    out = y.dtype.element_ty
    eps = tl.cast(eps_bits, tl.float32, bitcast=True)
    offset = tl.cast(offset_bits, tl.float32, bitcast=True)
    pid = tl.program_id(0)
    step = tl.num_programs(0) // CTAS
    local = tl.arange(0, REPEAT * THREADS * VECTOR)
    cols = local + (pid % CTAS) * SLICE
    MASKED: tl.constexpr = (THREADS * REPEAT * VECTOR != SLICE) or (SLICE * CTAS != D)
    mask = (local < SLICE) & (cols < D)
    if HAS_W:
        held = _load(w + cols, mask, MASKED, "")
    turn = 0
    for row in tl.range(pid // CTAS, m, step, num_stages=STAGES):
        at = row + tl.full((), 0, tl.int64)  # the interpreter counts in Python integers
        xv = _load(x + at * stride_x * UNIT + cols, mask, MASKED, "")
        if HAS_R:
            rv = _load(r + at * stride_r * UNIT + cols, mask, MASKED, "")
            total = xv.to(tl.float32) + rv.to(tl.float32)
            xv = total.to(s.dtype.element_ty)
            h = xv.to(tl.float32) if ROUND_SUM else total
        else:
            h = xv.to(tl.float32)
        part = tl.sum(tl.sum(tl.reshape(h * h, [REPEAT, THREADS, VECTOR]), 2), 0)
        if ASM == "":
            rstd = tl.rsqrt(tl.sum(part, 0) * (1.0 / D) + eps)
        else:
            full = tl.inline_asm_elementwise(ASM, "=f,f,r", [part, turn], dtype=tl.float32, is_pure=False, pack=1)
            full = tl.broadcast_to(full[None, :, None], [REPEAT, THREADS, VECTOR])
            rstd = tl.rsqrt(tl.reshape(full, [REPEAT * THREADS * VECTOR]) * (1.0 / D) + eps)
        turn += 1
        if HAS_R:
            _store(s + at * stride_s * UNIT + cols, xv, mask, MASKED, OUT_POLICY)
        h = h * rstd
        if HF:
            h = h.to(out).to(tl.float32)
        if HAS_W:
            h = _scale(h, held, offset, HAS_OFFSET)
        _store(y + at * stride_y * UNIT + cols, h.to(out), mask, MASKED, OUT_POLICY)
