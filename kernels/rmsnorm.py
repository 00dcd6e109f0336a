"""RMSNorm and its fused residual add, as Triton kernels: functional ops, in-place ops, warm-up.

    y = rms_norm(x, weight, eps)                            y = x * rsqrt(mean(x^2) + eps) * (w + weight_offset)
    y, s = add_rms_norm(x, residual, weight, eps)           s = x + residual, y = rms_norm(s)
    rms_norm_(x, …), add_rms_norm_(x, residual, …)          the same, written into x (y) and residual (s)

x and residual: [..., d], float16, bfloat16 or float32; weight: [d] in any of the three, or None. Everything inside is FP32;
the output has x's dtype. The first call of a shape checks its arguments and compiles; later calls go straight to the launch.

The kernels run on CUDA tensors where Triton imports. CPU tensors, machines without Triton and calls that need a gradient take
the same formula in torch operations (`explain` says which). Under torch.compile the ops are torch.library ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robot_perf.errors import BackendUnavailableError, install_line
from robot_perf.kernels.rmsnorm_checks import check_undifferentiated
from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference

__all__ = ["add_rms_norm", "add_rms_norm_", "explain", "rms_norm", "rms_norm_", "warmup"]

Tensor = Any  # torch.Tensor; torch is imported on the first call

torch: Any = None
_eager: Any = None
_tracing: Any = None  # torch._C._is_tracing and its like, bound once: they are asked at every call
_modes: Any = None
_transform: Any = None
_forward: Any = None
_plans: dict[Any, Any] = {}  # calls seen before; see rmsnorm_eager


def _ready() -> None:
    """Imports torch and registers the ops at the first call."""
    if torch is None:
        _start()


# What torch.compiler.assume_constant_result would set, had torch been imported: a compiled first call runs this function
# instead of tracing it.
_ready._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _start() -> None:
    global torch, _eager, _tracing, _modes, _transform, _forward  # noqa: PLW0603
    try:
        import torch as torch_module
    except ImportError as error:
        raise BackendUnavailableError(
            "rms_norm needs torch, which is not installed", do=install_line("torch"), detail=str(error)
        ) from error
    from robot_perf.kernels import rmsnorm_eager, rmsnorm_ops

    rmsnorm_ops.register()
    rmsnorm_eager.plans = _plans
    _eager = rmsnorm_eager
    c = torch_module._C
    _tracing, _modes, _transform = c._is_tracing, c._len_torch_dispatch_stack, c._functorch.peek_interpreter_stack
    _forward = torch_module.autograd.forward_ad
    torch = torch_module


def _special(x: Tensor, weight: Tensor | None) -> bool:
    # A gradient (forward or backward), a tracer, a dispatch mode (make_fx), a functorch transform (vmap) or a tensor subclass (fake
    # tensors among them) must see torch operations, not a bare launch: a graph traced past it would return what was in the memory.
    if torch.is_grad_enabled() and (x.requires_grad or (weight is not None and weight.requires_grad)):
        return True
    return (
        type(x) is not torch.Tensor
        or _tracing()
        or _modes() > 0
        or _transform() is not None
        or _forward._current_level >= 0
    )


def _differentiated(*tensors: Tensor | None) -> bool:
    return bool(torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors))


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    weight_offset: float = 0.0,
    cast: str = "fp32",
    batch_invariant: bool = False,
) -> Tensor:
    """RMSNorm over the last dimension, in a new contiguous tensor of x's shape and dtype. No input is written.

    eps >= 0 is inside the root. weight_offset is added to the weight in FP32 (Gemma: 1.0). cast="fp32" rounds once, "hf"
    rounds the normalised x to x.dtype before the weight. batch_invariant=True chooses the kernel from d and dtype alone, so
    that a row's bits don't depend on how many rows come with it; else they may differ by 1 ulp across table thresholds.
    Raises UsageError naming the argument.
    """
    _ready()
    if torch.compiler.is_compiling():
        if _differentiated(x, weight):
            return rms_norm_reference(x, weight, eps, weight_offset=weight_offset, cast=cast)
        return torch.ops.robot_perf.rms_norm(x, weight, eps, weight_offset, cast, batch_invariant)
    key: Any
    try:
        key = (
            x.shape, x.stride(), x.dtype, x.get_device(),
            None if weight is None else (weight.shape, weight.stride(), weight.dtype, weight.get_device()),
            eps, weight_offset, cast, batch_invariant,
        )  # fmt: skip
        plan = _plans.get(key)
    except (AttributeError, TypeError):  # not tensors (the check says which), or sizes that are symbols
        key = plan = None
    if plan is None or _special(x, weight):
        return _eager.first(key, x, None, weight, (eps, weight_offset, cast, True, batch_invariant))[0]
    y = torch.empty_like(x) if plan.dense else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    plan.go(x, None, weight, y, None)
    return y


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    round_sum: bool = True,
    weight_offset: float = 0.0,
    cast: str = "fp32",
    batch_invariant: bool = False,
) -> tuple[Tensor, Tensor]:
    """(y, s) with s = x + residual and y = rms_norm(s), one kernel, two new tensors. No input is written.

    round_sum=True normalises the sum as it is stored: y is bitwise rms_norm(s). False normalises the unrounded FP32 sum.
    """
    _ready()
    if torch.compiler.is_compiling():
        if _differentiated(x, residual, weight):
            return add_rms_norm_reference(
                x, residual, weight, eps, round_sum=round_sum, weight_offset=weight_offset, cast=cast
            )
        y, s = torch.ops.robot_perf.add_rms_norm(
            x, residual, weight, eps, round_sum, weight_offset, cast, batch_invariant
        )
        return y, s
    key: Any
    try:
        key = (
            x.shape, x.stride(), residual.shape, residual.stride(), x.dtype, residual.dtype, x.get_device(), residual.get_device(),
            None if weight is None else (weight.shape, weight.stride(), weight.dtype, weight.get_device()),
            eps, weight_offset, cast, round_sum, batch_invariant,
        )  # fmt: skip
        plan = _plans.get(key)
    except (AttributeError, TypeError):
        key = plan = None
    if plan is None or _special(x, weight) or residual.requires_grad:
        return _eager.first(key, x, residual, weight, (eps, weight_offset, cast, round_sum, batch_invariant))  # type: ignore[no-any-return]
    if plan.dense:
        y, s = torch.empty_like(x), torch.empty_like(x)
    else:
        y, s = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
    plan.go(x, residual, weight, y, s)
    return y, s


def rms_norm_(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    weight_offset: float = 0.0,
    cast: str = "fp32",
    batch_invariant: bool = False,
) -> Tensor:
    """rms_norm written into x; returns x. Raises UsageError where x can't be written in place, never writes a copy."""
    _ready()
    if torch.compiler.is_compiling():
        check_undifferentiated(x, weight)
        torch.ops.robot_perf.rms_norm_(x, weight, eps, weight_offset, cast, batch_invariant)
        return x
    return _eager.rms_norm_(x, weight, eps, weight_offset, cast, batch_invariant)


