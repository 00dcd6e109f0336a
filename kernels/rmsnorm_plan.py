"""From a checked call to a compiled kernel and the closure that launches it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robot_perf.kernels import rmsnorm_launch as launching
from robot_perf.kernels.rmsnorm_checks import TRITON_NAMES, collapse
from robot_perf.kernels.rmsnorm_config import INTERPRETER, DeviceFacts, choose, device_facts
from robot_perf.kernels.rmsnorm_launch import Variant
from robot_perf.kernels.rmsnorm_support import check_dtype
from robot_perf.kernels.rmsnorm_triton import HAVE_TRITON

__all__ = ["Flags", "Plan", "build", "describe", "layout", "variant_of", "why_not"]

Tensor = Any
Flags = tuple[float, float, str, bool, bool]  # eps, weight_offset, cast, round_sum, batch_invariant
Go = Callable[[Tensor, "Tensor | None", "Tensor | None", Tensor, "Tensor | None"], None]  # x, residual, weight, y, s


@dataclass(frozen=True, slots=True)
class Plan:
    """`go` queues the kernel on the current stream; `dense` says that x is contiguous, so that empty_like allocates y."""

    go: Go
    dense: bool


def why_not(x: Tensor) -> str | None:
    """Why the kernels can't take tensors of x's device; None if they can."""
    if not HAVE_TRITON:
        return "Triton is not installed"
    if launching.interpreting():
        return None if x.device.type == "cpu" else "the kernels are interpreted (TRITON_INTERPRET=1)"
    if x.device.type != "cuda":
        return f"x is on {x.device.type}"
    import torch

    return "this torch is built for ROCm" if torch.version.hip else None


def variant_of(
    m: int | None, d: int, x: Any, weight: Any | None, facts: DeviceFacts, flags: Flags, *, fused: bool, vector: bool
) -> Variant:
    """The kernel variant for m rows (None: unknown) of d elements; x and weight are torch dtypes."""
    _, offset, cast, round_sum, batch_invariant = flags
    launch = choose(None if batch_invariant else m, d, x.itemsize, facts, vector=vector)
    name = TRITON_NAMES[str(x)]
    return Variant(
        launch=launch,
        d=d,
        x=name,
        weight=None if weight is None else TRITON_NAMES[str(weight)],
        vector=vector,
        fused=fused,
        offset=bool(offset),
        hf=cast == "hf",
        round_sum=round_sum or not fused,
    )


def layout(x: Tensor, tensors: tuple[Tensor | None, ...]) -> tuple[int, list[int], bool]:
    """(rows, row strides of x, residual, y, s in elements, whether they and d allow 16-byte accesses)."""
    found = [None if t is None else collapse(tuple(t.shape), tuple(t.stride())) for t in (x, *tensors)]
    m = next(f[0] for f in found if f is not None)
    strides = [0 if f is None or m == 1 else f[1] for f in found]
    unit = 16 // x.element_size()
    # d decides even for one row: else a row alone and a row in a batch would be summed in different orders
    return m, strides, x.shape[-1] % unit == 0 and all(step % unit == 0 for step in strides)


def describe(x: Tensor, residual: Tensor | None, weight: Tensor | None) -> tuple[Variant, int]:
    """The variant and the grid that a functional call with default options would get."""
    m, _, vector = layout(x, (residual, None, None))
    vector = vector and not any(t is not None and t.data_ptr() % 16 for t in (x, residual, weight))
    facts = _facts(x)
    dtype = None if weight is None else weight.dtype
    variant = variant_of(
        m,
        x.shape[-1],
        x.dtype,
        dtype,
        facts,
        (0.0, 0.0, "fp32", True, False),
        fused=residual is not None,
        vector=vector,
    )
    return variant, variant.launch.grid(m) * variant.launch.ctas


def _facts(x: Tensor) -> DeviceFacts:
    return INTERPRETER if launching.interpreting() else launching.usable_facts(device_facts(x.get_device()))


def build(x: Tensor, residual: Tensor | None, weight: Tensor | None, y: Tensor, s: Tensor | None, flags: Flags) -> Plan:
    """The plan of a call whose arguments were checked and whose tensors collapse to rows."""
    m, strides, vector = layout(x, (residual, y, s))
    facts = _facts(x)
    if facts.capability:
        for name, tensor in (("x", x), ("weight", weight)):
            if tensor is not None:
                check_dtype(name, str(tensor.dtype).removeprefix("torch."), facts.capability)
    dtype = None if weight is None else weight.dtype

    def variant(use: bool) -> Variant:
        return variant_of(m, x.shape[-1], x.dtype, dtype, facts, flags, fused=residual is not None, vector=use)

    index = x.get_device()
    flat = (*strides, launching.float_bits(flags[0]), launching.float_bits(flags[1]))
    if launching.interpreting() or not launching.direct():
        return Plan(_through_jit(variant, m, vector, x.element_size(), flat), bool(x.is_contiguous()))
    import torch

    with torch.cuda.device(index):
        scalar = _Late(lambda: _direct(variant(False), index, m, flat, None))
        if not vector:
            return Plan(scalar.now(), bool(x.is_contiguous()))
        unit = 16 // x.element_size()
        units = (*(step // unit for step in strides), *flat[4:])
        return Plan(_direct(variant(True), index, m, units, scalar), bool(x.is_contiguous()))


class _Late:
    """Something built when it is first asked for."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Go]) -> None:
        self._make = make
        self._made: Go | None = None

    def now(self) -> Go:
        if self._made is None:
            self._made = self._make()
        return self._made


def _direct(variant: Variant, device: int, m: int, rest: tuple[Any, ...], unaligned: _Late | None) -> Go:
    """The launch with the least host work: integers straight into Triton's C launcher, no binding, no hashing."""
    import torch

    loaded = launching.load(variant, device)
    c_launch, function, pdl, packed = loaded.c_launch, loaded.function, loaded.pdl, loaded.packed
    grid, tail = variant.launch.grid(m), (m, *rest, *loaded.fixed)
    # the same two private functions that Triton's own driver and Inductor call
    raw_stream, current_device = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice

    def go(x: Tensor, r: Tensor | None, w: Tensor | None, y: Tensor, s: Tensor | None) -> None:
        px, py = x.data_ptr(), y.data_ptr()
        pw = 0 if w is None else w.data_ptr()
        pr, ps = (0, 0) if r is None else (r.data_ptr(), s.data_ptr())  # type: ignore[union-attr]
        if current_device() != device:
            with torch.cuda.device(device):
                go(x, r, w, y, s)
        elif unaligned is not None and (px | pr | pw | py | ps) & 15:
            unaligned.now()(x, r, w, y, s)
        else:
            c_launch(
                grid, 1, 1, raw_stream(device), function, 0, pdl, None, None, packed, None, None, None, px, pr, pw, py, ps, *tail
            )  # fmt: skip

    return go


def _through_jit(variant: Callable[[bool], Variant], m: int, vector: bool, itemsize: int, flat: tuple[Any, ...]) -> Go:
    """The launch through `kernel[grid](...)`: the interpreter's, and that of Triton releases the direct one wasn't tested with."""
    import torch

    unit = 16 // itemsize

    def go(x: Tensor, r: Tensor | None, w: Tensor | None, y: Tensor, s: Tensor | None) -> None:
        tensors = (x, r, w, y, s)
        wide = vector and not any(t is not None and t.data_ptr() % 16 for t in tensors)
        strides = [step // unit for step in flat[:4]] if wide else flat[:4]
        with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
            launching.launch_jit(variant(wide), tensors, m, strides, flat[4], flat[5])

    return go
