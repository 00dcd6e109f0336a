"""Layouts, poisoned outputs, 64-bit offsets, in-place ops and overlaps (A2 to A8)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robot_perf.errors import UsageError
from robot_perf.kernels.rmsnorm import add_rms_norm, add_rms_norm_, explain, rms_norm, rms_norm_
from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference
from tests.kernels.oracle import check, truth

ON_GPU = torch.cuda.is_available()


def variants(base):
    """Views of one [6, 5, 96] tensor with different layouts, each with the reference's own values."""
    wide = torch.randn(6, 5, 200, device=base.device).to(base.dtype)
    yield "dense", base
    yield "columns of a wider tensor", wide[..., 40:136]
    yield "odd columns of a wider tensor", wide[..., 41:138][..., :96]
    yield "every second row", torch.randn(12, 5, 96, device=base.device).to(base.dtype)[::2]
    yield "leading dimensions swapped", base.transpose(0, 1)
    yield "last dimension not unit", torch.randn(6, 96, 5, device=base.device).to(base.dtype).transpose(1, 2)
    yield "expanded rows", base[:1, :1].expand(6, 5, 96)
    yield "expanded inner rows", base[:, :1].expand(6, 5, 96)
    yield "one element off", torch.randn(6 * 5 * 96 + 1, device=base.device).to(base.dtype)[1:].view(6, 5, 96)
    yield "one dimension", base[0, 0]


def test_every_layout_gives_the_dense_result(device):
    base = torch.randn(6, 5, 96, device=device).to(torch.bfloat16)
    w = (1 + 0.1 * torch.randn(96, device=device)).to(torch.bfloat16)
    for name, x in variants(base):
        y = rms_norm(x, w)
        assert y.is_contiguous(), name
        assert y.shape == x.shape, name
        check(y, truth(x, w))
        for other, r in variants(torch.randn(6, 5, 96, device=device).to(torch.bfloat16)):
            if r.shape == x.shape:
                y, s = add_rms_norm(x, r, w)
                assert torch.equal(s, x + r), (name, other)
                check(y, truth(x, w, residual=r))


