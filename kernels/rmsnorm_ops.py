"""The same ops for torch.compile and torch.export: torch.library ops whose bodies the compiler sees.

`robot_perf::rms_norm` and `add_rms_norm` are Triton ops: Inductor takes the kernel itself into its graph, so it neither breaks
the graph nor copies. `rms_norm_` and `add_rms_norm_` declare exactly the buffers they write. Where the number of rows is
symbolic the launch is the one that depends on d and dtype alone, so that no guard on it recompiles the graph.

Inside a compiled graph kernels run without dependent launch and clusters: Inductor launches them itself and knows neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from robot_perf.kernels import rmsnorm_launch as launching
from robot_perf.kernels import rmsnorm_plan as planning
from robot_perf.kernels import rmsnorm_triton
from robot_perf.kernels.rmsnorm_checks import check_arguments, check_writable, collapse
from robot_perf.kernels.rmsnorm_config import device_facts
from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference

__all__ = ["register"]

Tensor = Any
_registered = False


def register() -> None:
    """Defines the four ops, once."""
    global _registered  # noqa: PLW0603
    if _registered:
        return
    import torch

    tensor: Any = torch.Tensor
    types: dict[str, Any] = {
        "x": tensor,
        "residual": tensor,
        "weight": tensor | None,
        "eps": float,
        "round_sum": bool,
        "weight_offset": float,
        "cast": str,
        "batch_invariant": bool,
    }
    ops: tuple[tuple[Callable[..., Any], Any, tuple[str, ...]], ...] = (
        (_rms_norm, tensor, ()),
        (_add_rms_norm, tuple[torch.Tensor, torch.Tensor], ()),
        (_rms_norm_, None, ("x",)),
        (_add_rms_norm_, None, ("x", "residual")),
    )
    for body, returned, mutated in ops:
        # torch infers the schema from annotations, and these can only name torch once it is imported
        names = inspect.signature(body).parameters
        body.__annotations__ = {name: types[name] for name in names} | {"return": returned}
        torch.library.triton_op(f"robot_perf::{body.__name__[1:]}", body, mutates_args=mutated)
    _registered = True


def _rms_norm(
    x: Tensor, weight: Tensor | None, eps: float, weight_offset: float, cast: str, batch_invariant: bool
) -> Tensor:
    check_arguments(x, None, weight, eps, weight_offset, cast)
    if _in_torch(x):
        return rms_norm_reference(x, weight, eps, weight_offset=weight_offset, cast=cast).contiguous()
    y = x.new_empty(x.shape)
    _queue(_rows(x), None, weight, y, None, (eps, weight_offset, cast, True, batch_invariant))
    return y


def _add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    round_sum: bool,
    weight_offset: float,
    cast: str,
    batch_invariant: bool,
) -> tuple[Tensor, Tensor]:
    check_arguments(x, residual, weight, eps, weight_offset, cast)
    if _in_torch(x):
        y, s = add_rms_norm_reference(
            x, residual, weight, eps, round_sum=round_sum, weight_offset=weight_offset, cast=cast
        )
        return y.contiguous(), s.contiguous()
    y, s = x.new_empty(x.shape), x.new_empty(x.shape)
    _queue(_rows(x), _rows(residual), weight, y, s, (eps, weight_offset, cast, round_sum, batch_invariant))
    return y, s


def _rms_norm_(
    x: Tensor, weight: Tensor | None, eps: float, weight_offset: float, cast: str, batch_invariant: bool
) -> None:
    check_arguments(x, None, weight, eps, weight_offset, cast)
    check_writable("x", x)
    if _in_torch(x):
        x.copy_(rms_norm_reference(x, weight, eps, weight_offset=weight_offset, cast=cast))
        return
    _queue(x, None, weight, x, None, (eps, weight_offset, cast, True, batch_invariant))


def _add_rms_norm_(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    round_sum: bool,
    weight_offset: float,
    cast: str,
    batch_invariant: bool,
) -> None:
    check_arguments(x, residual, weight, eps, weight_offset, cast)
    check_writable("x", x)
    check_writable("residual", residual)
    if _in_torch(x):
        y, s = add_rms_norm_reference(
            x, residual, weight, eps, round_sum=round_sum, weight_offset=weight_offset, cast=cast
        )
        x.copy_(y)
        residual.copy_(s)
        return
    _queue(x, residual, weight, x, residual, (eps, weight_offset, cast, round_sum, batch_invariant))


def _in_torch(x: Tensor) -> bool:
    # a compiler can't see into the interpreter
    return launching.interpreting() or planning.why_not(x) is not None


def _rows(t: Tensor) -> Tensor:
    return t if collapse(tuple(t.shape), tuple(t.stride())) else t.contiguous()


def _dense(t: Tensor) -> Tensor:
    import torch

    return t if t.is_contiguous() else t.clone(memory_format=torch.contiguous_format)


def _queue(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, y: Tensor, s: Tensor | None, flags: planning.Flags
) -> None:
    import torch

    if x.numel() == 0:
        return
    facts = device_facts(x.device.index if x.device.index is not None else torch.cuda.current_device())
    plain = replace(facts, capability=min(facts.capability, 89))
    m, strides, vector = planning.layout(x, (residual, y, s))
    if not vector and planning.copies(
        int(x.shape[-1]), 16 // x.element_size(), fused=residual is not None, flags=flags
    ):
        dense, other = _dense(x), None if residual is None else _dense(residual)
        outputs = dense if y is x else y, other if s is residual else s
        _queue(dense, other, weight, *outputs, flags)
        for given, made in zip((y, s), outputs, strict=True):
            if made is not given:
                given.copy_(made)
        return
    if weight is not None:
        weight = _dense(weight)  # the kernels read it as such
    rows = m if isinstance(m, int) else None
    d = int(x.shape[-1])  # a compile-time constant of the kernel, whatever dynamic=True made of it
    dtype = None if weight is None else weight.dtype
    # Base pointers are unknown while tracing. Triton, not this choice, decides from each pointer whether accesses are wide.
    variant = planning.variant_of(rows, d, x.dtype, dtype, plain, flags, fused=residual is not None, vector=vector)
    unit = 16 // x.element_size() if vector else 1
    tensors = [x if t is None else t for t in (x, residual, weight, y, s)]
    kernel = torch.library.wrap_triton(rmsnorm_triton.KERNELS[variant.launch.kernel])
    kernel[(-(-m // variant.launch.rows),)](
        *tensors, m, *(step // unit for step in strides), launching.float_bits(flags[0]), launching.float_bits(flags[1]),
        **launching.constants(variant), num_warps=variant.launch.warps,
    )  # fmt: skip
