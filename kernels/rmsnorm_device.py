"""What the Triton kernels of `rmsnorm_triton` share: decorators and small device functions. Triton's language, not Python's."""
# mypy: ignore-errors
# ruff: noqa: RET505 (the compiler wants both branches of a constexpr if)

from __future__ import annotations

try:
    import triton
    import triton.language as tl
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # `rmsnorm_launch` says so to people; here the names only have to resolve
    triton = tl = None

__all__ = ["HAVE_TRITON", "_begin", "_load", "_packed", "_scale", "_start", "_store", "kernel", "tl"]

HAVE_TRITON = triton is not None


def kernel(fn):
    """`triton.jit` for an RMSNorm kernel; the function itself where Triton is absent."""
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
def _store(ptr, value, mask, MASKED: tl.constexpr, POLICY: tl.constexpr):
    if MASKED:
        tl.store(ptr, value, mask=mask, eviction_policy=POLICY)
    else:
        tl.store(ptr, value, eviction_policy=POLICY)


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
def _start(START: tl.constexpr):
    # What a block of a cluster says to its peers before anyone writes into their shared memory (`rmsnorm_ptx`).
    if START != "":
        tl.inline_asm_elementwise(START, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


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
