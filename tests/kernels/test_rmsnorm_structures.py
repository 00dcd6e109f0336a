"""Every structure of the launch table, whatever this device would choose; bits that hold in every layout; the slow launch."""

from __future__ import annotations

import contextlib

import pytest
import torch

from robot_perf.errors import UsageError
from robot_perf.kernels import rmsnorm_launch as launching
from robot_perf.kernels import rmsnorm_plan as planning
from robot_perf.kernels.rmsnorm import add_rms_norm, add_rms_norm_, rms_norm, rms_norm_
from robot_perf.kernels.rmsnorm_config import Launch
from robot_perf.kernels.rmsnorm_launch import Variant
from tests.kernels.oracle import check, rows_like, truth

LAUNCHES = {
    "split, a warp": (Launch("split", 1), 96),
    "split, repeats": (Launch("split", 2), 1000),
    "split, wide": (Launch("split", 8), 4096),
    "tile of 4": (Launch("row", 2, block=128, rows=4), 96),
    "tile of 32": (Launch("row", 4, block=64, rows=32), 64),
}


@pytest.mark.parametrize("name", LAUNCHES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("cast", ["fp32", "hf"])
def test_every_structure_against_fp64(device, name, dtype, fused, cast):
    """The interpreter's own choice is one row or one loop: it never met `split` or several rows a program."""
    launch, d = LAUNCHES[name]
    m = 5 if launch.rows == 1 else launch.rows + 3  # the last program has rows to spare
    x, w = rows_like((m, d), dtype, device), (1 + 0.1 * torch.randn(d, device=device)).to(dtype)
    r = torch.randn(m, d, device=device).to(dtype) if fused else None
    y, s = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan) if fused else None
    short = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[dtype]
    variant = Variant(launch, d, short, short, vector=True, fused=fused, hf=cast == "hf")
    steps = [d // (16 // x.element_size())] * 4
    bits = launching.float_bits(1e-6), launching.float_bits(0.0)
    launching.launch_jit(variant, (x, r, w, y, s), m, steps, *bits)
    if s is not None:
        assert torch.equal(s, x + r)
    check(y, truth(x if s is None else s, w, cast=cast), cast)


def off_by_one(shape, dtype, device):
    """A dense tensor whose base pointer is one element off."""
    return rows_like((shape[0] * shape[1] + 1, 1), dtype, device, spread=False).view(-1)[1:].view(shape)


LAYOUTS = {
    "one element off": off_by_one,
    "odd pitch": lambda shape, dtype, device: torch.randn(shape[0], shape[1] + 1, device=device).to(dtype)[:, :-1],
    "odd columns": lambda shape, dtype, device: torch.randn(shape[0], shape[1] + 9, device=device).to(dtype)[:, 1:-8],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_invariant_bits_do_not_depend_on_the_layout(device, layout):
    """Another access is another order of the sum: all 8000 elements of an FP32 row differed from those of the row in its batch."""
    x = LAYOUTS[layout]((4, 8000), torch.float32, device)
    w = torch.randn(8001, device=device)[1:]
    want = rms_norm(x.clone(memory_format=torch.contiguous_format), w.clone(), batch_invariant=True)
    for _ in range(2):
        assert torch.equal(rms_norm(x, w, batch_invariant=True), want)
    assert torch.equal(rms_norm(x[2:3], w, batch_invariant=True), want[2:3])
    before = x.clone()
    assert rms_norm_(x, w, batch_invariant=True) is x
    assert torch.equal(x, want)
    assert not torch.equal(x, before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_fused_add_is_the_norm_of_its_stored_sum_in_every_layout(device, layout):
    x, r = (LAYOUTS[layout]((2, 8000), torch.float32, device) for _ in range(2))
    w = torch.randn(8000, device=device)
    total = x + r
    y, s = add_rms_norm(x, r, w)
    assert torch.equal(s, total)
    assert torch.equal(y, rms_norm(s, w))
    add_rms_norm_(x, r, w)
    assert torch.equal(r, total)
    assert torch.equal(x, y)


@pytest.mark.parametrize(
    ("d", "fused", "round_sum", "invariant", "copied"),
    [
        (64, False, True, False, False),
        (64, False, True, True, True),
        (64, True, True, False, True),
        (64, True, False, False, False),
        (63, True, True, True, False),  # no layout of 63 elements is aligned: there is one launch as it is
    ],
)
def test_a_layout_is_copied_only_where_bits_are_promised(d, fused, round_sum, invariant, copied):
    assert planning.copies(d, 8, fused=fused, flags=(1e-6, 0.0, "fp32", round_sum, invariant)) is copied


class Jit:
    """`kernel[grid]` of a Triton that is launched the slow way."""

    def __init__(self) -> None:
        self.calls: list[dict[str, object]] = []

    def __getitem__(self, _grid: tuple[int]):
        return lambda *_arguments, **options: self.calls.append(options)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch):
    jit = Jit()
    monkeypatch.setattr(launching, "interpreting", lambda: False)
    monkeypatch.setitem(launching.rmsnorm_triton.KERNELS, "row", jit)
    monkeypatch.setattr(launching, "_launched", set())
    capturing = [False]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    x = torch.zeros(65)

    def launch(shift: int = 0) -> None:
        row = x[shift : shift + 64]
        launching.launch_jit(Variant(Launch("row", 2, block=64), 64, "fp32", None, vector=False), (row, None, None, row, None), 1, [0] * 4, 0, 0)  # fmt: skip

    return jit, capturing, launch


def test_the_slow_launch_compiles_as_the_direct_one_does(slow):
    """It named the warps alone: a row of subnormal squares was a row of infinities there, and the fused bits were not the plain ones."""
    pytest.importorskip("triton")
    jit, _, launch = slow
    launch()
    (options,) = jit.calls
    assert {k: options[k] for k in ("num_warps", "num_stages", "enable_reflect_ftz", "enable_fp_fusion")} == {
        "num_warps": 2, "num_stages": 1, "enable_reflect_ftz": False, "enable_fp_fusion": False,
    }  # fmt: skip


def test_the_slow_launch_refuses_to_load_inside_a_capture(slow):
    pytest.importorskip("triton")
    jit, capturing, launch = slow
    capturing[0] = True
    with pytest.raises(UsageError, match="not loaded while the stream captures"):
        launch()
    capturing[0] = False
    launch()
    capturing[0] = True
    launch()
    with pytest.raises(UsageError, match="not loaded while the stream captures"):
        launch(shift=1)  # another alignment is another kernel
    assert len(jit.calls) == 2


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch):
    """The direct launch with Triton's C launcher played: what it was given, per call. Outputs are not computed."""
    calls: list[dict[str, object]] = []

    def load(variant: Variant, _device: int) -> launching.Loaded:
        def c_launch(grid, _y, _z, _stream, _function, _cooperative, _pdl, *rest):
            (_, _, _, *_hooks), numbers = rest[:6], rest[6:]
            x, r, w, y, s, m, *steps = numbers[:10]
            calls.append({"grid": grid, "pointers": (x, r, w, y, s), "m": m, "steps": steps, "vector": variant.vector})

        return launching.Loaded(c_launch, 0, 0, (variant.launch.warps, 1, 0), (), 0, 0)

    monkeypatch.setattr(launching, "load", load)
    monkeypatch.setattr(launching, "interpreting", lambda: False)
    monkeypatch.setattr(launching, "direct", lambda: True)
    monkeypatch.setattr(planning, "_facts", lambda _x: planning.INTERPRETER)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _device: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)  # what get_device() is on the CPU
    monkeypatch.setattr(torch.cuda, "device", lambda _index: contextlib.nullcontext())
    return calls


