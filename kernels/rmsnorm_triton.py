"""The three Triton kernels behind `robot_perf.kernels.rmsnorm`. A file in Triton's language, compiled for the device.

| kernel | one program does | for |
|---|---|---|
| `row` | a tile of ROWS whole rows, in registers | d that fits the registers, any M |
| `split` | a whole row, or a CTAS-th of it in a thread-block cluster | small M, and rows wider than one block's registers |
| `loop` | a row, or its CTAS-th part, in two passes over chunks | wide rows: the second pass hits L1, or at least L2 |

All take the same run-time arguments, in this order: x, residual, weight, y, s (pointers; null where absent), m (rows), the
row strides of x, residual, y, s in units of UNIT elements, and the bits of eps and offset as FP32 (as integers, because Inductor
passes a Python float as FP64). Row offsets are 64-bit; every reduction is FP32 (reference: RMSNorm, Zhang and Sennrich 2019: y = x / sqrt(mean(x^2) + eps) * w).

UNIT is the number of elements in 16 bytes when every pointer, stride and d allows 16-byte accesses, else 1: a stride that is
only known at run time would otherwise drop to scalar loads.
"""
# mypy: ignore-errors
# ruff: noqa: RET505, PLR0915 (the compiler wants both branches of a constexpr if)

from __future__ import annotations

try:
    import triton
    import triton.language as tl
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # `rmsnorm_launch` says so to people; here the names only have to resolve
    triton = None

__all__ = ["HAVE_TRITON", "rms_norm_loop", "rms_norm_row", "rms_norm_split"]

HAVE_TRITON = triton is not None


def _jit(fn):
    # M and the strides vary from call to call: specialising on their values would compile again and again
    if triton is None:
        return fn
    return triton.jit(
        fn, do_not_specialize=["m", "stride_x", "stride_r", "stride_y", "stride_s", "eps_bits", "offset_bits"]
    )


def _helper(fn):
    return fn if triton is None else triton.jit(fn)


@_helper
def _load(ptr, mask, MASKED: tl.constexpr, POLICY: tl.constexpr):
    if MASKED:
        return tl.load(ptr, mask=mask, other=0.0, eviction_policy=POLICY)
    else:
        return tl.load(ptr, eviction_policy=POLICY)


@_helper
def _store(ptr, value, mask, MASKED: tl.constexpr):
    if MASKED:
        tl.store(ptr, value, mask=mask)
    else:
        tl.store(ptr, value)


@_helper
def _begin(PDL: tl.constexpr):
    # Programmatic dependent launch: let the next kernel of the stream be set up while this one runs, and touch no memory
    # before everything that came earlier in the stream is complete and visible.
    if PDL == 1:
        gdc_launch_dependents()
        gdc_wait()
    elif PDL == 2:
        gdc_wait()
        gdc_launch_dependents()


@_helper
def _arrive(CTAS: tl.constexpr):
    # Peers must have started before anyone writes into their shared memory; the exchange waits for this arrival.
    if CTAS > 1:
        tl.inline_asm_elementwise(
            "barrier.cluster.arrive.relaxed.aligned; // $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@_helper
def _scale(h, wv, offset, HAS_OFFSET: tl.constexpr):
    if HAS_OFFSET:
        return h * (wv.to(tl.float32) + offset)
    else:
        return h * wv.to(tl.float32)


@_helper
def _packed(v, PACK16: tl.constexpr):
    # Hides 16-bit registers from the optimiser, which would otherwise keep the row as FP32 in twice the registers.
    if PACK16:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [v], dtype=v.dtype, is_pure=False, pack=2)
    else:
        return v


@_jit
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
        _store(s + (rows * stride_s * UNIT)[:, None] + cols[None, :], xv, mask, MASKED)
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
    _store(y + (rows * stride_y * UNIT)[:, None] + cols[None, :], h.to(out), mask, MASKED)


@_jit
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
    ASM: tl.constexpr,
):
    """One row per cluster of CTAS programs (SLICE elements each), the sum exchanged through distributed shared memory.

    The tile is [THREADS, REPEAT, VECTOR], so that a thread's partial sum is one element of a [THREADS] tensor and ASM
    (`rmsnorm_ptx.block_sum_asm`) can finish the sum with one barrier. ASM "" sums with tl.sum (CTAS must be 1): the interpreter's way.
    """
    _arrive(CTAS)
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
            _store(s + at * stride_s * UNIT + cols, xv, mask, MASKED)
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
        _store(s + at * stride_s * UNIT + cols, xv, mask, MASKED)
    if HAS_W and not W_EARLY:
        wv = _load(w + cols, mask, MASKED, W_POLICY)
    if PACK16:
        h = _packed(xv, True).to(tl.float32)
    h = h * rstd
    if HF:
        h = h.to(out).to(tl.float32)
    if HAS_W:
        h = _scale(h, wv, offset, HAS_OFFSET)
    _store(y + at * stride_y * UNIT + cols, h.to(out), mask, MASKED)


@_jit
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
    ASM: tl.constexpr,
):
    """One row per cluster of CTAS programs (SLICE elements each) in two passes of BLOCK-wide chunks.

    The second pass walks back: its first chunks are still in L1. ASM (`rmsnorm_ptx.cluster_sum_asm`) adds the programs' sums.
    """
    _arrive(CTAS)
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
                _store(s + cols, sv, mask, MASKED)
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
                _store(s + cols, h.to(s.dtype.element_ty), mask, MASKED)
        h = h * rstd
        if HF:
            h = h.to(out).to(tl.float32)
        if HAS_W:
            h = _scale(h, _load(w + cols, mask, MASKED, "evict_last" if HINTS else ""), offset, HAS_OFFSET)
        _store(y + cols, h.to(out), mask, MASKED)
