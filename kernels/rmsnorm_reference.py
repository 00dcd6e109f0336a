"""RMSNorm in plain torch operations: what the kernels must compute, and what runs where they can't.

    rstd = rsqrt(mean(x * x) + eps)        inside the root, FP32, never clamped
    cast="fp32":  y = round(x * rstd * (w + offset))              one rounding, at the end
    cast="hf":    y = round(round(x * rstd) * (w + offset))       as Hugging Face's Llama
    fused add:    s = x + residual, rounded to x.dtype; y from s (round_sum) or from the unrounded FP32 sum

Differentiable. `accumulate=torch.float64` gives the oracle of the tests, unrounded with `rounded=False`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["add_rms_norm_reference", "rms_norm_reference"]

Tensor = Any  # torch.Tensor: torch is imported on use


def rms_norm_reference(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    weight_offset: float = 0.0,
    cast: str = "fp32",
    accumulate: Any = None,
    rounded: bool = True,
) -> Tensor:
    """y of [..., d] rows, in x.dtype (or in `accumulate` with rounded=False)."""
    import torch

    wide = accumulate or torch.float32
    return _norm(x.to(wide), x.dtype, weight, eps, weight_offset, cast, rounded)


def add_rms_norm_reference(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    round_sum: bool = True,
    weight_offset: float = 0.0,
    cast: str = "fp32",
    accumulate: Any = None,
    rounded: bool = True,
) -> tuple[Tensor, Tensor]:
    """(y, s) of the sum s = x + residual."""
    import torch

    wide = accumulate or torch.float32
    total = x.to(wide) + residual.to(wide)
    stored = x + residual
    return _norm(stored.to(wide) if round_sum else total, x.dtype, weight, eps, weight_offset, cast, rounded), stored


def _norm(h: Tensor, dtype: Any, weight: Tensor | None, eps: float, offset: float, cast: str, rounded: bool) -> Tensor:
    import torch

    wide = h.dtype
    h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    if cast == "hf":
        h = h.to(dtype).to(wide)
    if weight is not None:
        scale = weight.to(wide)
        h = h * (scale + offset if offset else scale)
    return h.to(dtype) if rounded else h
