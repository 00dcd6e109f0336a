"""The numerics contract (N1 to N10) against FP64."""

from __future__ import annotations

import bisect
import functools
import itertools
import math

import pytest
import torch

from robot_perf.kernels import rmsnorm_config
from robot_perf.kernels.rmsnorm import add_rms_norm, explain, rms_norm
from tests.kernels.oracle import check, rows_like, truth, ulps

ON_GPU = torch.cuda.is_available()
HALF = (torch.bfloat16, torch.float16)
DTYPES = (*HALF, torch.float32)
WIDTHS = (
    1,
    64,
    96,
    127,
    128,
    256,
    384,
    512,
    768,
    1000,
    1024,
    1536,
    2048,
    3072,
    4096,
    5120,
    7168,
    8192,
    11008,
    16384,
    16385,
    32768,
    65536,
    65537,
    131072,
)
COUNTS = (1, 2, 3, 7, 16, 17, 33, 255, 4099)
CUT_WIDTHS = (1, 64, 127, 384, 1000, 4096, 16385, 65537)
CUT_COUNTS = (1, 3, 17)


def weights(d, kind, dtype, device):
    if kind is None:
        return None
    w = 1 + 0.3 * torch.randn(d, device=device)
    return w.to(dtype if kind == "same" else torch.float32)


