"""What the RMSNorm ops accept: names, dtypes, layouts and overlaps. Slow-path only; a call that was seen before skips it."""

from __future__ import annotations

import math
from typing import Any

from robot_perf.errors import UsageError

__all__ = [
    "TRITON_NAMES",
    "check_arguments",
    "check_undifferentiated",
    "check_writable",
    "collapse",
    "disjoint",
]

Tensor = Any

TRITON_NAMES = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32"}
CASTS = ("fp32", "hf")


def check_arguments(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, eps: Any, weight_offset: Any, cast: str
) -> None:
    """Raises UsageError naming the argument, what it is and what is accepted."""
    for name, tensor in (("x", x), ("residual", residual), ("weight", weight)):
        if tensor is not None:
            _check_tensor(name, tensor, x)
    d = x.shape[-1]
    if residual is not None:
        if residual.shape != x.shape:
            raise UsageError(
                f"rms_norm: residual has shape {tuple(residual.shape)}", why=f"It must have x's shape {tuple(x.shape)}."
            )
        if residual.dtype != x.dtype:
            raise UsageError(f"rms_norm: residual is {residual.dtype}", why=f"It must have x's dtype {x.dtype}.")
    if weight is not None and tuple(weight.shape) != (d,):
        raise UsageError(
            f"rms_norm: weight has shape {tuple(weight.shape)}", why=f"It must be ({d},), x's last dimension."
        )
    if not isinstance(eps, (int, float)) or not math.isfinite(eps) or eps < 0:
        raise UsageError(f"rms_norm: eps is {eps!r}", why="Allowed: a finite number, 0 or above; the default is 1e-6.")
    if not isinstance(weight_offset, (int, float)) or not math.isfinite(weight_offset):
        raise UsageError(
            f"rms_norm: weight_offset is {weight_offset!r}", why="Allowed: a finite number; Gemma uses 1.0."
        )
    if weight is None and weight_offset:
        raise UsageError("rms_norm: weight_offset without a weight", do="Pass a weight or leave weight_offset at 0.")
    if cast not in CASTS:
        raise UsageError(f"rms_norm: cast is {cast!r}", why=f"Allowed: {', '.join(map(repr, CASTS))}.")


def check_undifferentiated(*tensors: Tensor | None) -> None:
    """Raises UsageError where an in-place op would write what a gradient needs."""
    import torch

    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise UsageError(
            "rms_norm: an in-place op can't be differentiated",
            why="x, residual or weight requires a gradient and grad mode is on.",
            do="Use the functional op, or call it under torch.no_grad().",
        )


def _check_tensor(name: str, tensor: Tensor, x: Tensor) -> None:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise UsageError(f"rms_norm: {name} is a {type(tensor).__name__}", why="It must be a torch tensor.")
    if str(tensor.dtype) not in TRITON_NAMES or tensor.is_quantized or tensor.layout != torch.strided:
        raise UsageError(
            f"rms_norm: {name} is {tensor.dtype} ({tensor.layout})",
            why="Accepted: strided torch.float16, torch.bfloat16, torch.float32.",
        )
    if name == "x" and tensor.dim() == 0:
        raise UsageError("rms_norm: x has no dimensions", why="It needs at least one; rows run along the last.")
    if tensor.device != x.device:
        raise UsageError(f"rms_norm: {name} is on {tensor.device} and x on {x.device}", do="Move both to one device.")


def collapse(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, int] | None:
    """(rows, row stride) of a tensor seen as rows of its last dimension; None where no single row stride exists.

    The last stride must be 1 (any value where d is 1). Expanded leading dimensions (stride 0) collapse too.
    """
    if shape[-1] > 1 and stride[-1] != 1:
        return None
    rows, step = 1, 0
    for size, jump in zip(reversed(shape[:-1]), reversed(stride[:-1]), strict=True):
        if size == 1:
            continue
        if rows == 1:
            step = jump
        elif jump != rows * step:
            return None
        rows *= size
    return rows, step


def check_writable(name: str, tensor: Tensor) -> tuple[int, int]:
    """(rows, row stride) of a buffer that is written in place; UsageError where it can't be written as rows."""
    found = collapse(tuple(tensor.shape), tuple(tensor.stride()))
    if found is None:
        raise UsageError(
            f"rms_norm: {name} can't be written in place: shape {tuple(tensor.shape)}, strides {tuple(tensor.stride())}",
            why="In place needs a last stride of 1 and leading dimensions that one row stride describes.",
            do=f"Use the functional op, or pass {name}.contiguous() and keep the result.",
        )
    rows, step = found
    if rows > 1 and step < tensor.shape[-1]:
        raise UsageError(
            f"rms_norm: the rows of {name} overlap in memory (row stride {step}, d {tensor.shape[-1]})",
            why="Expanded or overlapping rows can be read but not written.",
        )
    return rows, step


def disjoint(a: Tensor, b: Tensor) -> bool:
    """True where no byte of a is one of b, as far as their row strides show it (rows of one wider buffer included)."""
    if a.numel() == 0 or b.numel() == 0:
        return True
    span_a, span_b = _span(a), _span(b)
    if span_a[1] <= span_b[0] or span_b[1] <= span_a[0]:
        return True
    ra, rb = collapse(tuple(a.shape), tuple(a.stride())), collapse(tuple(b.shape), tuple(b.stride()))
    if ra is None or rb is None or a.element_size() != b.element_size():
        return False
    if ra[1] != rb[1] or ra[1] <= 0:
        return False
    # same pitch: columns [0, d) of a against [shift, shift + d) of b, modulo the pitch
    pitch = ra[1] * a.element_size()
    shift = (span_b[0] - span_a[0]) % pitch
    width_a, width_b = a.shape[-1] * a.element_size(), b.shape[-1] * b.element_size()
    return bool(shift >= width_a and shift + width_b <= pitch)


def _span(t: Tensor) -> tuple[int, int]:
    last = sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True))
    start: int = t.data_ptr()
    return start, start + (last + 1) * t.element_size()
