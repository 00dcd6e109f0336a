"""Is a provider's output right? FP64 from the same inputs, in each order a provider may compute; the nearest one is its own."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["ORDERS", "judge"]

Tensor = Any
ORDERS = (
    ("fp32", True),
    ("fp32", False),
    ("hf", True),
    ("hf", False),
)  # cast order, whether the fused sum is rounded first
BOUND_ULP = {"fp32": 0.51, "hf": 2.5}
PEER_BOUND_ULP = {"fp32": 1.0, "hf": 2.5}  # a peer may use an approximate reciprocal root
ROWS = 48  # half of them first, half last: where a grid and its masks end
MIDDLE_ROWS = 48  # the same ones in every process, so that all providers are judged alike


def judge(
    out: tuple[Tensor, ...], x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, *, ours: bool
) -> dict[str, Any]:
    """{"failed": why or None, "order", "max_ulp", "relative_l2"} of the rows of `_judged`; all of y must be finite."""
    import torch

    from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference

    y = out[0]
    if y.shape != x.shape or y.dtype != x.dtype:
        return {"failed": f"y is {tuple(y.shape)} {y.dtype}, not {tuple(x.shape)} {x.dtype}"}
    rows = torch.tensor(_judged(x.shape[0]), device=x.device)
    if residual is not None:
        if len(out) != 2:
            return {"failed": f"{len(out)} outputs where y and s are asked for"}
        if not torch.equal(out[1][rows], x[rows] + residual[rows]):
            return {"failed": "s is not x + residual"}
    if not bool(torch.isfinite(y).all()):
        return {"failed": "y is not finite everywhere"}
    best: dict[str, Any] = {}
    for cast, round_sum in ORDERS if residual is not None else ORDERS[::2]:
        options: dict[str, Any] = {"cast": cast, "accumulate": torch.float64, "rounded": False}
        if residual is None:
            ref = rms_norm_reference(x[rows], weight, eps, **options)
        else:
            ref = add_rms_norm_reference(x[rows], residual[rows], weight, eps, round_sum=round_sum, **options)[0]
        error = y[rows].double() - ref
        _, exponent = torch.frexp(ref.abs())
        digits = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}[y.dtype]
        ulp = float((error.abs() / torch.exp2((exponent - digits).double().clamp(min=-133))).max())
        l2 = float(error.norm() / ref.norm())
        if not best or l2 < best["relative_l2"]:
            named = cast if residual is None else f"{cast}, {'rounded' if round_sum else 'unrounded'} sum"
            best = {"order": named, "max_ulp": round(ulp, 4), "relative_l2": l2, "cast": cast}
    bound = (BOUND_ULP if ours else PEER_BOUND_ULP)[best.pop("cast")]
    failed = None if best["max_ulp"] <= bound else f"{best['max_ulp']} ulp from FP64 of the {best['order']} order"
    return {"failed": failed, **best}


def _judged(m: int) -> list[int]:
    """The first and last rows, and as many of the middle at random, the same ones for the same m."""
    half = ROWS // 2
    middle = range(half, m - half)
    drawn = random.Random(m).sample(middle, min(MIDDLE_ROWS, len(middle)))
    return sorted({*range(min(m, half)), *drawn, *range(max(0, m - half), m)})
