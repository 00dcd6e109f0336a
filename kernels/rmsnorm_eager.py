"""The eager path: a call becomes a plan, and the next call like it is a dictionary look-up, an allocation and one launch.

A library op costs tens of microseconds through the dispatcher; a robot's batch-1 step has dozens of norms. So outside
torch.compile nothing is dispatched: the plan holds checked shapes and the compiled kernel, and only what can change between
two calls with equal shapes is looked at again (pointers, current device, stream, grad mode, tracing).
"""

from __future__ import annotations

from typing import Any

from robot_perf.errors import UsageError
from robot_perf.kernels import rmsnorm_plan as planning
from robot_perf.kernels.rmsnorm_checks import (
    check_arguments,
    check_undifferentiated,
    check_writable,
    collapse,
    disjoint,
)
from robot_perf.kernels.rmsnorm_plan import Flags
from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference

try:
    import torch
except ImportError:  # rmsnorm._start says so
    torch = None

__all__ = ["add_rms_norm_", "explain", "first", "forget_plans", "plans", "rms_norm_"]

Tensor = Any

plans: dict[Any, planning.Plan] = {}  # rmsnorm._plans, whose two functional ops look a call up themselves
PLANS_KEPT = 8192  # shapes; a server that sees more starts over rather than grow without bound


def forget_plans() -> None:
    """Drops every plan, after a change of the launch table or its switches."""
    plans.clear()


def rms_norm_(x: Tensor, weight: Tensor | None, eps: float, offset: float, cast: str, batch_invariant: bool) -> Tensor:
    """See rmsnorm.rms_norm_."""
    key, plan = _found(_key_of_one("in place", x, weight, eps, offset, cast, batch_invariant))
    if plan is None or _special(x, weight):
        return _first_in_place(key, x, None, weight, (eps, offset, cast, True, batch_invariant))[0]
    _check_apart(("x", x), ("weight", weight))
    plan.go(x, None, weight, x, None)
    _written(x)
    return x


def add_rms_norm_(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    round_sum: bool,
    offset: float,
    cast: str,
    batch_invariant: bool,
) -> tuple[Tensor, Tensor]:
    """See rmsnorm.add_rms_norm_."""
    key, plan = _found(_key_of_two("add in place", x, residual, weight, eps, round_sum, offset, cast, batch_invariant))
    if plan is None or _special(x, weight) or residual.requires_grad:
        return _first_in_place(key, x, residual, weight, (eps, offset, cast, round_sum, batch_invariant))
    _check_apart(("x", x), ("residual", residual))
    _check_apart(("x", x), ("weight", weight))
    _check_apart(("residual", residual), ("weight", weight))
    plan.go(x, residual, weight, x, residual)
    _written(x, residual)
    return x, residual


def _written(*tensors: Tensor | None) -> None:
    """Tells autograd, as torch's own in-place operations do: a backward pass that had saved the old values must raise."""
    for tensor in tensors:
        if tensor is not None and not tensor.is_inference():  # those count no versions
            torch.autograd.graph.increment_version(tensor)


def explain(x: Tensor, weight: Tensor | None, residual: Tensor | None) -> str:
    """See rmsnorm.explain."""
    check_arguments(x, residual, weight, 0.0, 0.0, "fp32")
    if _wants_grad(x, residual, weight):
        return "torch operations: a gradient is wanted"
    if _transformed():
        return "torch operations: vmap, jvp or forward-mode differentiation is at work"
    reason = planning.why_not(x)
    if reason:
        return f"torch operations: {reason}"
    if x.numel() == 0:
        return "nothing to launch: no elements"
    x, residual, weight, copied = _as_rows(x, residual, weight)
    variant, grid, unaligned = planning.describe(x, residual, weight)
    access = "16-byte" if variant.vector else "element"
    after = " on copies" if copied or unaligned else ""
    return f"kernel{after}: {variant.launch.words()}, grid {grid}, {access} accesses, {variant.launch.basis}"


def _key_of_one(op: str, x: Tensor, weight: Tensor | None, *flags: Any) -> Any:
    try:
        return (
            op, x.shape, x.stride(), x.dtype, x.get_device(),
            None if weight is None else (weight.shape, weight.stride(), weight.dtype, weight.get_device()), *flags,
        )  # fmt: skip
    except AttributeError:  # not tensors: say which
        check_arguments(x, None, weight, *flags[:3])
        raise


def _key_of_two(op: str, x: Tensor, residual: Tensor, weight: Tensor | None, *flags: Any) -> Any:
    try:
        return (
            op, x.shape, x.stride(), residual.shape, residual.stride(), x.dtype, residual.dtype, x.get_device(), residual.get_device(),
            None if weight is None else (weight.shape, weight.stride(), weight.dtype, weight.get_device()), *flags,
        )  # fmt: skip
    except AttributeError:
        check_arguments(x, residual, weight, flags[0], *flags[2:4])
        raise


def _found(key: Any) -> tuple[Any, planning.Plan | None]:
    try:
        return key, plans.get(key)
    except TypeError:  # sizes that are symbols have no hash
        return None, None


def _special(x: Tensor, weight: Tensor | None) -> bool:
    return _wants_grad(x, weight) or torch._C._is_tracing() or _transformed() or _watched(x)