def add_rms_norm_(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    round_sum: bool = True,
    weight_offset: float = 0.0,
    cast: str = "fp32",
    batch_invariant: bool = False,
) -> tuple[Tensor, Tensor]:
    """add_rms_norm with y written into x and s into residual; returns (x, residual). Buffers that overlap raise UsageError."""
    _ready()
    if torch.compiler.is_compiling():
        check_undifferentiated(x, residual, weight)
        torch.ops.robot_perf.add_rms_norm_(x, residual, weight, eps, round_sum, weight_offset, cast, batch_invariant)
        return x, residual
    return _eager.add_rms_norm_(x, residual, weight, eps, round_sum, weight_offset, cast, batch_invariant)  # type: ignore[no-any-return]


def warmup(
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    *,
    weight: bool = True,
    weight_dtype: Any = None,
    fused: Sequence[bool] = (False, True),
    device: Any = "cuda",
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    cast: str = "fp32",
    round_sum: bool = True,
    batch_invariant: bool = False,
) -> int:
    """Compiles, loads and runs once every kernel that these [..., d] shapes and dtypes need; returns how many calls it made.

    Needed before a CUDA-graph capture that meets a shape for the first time: loading inside a capture would abort it.
    Both layouts are loaded: 16-byte aligned and unaligned.
    """
    _ready()
    calls = 0
    for dtype in dtypes:
        for shape in shapes:
            d = int(shape[-1])
            for shift in (0, 1):  # a base pointer that is one element off takes the unaligned kernel
                x = torch.zeros(tuple(shape), dtype=dtype, device=device)
                w = (
                    torch.zeros(d + 1, dtype=weight_dtype or dtype, device=device)[shift : shift + d]
                    if weight
                    else None
                )
                if shift:
                    x = torch.zeros(x.numel() + 1, dtype=dtype, device=device)[1:].view(tuple(shape))
                options: dict[str, Any] = {
                    "weight_offset": weight_offset,
                    "cast": cast,
                    "batch_invariant": batch_invariant,
                }
                for both in fused:
                    with torch.no_grad():
                        if both:
                            add_rms_norm(x, x, w, eps, round_sum=round_sum, **options)
                        else:
                            rms_norm(x, w, eps, **options)
                    calls += 1
    if calls and torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return calls


def explain(x: Tensor, weight: Tensor | None = None, residual: Tensor | None = None) -> str:
    """Which path a call would take and why: "kernel: row, 1 rows x 8 warps, …" or "torch operations: …"."""
    _ready()
    found: str = _eager.explain(x, weight, residual)
    return found
