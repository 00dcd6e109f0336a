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

__all__ = ["Flags", "Plan", "build", "copies", "describe", "layout", "variant_of", "why_not"]

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


def describe(x: Tensor, residual: Tensor | None, weight: Tensor | None) -> tuple[Variant, int, bool]:
    """(variant, grid, whether unaligned tensors are copied first) of a functional call with default options."""
    m, _, vector = layout(x, (residual, None, None))
    vector = vector and not any(t is not None and t.data_ptr() % 16 for t in (x, residual, weight))
    d, fused, flags = x.shape[-1], residual is not None, (0.0, 0.0, "fp32", True, False)
    copied = not vector and copies(d, 16 // x.element_size(), fused=fused, flags=flags)
    dtype = None if weight is None else weight.dtype
    variant = variant_of(m, d, x.dtype, dtype, _facts(x), flags, fused=fused, vector=vector or copied)
    return variant, variant.launch.grid(m) * variant.launch.ctas, copied


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
    d, unit, device = x.shape[-1], 16 // x.element_size(), x.get_device()
    bits = launching.float_bits(flags[0]), launching.float_bits(flags[1])

    def launch(steps: list[int], *, wide: bool, unaligned: _Late | None = None) -> Go:
        variant = variant_of(m, d, x.dtype, dtype, facts, flags, fused=residual is not None, vector=wide)
        rest = (*(step // unit if wide else step for step in steps), *bits)
        if launching.interpreting() or not launching.direct():
            return _through_jit(variant, m, rest, unaligned)
        import torch

        with torch.cuda.device(device):
            return _direct(variant, device, m, rest, unaligned)

    def other() -> Go:
        if not copies(d, unit, fused=residual is not None, flags=flags):
            return launch(strides, wide=False)
        return _through_copies(launch([0 if t is None or m == 1 else d for t in (x, residual, y, s)], wide=True))

    unaligned = _Late(other)
    go = launch(strides, wide=True, unaligned=unaligned) if vector else unaligned.now()
    return Plan(go, bool(x.is_contiguous()))


def copies(d: int, unit: int, *, fused: bool, flags: Flags) -> bool:
    """Whether tensors that don't allow 16-byte accesses are copied to where they do, rather than read element by element.

    Another access is another order of the sum. So where bits are promised (batch_invariant, or y of the fused add being that
    of its stored sum), one launch serves every layout.
    """
    _, _, _, round_sum, batch_invariant = flags
    return d % unit == 0 and (batch_invariant or (fused and round_sum))


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


def _through_jit(variant: Variant, m: int, rest: tuple[int, ...], unaligned: _Late | None) -> Go:
    """The launch through `kernel[grid](...)`: the interpreter's, and that of Triton releases the direct one wasn't tested with."""
    import torch

    def go(x: Tensor, r: Tensor | None, w: Tensor | None, y: Tensor, s: Tensor | None) -> None:
        tensors = (x, r, w, y, s)
        if unaligned is not None and any(t is not None and t.data_ptr() % 16 for t in tensors):
            unaligned.now()(*tensors)
            return
        with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
            launching.launch_jit(variant, tensors, m, rest[:4], rest[4], rest[5])

    return go


def _through_copies(go: Go) -> Go:
    """`go` on contiguous, aligned copies of what isn't; what it writes in place comes back."""

    def run(x: Tensor, r: Tensor | None, w: Tensor | None, y: Tensor, s: Tensor | None) -> None:
        ax, ar, aw = _aligned(x), None if r is None else _aligned(r), None if w is None else _aligned(w)
        # a functional call's outputs are new: aligned and dense as they are
        ay, as_ = ax if y is x else y, ar if s is r else s
        go(ax, ar, aw, ay, as_)
        for given, made in ((y, ay), (s, as_)):
            if made is not given:
                given.copy_(made)  # type: ignore[union-attr]

    return run


def _aligned(t: Tensor) -> Tensor:
    import torch

    fits = t.is_contiguous() and t.data_ptr() % 16 == 0
    return t if fits else t.clone(memory_format=torch.contiguous_format)