FLAGS = (1e-6, 0.0, "fp32", True, False)


def test_the_direct_launch_gives_addresses_rows_and_strides(launched):
    x, w, y = torch.randn(3, 128)[:, :64], torch.randn(64), torch.empty(3, 64)
    planning.build(x, None, w, y, None, FLAGS).go(x, None, w, y, None)
    (call,) = launched
    assert call["pointers"] == (x.data_ptr(), 0, w.data_ptr(), y.data_ptr(), 0)
    assert (call["grid"], call["m"], call["steps"], call["vector"]) == (3, 3, [32, 0, 16, 0], True)  # in 16-byte units


def test_the_direct_launch_reads_unaligned_tensors_where_they_are_unless_bits_are_promised(launched):
    x, y = torch.randn(4 * 64 + 1)[1:].view(4, 64), torch.empty(4, 64)
    planning.build(x, None, None, y, None, FLAGS).go(x, None, None, y, None)
    assert (launched[-1]["vector"], launched[-1]["steps"], launched[-1]["pointers"][0]) == (
        False,
        [64, 0, 64, 0],
        x.data_ptr(),
    )
    planning.build(x, None, None, y, None, (*FLAGS[:4], True)).go(x, None, None, y, None)
    assert (launched[-1]["vector"], launched[-1]["steps"]) == (True, [16, 0, 16, 0])
    assert launched[-1]["pointers"][0] not in (0, x.data_ptr()) and launched[-1]["pointers"][0] % 16 == 0
    assert launched[-1]["pointers"][3] == y.data_ptr()


def test_the_direct_launch_in_place_writes_back_what_it_copied(launched, monkeypatch):
    copied = []
    monkeypatch.setattr(planning, "_aligned", lambda t: copied.append(t) or torch.full_like(t, float(len(copied))))
    x, r = (torch.zeros(2, 65)[:, :64] for _ in range(2))
    planning.build(x, r, None, x, r, FLAGS).go(x, r, None, x, r)
    assert launched[-1]["steps"] == [16, 16, 16, 16]
    assert [t is given for t, given in zip(copied, (x, r), strict=True)] == [True, True]
    assert (x == 1).all() and (r == 2).all()
