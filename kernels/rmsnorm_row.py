"""The `row` kernel of `rmsnorm_triton`: whole rows in registers, from the only read to the only write."""
# mypy: ignore-errors

from __future__ import annotations

from robot_perf.kernels.rmsnorm_device import _begin, _load, _packed, _scale, _store, kernel, tl

__all__ = ["rms_norm_row"]


@kernel
def rms_norm_row(
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
    ROWS: tl.constexpr,
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
):
    """ROWS rows of D elements per program, in registers from the only read to the only write."""
    _begin(PDL)
    out = y.dtype.element_ty
    eps = tl.cast(eps_bits, tl.float32, bitcast=True)
    offset = tl.cast(offset_bits, tl.float32, bitcast=True)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    MASKED: tl.constexpr = (BLOCK != D) or (ROWS > 1)
    mask = (rows < m)[:, None] & (cols < D)[None, :]
    xv = _load(x + (rows * stride_x * UNIT)[:, None] + cols[None, :], mask, MASKED, X_POLICY)
    if HAS_R:
        rv = _load(r + (rows * stride_r * UNIT)[:, None] + cols[None, :], mask, MASKED, X_POLICY)
        total = xv.to(tl.float32) + rv.to(tl.float32)
        xv = total.to(s.dtype.element_ty)
        _store(s + (rows * stride_s * UNIT)[:, None] + cols[None, :], xv, mask, MASKED, OUT_POLICY)
        h = xv.to(tl.float32) if ROUND_SUM else total
    else:
        h = xv.to(tl.float32)
    if HAS_W and W_EARLY:
        wv = _load(w + cols, cols < D, BLOCK != D, W_POLICY)
    rstd = tl.rsqrt(tl.sum(h * h, 1) * (1.0 / D) + eps)
    if HAS_W and not W_EARLY:
        wv = _load(w + cols, cols < D, BLOCK != D, W_POLICY)
    if PACK16:
        h = _packed(xv, True).to(tl.float32)
    h = h * rstd[:, None]
    if HF:
        h = h.to(out).to(tl.float32)
    if HAS_W:
        h = _scale(h, wv[None, :], offset, HAS_OFFSET)
    _store(y + (rows * stride_y * UNIT)[:, None] + cols[None, :], h.to(out), mask, MASKED, OUT_POLICY)
