"""FP64 truth and the error measures of the kernel tests."""

from __future__ import annotations

import torch

from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference

MANTISSA = {torch.bfloat16: 7, torch.float16: 10, torch.float32: 23}
SMALLEST = {torch.bfloat16: -133, torch.float16: -24, torch.float32: -149}  # exponent of the smallest subnormal


def truth(x, weight=None, eps=1e-6, residual=None, **options):
    """Unrounded FP64 y of the same inputs, in the order under test."""
    wide = {"accumulate": torch.float64, "rounded": False}
    if residual is None:
        return rms_norm_reference(x, weight, eps, **options, **wide)
    return add_rms_norm_reference(x, residual, weight, eps, **options, **wide)[0]


def ulp_errors(y, ref):
    """|y - ref| of every element in units of the last place of ref in y's dtype."""
    _, exponent = torch.frexp(ref.abs())
    last = (exponent - 1 - MANTISSA[y.dtype]).clamp(min=SMALLEST[y.dtype])
    return (y.double() - ref).abs() / torch.exp2(last.double())


def ulps(y, ref):
    """The largest of them."""
    return ulp_errors(y, ref).max().item()


def check(y, ref, cast="fp32"):
    """The bounds of the contract: 0.51 ulp (fp32 order) or 1.5 (hf order) at 16 bits, 8 eps relative at FP32.

    In the hf order FP32's own error (1e-7) can flip a tie of the inner rounding, about once in 2,000 FP16 elements. One unit of
    the normalised x is up to two of y: such an element may be off by 2.5.
    """
    assert torch.isfinite(ref).all()
    if y.dtype == torch.float32:
        worst = ((y.double() - ref).abs() / ref.abs().clamp(min=1e-37)).max().item()
        assert worst <= 8 * torch.finfo(torch.float32).eps, f"relative error {worst:.3g}"
        return
    errors = ulp_errors(y, ref)
    if cast == "hf":
        assert errors.max().item() <= 2.5
        errors = errors.flatten().sort().values[: max(1, int(0.999 * errors.numel()))]
    # FP32 accumulation and one rounding: 0.5 plus what FP32's own error moves a tie
    assert errors.max().item() <= (0.51 if cast == "fp32" else 1.5), f"{errors.max().item():.4f} ulp"


def rows_like(shape, dtype, device, spread=True):
    """Random rows with scales from 1e-4 to 1e4 (less where the dtype can't) and one spike per row."""
    x = torch.randn(shape, device=device, dtype=torch.float32)
    if spread and x.dim() > 1:
        top = 3.0 if dtype == torch.float16 else 4.0
        scale = torch.logspace(-4, top, max(1, x.shape[:-1].numel()), device=device).reshape(*x.shape[:-1], 1)
        x = x * scale
        x[..., x.shape[-1] // 2] *= 8
    return x.to(dtype)
