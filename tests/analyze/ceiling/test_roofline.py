"""The roofline: worked examples to their printed digits, and properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.analyze.ceiling.roofline import (
    Roof,
    Work,
    crossover_tokens,
    decode_attention,
    gemm_launches,
    linear,
    rmsnorm,
)
from robot_perf.devices import find
from robot_perf.errors import UsageError

H100 = Roof(3.35e12, 989e12, "H100 SXM")


def test_the_ridge_of_an_h100() -> None:
    assert round(H100.ridge, 1) == 295.2
    d = find("H100 SXM")
    assert (d.bandwidth_bytes_s, d.peaks["bf16"]) == (3.35e12, 989e12)


def test_a_linear_layer_on_one_token() -> None:
    work = linear(4096, 1)
    place = H100.place(work)
    assert f"{work.bytes / 1e6:.1f}" == "33.6"
    assert f"{place.least_ns / 1000:.0f}" == "10"
    assert f"{work.intensity:.1f}" == "1.0"
    assert f"{100 * place.peak_share:.1f}" == "0.3"
    assert place.limited_by == "memory"


def test_the_same_layer_on_2048_tokens() -> None:
    work = linear(4096, 2048)
    place = H100.place(work)
    assert work.intensity == 1024
    assert f"{work.flop / 1e9:.1f}" == "68.7" and f"{work.bytes / 1e6:.1f}" == "67.1"
    assert math.floor(place.compute_ns / 1000) == 69 and round(place.memory_ns / 1000) == 20
    assert place.limited_by == "compute"
    # about 7 times past the ridge by the weights-only count that the rule of thumb uses
    assert round(2048 / crossover_tokens(H100, 4096, activations=False)) == 7


def test_crossover_with_and_without_activations() -> None:
    assert round(crossover_tokens(H100, 4096)) == 345
    assert round(crossover_tokens(H100, 4096, activations=False)) == 295
    assert crossover_tokens(H100, 512) == math.inf  # d <= 2 R: activations alone keep it left of the ridge


def test_decode_attention_of_four_heads_per_kv() -> None:
    place = H100.place(decode_attention(4))
    assert place.work.intensity == 4
    assert round(1 / place.ridge_factor) == 74
    assert decode_attention(4, context=8192, kv_heads=8).intensity == 4  # whatever the context


def test_rmsnorm_fused_and_unfused() -> None:
    fused, unfused = rmsnorm(4096, 4096), rmsnorm(4096, 4096, bytes_per_element=14)
    assert f"{fused.bytes / 1e6:.0f}" == "67" and fused.intensity == 1
    assert round(H100.place(fused).least_ns / 1000) == 20
    assert round(H100.place(unfused).least_ns / 1000) == 70
    assert unfused.bytes / fused.bytes == 14 / 4


def test_matrix_launches_of_a_step() -> None:
    assert gemm_launches(32) == 224


def test_weights_against_cache() -> None:
    assert round(16.06e9 / 50e6) == 321


positive = st.floats(1e-3, 1e15)
sizes = st.integers(1, 200_000)


@given(positive, positive, positive, positive)
def test_attainable_is_the_smaller_limit_and_continuous_at_the_ridge(
    b: float, p: float, flop: float, moved: float
) -> None:
    roof, work = Roof(b, p), Work(flop, moved)
    place = roof.place(work)
    assert place.attainable_flop_s <= p * (1 + 1e-12)
    assert place.attainable_flop_s <= work.intensity * b * (1 + 1e-12)
    assert roof.attainable(roof.ridge) == pytest.approx(p)
    assert place.least_ns == max(place.memory_ns, place.compute_ns)
    assert place.attainable_flop_s == pytest.approx(flop / place.least_ns * 1e9)
    assert (place.limited_by == "compute") == (place.compute_ns > place.memory_ns)


@given(positive, positive, st.floats(1.0, 100.0), sizes, sizes)
def test_more_bandwidth_or_peak_never_slows_work_and_less_bandwidth_moves_the_ridge_right(
    b: float, p: float, more: float, hidden: int, tokens: int
) -> None:
    work = linear(hidden, tokens)
    slow = Roof(b, p).place(work).least_ns
    assert Roof(b * more, p).place(work).least_ns <= slow
    assert Roof(b, p * more).place(work).least_ns <= slow
    assert Roof(b / more, p).ridge >= Roof(b, p).ridge


@given(st.integers(1, 100_000), st.floats(1e9, 1e13), st.floats(1e10, 1e16))
def test_the_layer_is_on_the_ridge_at_its_crossover(hidden: int, b: float, p: float) -> None:
    roof = Roof(b, p)
    n = crossover_tokens(roof, hidden)
    if math.isinf(n):
        assert linear(hidden, 10**9).intensity < roof.ridge * (1 + 1e-9)
    else:
        assert n * hidden / (hidden + 2 * n) == pytest.approx(roof.ridge, rel=1e-6)
        assert n >= crossover_tokens(roof, hidden, activations=False)


@given(sizes, sizes)
def test_intensity_of_the_layer_is_the_published_formula(hidden: int, tokens: int) -> None:
    assert linear(hidden, tokens).intensity == pytest.approx(tokens * hidden / (hidden + 2 * tokens))


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_a_roof_needs_finite_limits(value: float) -> None:
    with pytest.raises(UsageError):
        Roof(value, 1e12)
    with pytest.raises(UsageError):
        Roof(1e12, value)


def test_work_needs_bytes() -> None:
    with pytest.raises(UsageError):
        Work(1, 0)
    with pytest.raises(UsageError):
        linear(0, 1)
    with pytest.raises(UsageError):
        rmsnorm(1, -4)