@settings(
    max_examples=40 if ON_GPU else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(data=st.data())
def test_any_strided_view(device, data):
    d = data.draw(st.integers(1, 70))
    lead = data.draw(st.lists(st.integers(1, 3), min_size=0, max_size=3))
    pads = [data.draw(st.integers(0, 3)) for _ in lead]
    offset = data.draw(st.integers(0, 9))
    order = data.draw(st.permutations(range(len(lead))))
    step, strides = d, [0] * len(lead)
    for i in order:
        step += pads[i]
        strides[i] = step
        step *= lead[i]
    storage = torch.randn(offset + step + d + 1, device=device).to(torch.float16)
    x = storage.as_strided((*lead, d), (*strides, 1), offset)
    w = torch.randn(d, device=device)
    check(rms_norm(x, w), truth(x, w))


def test_a_weight_that_is_a_strided_view(device):
    x = torch.randn(3, 64, device=device)
    w = torch.randn(128, device=device)[::2]
    check(rms_norm(x, w), truth(x, w))


@pytest.mark.parametrize("d", (96, 1000, 40_000))
def test_poisoned_rows_are_fully_written_and_canaries_stay(device, d):
    m = 5 if d < 10_000 else 2
    pad = 24
    buffer = torch.full((m + 2, d + pad), float("nan"), dtype=torch.bfloat16, device=device)
    x = buffer[1 : m + 1, 8 : d + 8]
    x.copy_(torch.randn(m, d, device=device))
    r_buffer = torch.full_like(buffer, float("nan"))
    r = r_buffer[1 : m + 1, 8 : d + 8]
    r.copy_(torch.randn(m, d, device=device))
    expected, total = add_rms_norm_reference(x, r)
    add_rms_norm_(x, r)
    assert torch.equal(r, total)
    check(x, truth(total))
    for whole, inner in ((buffer, x), (r_buffer, r)):
        inner.fill_(0)
        mask = torch.ones_like(whole, dtype=torch.bool)
        mask[1 : m + 1, 8 : d + 8] = False
        assert whole[mask].isnan().all()
    assert expected.shape == x.shape


def test_functional_ops_write_no_input(device):
    x, r, w = (torch.randn(s, device=device) for s in ((4, 256), (4, 256), (256,)))
    kept = [t.clone() for t in (x, r, w)]
    rms_norm(x, w)
    add_rms_norm(x, r, w)
    assert all(torch.equal(a, b) for a, b in zip((x, r, w), kept, strict=True))


@pytest.mark.parametrize("d", (64, 1000, 40_000))
@pytest.mark.parametrize("round_sum", (True, False))
def test_in_place_equals_functional_bitwise(device, d, round_sum):
    x, r = (torch.randn(2, d, device=device).to(torch.bfloat16) for _ in range(2))
    w = torch.randn(d, device=device).to(torch.bfloat16)
    y, s = add_rms_norm(x, r, w, round_sum=round_sum)
    a, b = x.clone(), r.clone()
    out = add_rms_norm_(a, b, w, round_sum=round_sum)
    assert out[0] is a
    assert out[1] is b
    assert torch.equal(a, y)
    assert torch.equal(b, s)
    c = x.clone()
    assert rms_norm_(c, w) is c
    assert torch.equal(c, rms_norm(x, w))
    again = x.clone()
    rms_norm_(again, w)  # the remembered call
    assert torch.equal(again, c)


def test_in_place_writes_through_a_strided_view(device):
    buffer = torch.randn(4, 200, device=device)
    before = buffer.clone()
    view = buffer[:, 10:106]
    expected = rms_norm_reference(view.clone())
    rms_norm_(view)
    torch.testing.assert_close(view, expected)
    assert torch.equal(buffer[:, :10], before[:, :10])
    assert torch.equal(buffer[:, 106:], before[:, 106:])


def test_in_place_refuses_what_it_would_have_to_copy(device):
    with pytest.raises(UsageError, match="last stride of 1"):
        rms_norm_(torch.randn(64, 4, device=device).t())
    with pytest.raises(UsageError, match="leading dimensions"):
        rms_norm_(torch.randn(3, 4, 64, device=device).transpose(0, 1))
    with pytest.raises(UsageError, match="overlap"):
        rms_norm_(torch.randn(1, 64, device=device).expand(4, 64))


def test_in_place_refuses_overlapping_buffers(device):
    flat = torch.randn(4 * 64 + 32, device=device)
    x, r = flat[: 4 * 64].view(4, 64), flat[32:].view(4, 64)
    for attempt in (lambda: add_rms_norm_(x, r), lambda: add_rms_norm_(x, x), lambda: rms_norm_(x, flat[16:80])):
        before = flat.clone()
        with pytest.raises(UsageError, match="share memory"):
            attempt()
        assert torch.equal(flat, before)
    good = torch.randn(4, 64, device=device)
    rms_norm_(good, flat[:64])
    with pytest.raises(UsageError, match="share memory"):  # the shapes were seen before, the buffers weren't
        rms_norm_(x, flat[:64])


def test_in_place_takes_two_halves_of_one_buffer(device):
    both = torch.randn(4, 128, device=device)
    x, r = both[:, :64], both[:, 64:]
    y, s = add_rms_norm(x, r)
    add_rms_norm_(x, r)
    assert torch.equal(x, y)
    assert torch.equal(r, s)


@pytest.mark.parametrize("shape", [(0, 64), (2, 0, 64), (3, 0)])
def test_nothing_to_do_launches_nothing(device, shape):
    x = torch.empty(shape, device=device)
    w = torch.empty(shape[-1], device=device)
    assert rms_norm(x, w).shape == shape
    y, s = add_rms_norm(x, x.clone(), w)
    assert y.shape == s.shape == shape
    rms_norm_(x, w)
    add_rms_norm_(x, x.clone(), w)
    assert explain(x, w).startswith("nothing to launch")


def far_apart(device, dtype=torch.bfloat16):
    """Two rows of 64 elements, 2^31 elements apart (4.3 GB; on a CPU only the touched pages exist)."""
    return torch.empty(2**31 + 64, dtype=dtype, device=device).as_strided((2, 64), (2**31, 1))


@pytest.mark.parametrize("op", ("rms_norm", "add_rms_norm"))
def test_a_row_stride_of_two_to_the_31(device, op):
    x = far_apart(device)
    x.copy_(torch.randn(2, 64, device=device))
    values = x.clone()
    if op == "rms_norm":
        check(rms_norm(x), truth(values))
        rms_norm_(x)
        check(x.contiguous(), truth(values))
    else:
        r = torch.randn(2, 64, device=device).to(torch.bfloat16)
        kept = r.clone()
        y, s = add_rms_norm(x, r)
        assert torch.equal(s, values + kept)
        add_rms_norm_(x, r)
        assert torch.equal(x, y)
        assert torch.equal(r, s)


def test_a_wide_row_with_a_stride_of_two_to_the_31(device):
    d = 40_000
    x = torch.empty(2**31 + d, dtype=torch.bfloat16, device=device).as_strided((2, d), (2**31, 1))
    x.copy_(torch.randn(2, d, device=device))
    check(rms_norm(x), truth(x.clone()))


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a GPU with 20 GB")
@pytest.mark.parametrize("d", (1024, 65536))
def test_a_dense_tensor_of_more_than_two_to_the_31_elements(device, d):
    m = 2**31 // d + 3
    x = torch.empty(m, d, dtype=torch.bfloat16, device=device).normal_()
    y = rms_norm(x)
    tail = slice(m - 4, m)
    check(y[tail], truth(x[tail]))
    check(y[:2], truth(x[:2]))
