"""The `split` kernel of `rmsnorm_triton`: a row over a block or a cluster, its sum finished with one barrier."""
# mypy: ignore-errors

from __future__ import annotations

from robot_perf.kernels.rmsnorm_device import _begin, _load, _packed, _scale, _start, _store, kernel, tl

__all__ = ["rms_norm_split"]


@kernel
def rms_norm_split(
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
    W_EARLY: tl.constexpr,
    PACK16: tl.constexpr,
    PDL: tl.constexpr,
    X_POLICY: tl.constexpr,
    W_POLICY: tl.constexpr,
    OUT_POLICY: tl.constexpr,
    START: tl.constexpr,
    ASM: tl.constexpr,
):
    """One row per cluster of CTAS programs (SLICE elements each), the sum exchanged through distributed shared memory.

    The tile is [THREADS, REPEAT, VECTOR], so that a thread's partial sum is one element of a [THREADS] tensor and ASM
    (`rmsnorm_ptx.block_sum_asm`) can finish the sum with one barrier. ASM "" sums with tl.sum (CTAS must be 1): the interpreter's way.
    """
    _start(START)
    _begin(PDL)
    out = y.dtype.element_ty
    eps = tl.cast(eps_bits, tl.float32, bitcast=True)
    offset = tl.cast(offset_bits, tl.float32, bitcast=True)
    pid = tl.program_id(0)
    at = (pid // CTAS).to(tl.int64)
    local = (
        tl.arange(0, REPEAT)[None, :, None] * (THREADS * VECTOR)
        + tl.arange(0, THREADS)[:, None, None] * VECTOR
        + tl.arange(0, VECTOR)[None, None, :]
    )
    cols = local + (pid % CTAS) * SLICE
    MASKED: tl.constexpr = (THREADS * REPEAT * VECTOR != SLICE) or (SLICE * CTAS != D)
    mask = (local < SLICE) & (cols < D)
    xv = _load(x + at * stride_x * UNIT + cols, mask, MASKED, X_POLICY)
    if HAS_R:
        rv = _load(r + at * stride_r * UNIT + cols, mask, MASKED, X_POLICY)
        total = xv.to(tl.float32) + rv.to(tl.float32)
        xv = total.to(s.dtype.element_ty)
        if CTAS == 1:
            _store(s + at * stride_s * UNIT + cols, xv, mask, MASKED, OUT_POLICY)
        h = xv.to(tl.float32) if ROUND_SUM else total
    else:
        h = xv.to(tl.float32)
    if HAS_W and W_EARLY:
        wv = _load(w + cols, mask, MASKED, W_POLICY)
    part = tl.sum(tl.sum(h * h, 2), 1)
    if ASM == "":
        rstd = tl.rsqrt(tl.sum(part, 0) * (1.0 / D) + eps)
    else:
        full = tl.inline_asm_elementwise(ASM, "=f,f", [part], dtype=tl.float32, is_pure=False, pack=1)
        rstd = tl.rsqrt(full * (1.0 / D) + eps)[:, None, None]
    if HAS_R and CTAS > 1:
        # after the exchange: its release would wait for these stores
        _store(s + at * stride_s * UNIT + cols, xv, mask, MASKED, OUT_POLICY)
    if HAS_W and not W_EARLY:
        wv = _load(w + cols, mask, MASKED, W_POLICY)
    if PACK16:
        h = _packed(xv, True).to(tl.float32)
    h = h * rstd
    if HF:
        h = h.to(out).to(tl.float32)
    if HAS_W:
        h = _scale(h, wv, offset, HAS_OFFSET)
    _store(y + at * stride_y * UNIT + cols, h.to(out), mask, MASKED, OUT_POLICY)