@pytest.mark.parametrize("d", WIDTHS if ON_GPU else CUT_WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_width_and_count_is_within_the_ulp_bound(device, d, dtype):
    counts = [m for m in (COUNTS if ON_GPU else CUT_COUNTS) if m * d <= (2**28 if ON_GPU else 70_000)] or [1]
    for m in counts:
        x, r = rows_like((m, d), dtype, device), rows_like((m, d), dtype, device)
        w = weights(d, "same", dtype, device)
        assert explain(x, w).startswith("kernel:")
        check(rms_norm(x, w, 1e-6), truth(x, w, 1e-6))
        y, s = add_rms_norm(x, r, w, 1e-6)
        assert torch.equal(s, x + r)
        check(y, truth(x, w, 1e-6, residual=r))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("d", (96, 1000, 4096, 65536) if ON_GPU else (96, 1000))
def test_every_option_is_within_its_bound(device, d, dtype):
    x, r = rows_like((5, d), dtype, device), rows_like((5, d), dtype, device)
    for kind, cast, offset in itertools.product(("same", "fp32", None), ("fp32", "hf"), (0.0, 1.0)):
        if kind is None and offset:
            continue
        w = weights(d, kind, dtype, device)
        options = {"weight_offset": offset, "cast": cast}
        check(rms_norm(x, w, 1e-5, **options), truth(x, w, 1e-5, **options), cast)
        for round_sum in (True, False):
            y, s = add_rms_norm(x, r, w, 1e-5, round_sum=round_sum, **options)
            assert torch.equal(s, x + r)
            check(y, truth(x, w, 1e-5, residual=r, round_sum=round_sum, **options), cast)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_the_relative_error_is_that_of_torch(device, dtype):
    x, w = rows_like((16, 4096), dtype, device), weights(4096, "same", dtype, device)
    ref = truth(x, w)
    ours = (rms_norm(x, w).double() - ref).norm() / ref.norm()
    theirs = (torch.nn.functional.rms_norm(x, (4096,), w, 1e-6).double() - ref).norm() / ref.norm()
    assert ours <= 1.05 * theirs


@pytest.mark.parametrize("d", (64, 1000, 4096, 65536) if ON_GPU else (64, 1000, 40_000))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_fused_add_is_bitwise_the_norm_of_its_stored_sum(device, d, dtype):
    for m in (1, 7, 600) if ON_GPU else (1, 3):
        x, r, w = rows_like((m, d), dtype, device), rows_like((m, d), dtype, device), weights(d, "same", dtype, device)
        for cast in ("fp32", "hf"):
            y, s = add_rms_norm(x, r, w, cast=cast)
            assert torch.equal(y, rms_norm(s, w, cast=cast))


def test_fp16_near_its_largest_value(device):
    x = torch.full((2, 512), 6e4, dtype=torch.float16, device=device)
    x[1, ::2] *= -1
    check(rms_norm(x), truth(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_whose_rms_is_near_the_root_of_eps(device, dtype):
    x = (1e-3 * torch.randn(4, 512, device=device)).to(dtype)
    check(rms_norm(x, None, 1e-6), truth(x, None, 1e-6))


def test_rounding_the_weight_plus_one_would_be_seen(device):
    # vllm-project/vllm#55311: 1 + w in BF16 moves outputs by up to 3e-2
    x = torch.randn(2, 256, device=device).to(torch.bfloat16)
    w = (torch.randn(256, device=device) * 1e-2).to(torch.bfloat16)
    ref = truth(x, w, weight_offset=1.0)
    check(rms_norm(x, w, weight_offset=1.0), ref)
    wrong = rms_norm(x, (1 + w).to(torch.bfloat16))
    assert ulps(wrong, ref) > 0.6


def test_the_two_cast_orders_differ_and_each_matches_its_own(device):
    x = torch.randn(8, 1024, device=device).to(torch.bfloat16)
    w = (1 + 0.1 * torch.randn(1024, device=device)).to(torch.bfloat16)
    one, two = rms_norm(x, w, cast="fp32"), rms_norm(x, w, cast="hf")
    assert not torch.equal(one, two)
    check(one, truth(x, w, cast="fp32"), "fp32")
    check(two, truth(x, w, cast="hf"), "hf")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("d", (96, 1000, 40_000))
def test_one_bad_row_leaves_the_others_bitwise_untouched(device, bad, d):
    m = 33 if d < 10_000 else 3
    if not ON_GPU:
        m = 5 if d < 10_000 else 2
    x, w = rows_like((m, d), torch.bfloat16, device), weights(d, "same", torch.bfloat16, device)
    clean = rms_norm(x, w)
    spoiled = x.clone()
    spoiled[1, d // 3] = bad
    y = rms_norm(spoiled, w)
    keep = [i for i in range(m) if i != 1]
    assert torch.equal(y[keep], clean[keep])
    row = y[1]
    if math.isnan(bad):
        assert row.isnan().all()
    else:
        assert row[d // 3].isnan()
        assert (torch.cat([row[: d // 3], row[d // 3 + 1 :]]) == 0).all()


def test_squares_that_overflow_fp32_give_zeros_as_in_torch(device):
    x = torch.full((1, 64), 1e20, device=device)
    expected = torch.nn.functional.rms_norm(x, (64,), None, 1e-6)
    assert torch.equal(rms_norm(x, None, 1e-6), expected)
    assert (expected == 0).all()


def test_a_zero_row_is_zero_with_eps_and_nan_without(device):
    x = torch.zeros(2, 64, device=device)
    assert (rms_norm(x, None, 1e-6) == 0).all()
    assert rms_norm(x, None, 0.0).isnan().all()


def test_a_row_of_subnormal_squares_is_not_a_row_of_infinities(device):
    x = torch.full((1, 64), 1e-20, device=device)
    y = rms_norm(x, None, 0.0)
    assert torch.isfinite(y).all()


@pytest.mark.parametrize("d", (96, 127, 1000, 4096) if ON_GPU else (96, 127))
def test_batch_invariant_bits_do_not_depend_on_the_number_of_rows(device, d):
    counts = (1, 2, 16, 17, 527, 528, 1056, 4099) if ON_GPU else (1, 2, 17)
    x, w = rows_like((max(counts), d), torch.bfloat16, device), weights(d, "same", torch.bfloat16, device)
    alone = rms_norm(x[:1], w, batch_invariant=True)
    last = None
    for m in counts:
        y = rms_norm(x[:m], w, batch_invariant=True)
        assert torch.equal(y[:1], alone)
        # a row from the middle, as a slice whose base pointer moved
        assert torch.equal(rms_norm(x[m - 1 : m], w, batch_invariant=True), y[m - 1 : m])
        if last is not None:
            assert torch.equal(y[: last.shape[0]], last)
        last = y


def thresholds(row_bytes, facts):
    """The numbers of rows after which the table goes to another column."""
    regime = functools.partial(rmsnorm_config.regime, row_bytes=row_bytes, facts=facts)
    found, m, top = [], 1, 2**20
    while regime(m) != regime(top):
        m = bisect.bisect_right(range(top), regime(m), lo=m, key=regime)  # the columns' numbers grow with the rows
        found.append(m - 1)
    return found


def test_the_thresholds_are_those_of_the_table():
    h200 = rmsnorm_config.DeviceFacts(90, 132, 60 * 2**20)
    # a row per two SMs, one, four per SM, a sixteenth of the L2
    assert thresholds(512, h200) == [16, 66, 132, 527, 7679]
    assert thresholds(8192, h200) == [16, 66, 132, 527, 7679]  # the last: x as large as the L2
    assert thresholds(131072, h200) == [16, 66, 132, 479]


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one regime; thresholds matter on a GPU")
@pytest.mark.parametrize("d", (256, 1000, 4096, 16384, 65536))
def test_counts_on_both_sides_of_every_threshold(device, d):
    for m in (n for last in thresholds(2 * d, rmsnorm_config.device_facts(0)) for n in (last, last + 1)):
        x, w = rows_like((m, d), torch.bfloat16, device), weights(d, "same", torch.bfloat16, device)
        check(rms_norm(x, w), truth(x, w))