def _transformed() -> bool:
    """True under vmap, jvp and forward-mode differentiation, which know torch's operations and not ours."""
    forward: Any = torch.autograd.forward_ad
    return torch._C._functorch.peek_interpreter_stack() is not None or forward._current_level >= 0


def _watched(x: Tensor) -> bool:
    """True where a dispatch mode or x's own class must see an operation instead of a launch."""
    return not _plain(x) or torch._C._len_torch_dispatch_stack() > 0


def _plain(x: Tensor) -> bool:
    return type(x) in (torch.Tensor, torch.nn.Parameter)


def _wants_grad(*tensors: Tensor | None) -> bool:
    return bool(torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors))


def first(key: Any, x: Tensor, residual: Tensor | None, weight: Tensor | None, flags: Flags) -> tuple[Tensor, Tensor]:
    """(y, s) of a functional call that has no plan or must not use it: checked, then planned, copied or left to torch."""
    eps, offset, cast, round_sum, batch_invariant = flags
    check_arguments(x, residual, weight, eps, offset, cast)
    if _wants_grad(x, residual, weight) or torch._C._is_tracing() or _transformed() or planning.why_not(x):
        return _reference(x, residual, weight, flags)
    if _watched(x):
        if residual is None:
            return torch.ops.robot_perf.rms_norm(x, weight, eps, offset, cast, batch_invariant), None
        return torch.ops.robot_perf.add_rms_norm(x, residual, weight, eps, round_sum, offset, cast, batch_invariant)  # type: ignore[no-any-return]
    if x.numel() == 0:
        empty = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        return empty, None if residual is None else torch.empty_like(empty)
    x, residual, weight, copied = _as_rows(x, residual, weight)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    s = None if residual is None else torch.empty_like(y)
    plan = planning.build(x, residual, weight, y, s, flags)
    plan.go(x, residual, weight, y, s)
    if not copied:  # a copied input has another key next time, too: it is copied again
        _keep(key, plan)
    return y, s


def _as_rows(
    x: Tensor, residual: Tensor | None, weight: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None, bool]:
    def rows(t: Tensor) -> Tensor:
        return t if collapse(tuple(t.shape), tuple(t.stride())) else t.contiguous()

    out = rows(x), None if residual is None else rows(residual), None if weight is None else weight.contiguous()
    return *out, out[0] is not x or out[1] is not residual or out[2] is not weight


def _first_in_place(
    key: Any, x: Tensor, residual: Tensor | None, weight: Tensor | None, flags: Flags
) -> tuple[Tensor, Tensor]:
    eps, offset, cast, round_sum, batch_invariant = flags
    check_arguments(x, residual, weight, eps, offset, cast)
    check_undifferentiated(x, residual, weight)
    if x.numel() == 0:
        return x, residual
    check_writable("x", x)
    if residual is not None:
        check_writable("residual", residual)
    if _plain(x) and not _transformed():  # a fake tensor has no address, and none of vmap's
        if residual is not None:
            _check_apart(("x", x), ("residual", residual))
            _check_apart(("residual", residual), ("weight", weight))
        _check_apart(("x", x), ("weight", weight))
    in_torch = _transformed() or planning.why_not(x)
    if _watched(x) and not in_torch:
        if residual is None:
            torch.ops.robot_perf.rms_norm_(x, weight, eps, offset, cast, batch_invariant)
        else:
            torch.ops.robot_perf.add_rms_norm_(x, residual, weight, eps, round_sum, offset, cast, batch_invariant)
        return x, residual
    if in_torch:
        y, s = _reference(x, residual, weight, flags)
        x.copy_(y)
        return x, None if residual is None else residual.copy_(s)
    if weight is not None and not weight.is_contiguous():
        weight = weight.contiguous()
        key = None
    plan = planning.build(x, residual, weight, x, residual, flags)
    plan.go(x, residual, weight, x, residual)
    _written(x, residual)
    if key is not None:
        _keep(key, plan)
    return x, residual


def _check_apart(a: tuple[str, Tensor], b: tuple[str, Tensor | None]) -> None:
    first, second = a[1], b[1]
    if second is None:
        return
    start, other = first.data_ptr(), second.data_ptr()
    if first.is_contiguous() and second.is_contiguous():
        if start + first.nbytes <= other or other + second.nbytes <= start:
            return
    elif disjoint(first, second):
        return
    raise UsageError(
        f"rms_norm: {a[0]} and {b[0]} share memory",
        why=f"An in-place op writes {a[0]}; {b[0]} must not overlap it, wholly or in part.",
        do="Pass separate buffers, or use the functional op.",
    )


def _reference(x: Tensor, residual: Tensor | None, weight: Tensor | None, flags: Flags) -> tuple[Tensor, Tensor]:
    eps, offset, cast, round_sum, _ = flags
    if residual is None:
        return rms_norm_reference(x, weight, eps, weight_offset=offset, cast=cast).contiguous(), None
    y, s = add_rms_norm_reference(x, residual, weight, eps, round_sum=round_sum, weight_offset=offset, cast=cast)
    return y.contiguous(), s.contiguous()


def _keep(key: Any, plan: planning.Plan) -> None:
    if len(plans) >= PLANS_KEPT:
        plans.clear()
    plans[key] = plan
