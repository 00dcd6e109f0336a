"""Decode ceilings: the worked examples to their printed digits, cache residence, and properties."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.analyze.ceiling.bound import Launches, check_rate, decode_ceiling
from robot_perf.analyze.ceiling.decode_bytes import (
    WEIGHT_FORMATS,
    Precision,
    decode_load,
    distinct_experts,
    effective_bits,
    kv_bytes_per_token,
    precision,
    streamed_params,
)
from robot_perf.analyze.ceiling.inverse import largest_params, longest_context, most_bits, step_budget
from robot_perf.devices import find, mode_of
from robot_perf.errors import UsageError
from robot_perf.specs.device import DeviceSpec
from robot_perf.specs.model import DecoderSpec

EIGHT = DecoderSpec("8B", 8.0e9, layers=32, kv_heads=8, head_dim=128)
H100, ORIN = find("H100 SXM"), find("Jetson AGX Orin 64GB")


def rate(model: DecoderSpec, device: DeviceSpec, bits: float = 16, *, mode: str | None = None, **more: object) -> float:
    load = decode_load(model, precision(bits), **more)  # type: ignore[arg-type]
    c = decode_ceiling(load, device, mode_of(device, mode) if mode else None)
    assert c.tokens_per_s is not None
    return c.tokens_per_s


def test_8b_in_bf16_on_an_h100() -> None:
    c = decode_ceiling(decode_load(EIGHT, precision(16)), H100)
    assert c.bytes == 16e9 and f"{(c.step_ns or 0) / 1e6:.2f}" == "4.78"
    assert f"{c.tokens_per_s:.0f}" == "209"
    split = DecoderSpec("8B", 8.0e9, embedding_params=0.5e9, embedding_counted=False)
    assert f"{rate(split, H100):.0f}" == "223"
    assert any("embedding included" in a for a in decode_load(EIGHT, precision(16)).assumptions)
    assert any("left out" in a for a in decode_load(split, precision(16)).assumptions)


def test_a_tied_head_is_read_once() -> None:
    tied = DecoderSpec("3B", 3.21e9, embedding_params=0.394e9, tied=True, embedding_counted=False)
    assert streamed_params(tied) == 3.21e9


def test_8192_tokens_of_cache() -> None:
    load = decode_load(EIGHT, precision(16), context=8192)
    assert kv_bytes_per_token(EIGHT) == 131072
    assert f"{load.kv_bytes / 1e9:.2f}" == "1.07" and f"{load.bound_bytes / 1e9:.2f}" == "17.07"
    assert f"{rate(EIGHT, H100, context=8192):.0f}" == "196"


@pytest.mark.parametrize(
    ("bits", "more", "mode", "printed"),
    [
        (16, {}, None, "12.8"), (4, {}, None, "51.2"), (4.5, {}, None, "45.5"), (4, {}, "15W", "34.1"), (4, {}, "MAXN", "51.2"),
        (4, {"weight_bytes": 4.92e9}, None, "41.6"), (4, {"context": 8192}, None, "40.4"),
    ],
)  # fmt: skip
def test_8b_on_an_agx_orin(bits: float, more: dict[str, object], mode: str | None, printed: str) -> None:
    assert f"{rate(EIGHT, ORIN, bits, mode=mode, **more):.1f}" == printed


def test_kv_of_multi_head_attention_and_of_mla() -> None:
    llama = DecoderSpec("Llama-2-7B", 6.74e9, layers=32, kv_heads=32, head_dim=128)
    assert kv_bytes_per_token(llama) == 524288
    assert f"{4096 * kv_bytes_per_token(llama) / 1e9:.2f}" == "2.15"
    assert kv_bytes_per_token(DecoderSpec("MLA", 671e9, layers=61, kv_lora_rank=512, rope_dim=64)) == 70272


def test_kv_needs_the_configs_head_size() -> None:
    with pytest.raises(UsageError, match="never hidden / heads"):
        kv_bytes_per_token(DecoderSpec("x", 1e9, layers=2, kv_heads=2, hidden=64, heads=4))


def test_expected_distinct_experts() -> None:
    assert f"{distinct_experts(128, 8, 8):.1f}" == "51.6"
    assert distinct_experts(128, 8, 1) == pytest.approx(8)
    moe = DecoderSpec("moe", 30e9, experts=128, experts_per_token=8, routed_params=28e9)
    one, eight = (decode_load(moe, precision(8), batch=b) for b in (1, 8))
    assert one.bound_bytes == eight.bound_bytes == 2e9 + 28e9 / 16
    assert eight.expected_bytes == pytest.approx(2e9 + 28e9 * 51.6 / 128, rel=1e-3)
    assert one.resident_bytes == 30e9  # all experts are resident, few are streamed


def test_effective_bits() -> None:
    assert effective_bits(4, 128) == 4.125 and f"{effective_bits(4, 128, zero_bits=4):.3f}" == "4.156"
    assert effective_bits(4, 64) == 4.25 and effective_bits(4, 32) == 4.5
    assert effective_bits(4, 16, scale_bits=8) == WEIGHT_FORMATS["nvfp4"][1]
    assert effective_bits(4, 32, scale_bits=8) == WEIGHT_FORMATS["mxfp4"][1]
    assert effective_bits(8, 32) == WEIGHT_FORMATS["q8_0"][1] and effective_bits(4, 32) == WEIGHT_FORMATS["q4_0"][1]
    assert WEIGHT_FORMATS["q6_k"][1] == 6.56 and WEIGHT_FORMATS["q4_k_m"][1] == 4.9


def test_llama_3_8b_in_f16_on_an_rtx_4090() -> None:
    achieved = 54.34 * 15.0e9
    assert f"{achieved / 1e9:.0f}" == "815"
    bandwidth = find("GeForce RTX 4090").bandwidth_bytes_s or 0
    assert f"{100 * achieved / bandwidth:.0f}" == "81"
    assert f"{100 * 54.34 * 16.06e9 / bandwidth:.0f}" == "87"  # where the embedding is wrongly counted


def test_llama_2_7b_int4_group_32_on_an_a100() -> None:
    streamed = 6.61e9 * 4.5 / 8
    assert f"{streamed / 1e9:.2f}" == "3.72"
    ceiling = rate(DecoderSpec("7B", 6.61e9), find("A100 80GB SXM4"), 4.5)
    assert f"{ceiling:.0f}" == "548" and f"{100 * 196.8 / ceiling:.0f}" == "36"


def test_speculation_multiplies_the_bound() -> None:
    thor = find("Jetson AGX Thor T5000")
    plain = rate(DecoderSpec("27B", 26e9), thor, 4)
    assert f"{plain:.1f}" == "21.0"
    with_draft = rate(DecoderSpec("27B", 26e9), thor, 4, accepted=3.86)
    assert f"{with_draft:.1f}" == "81.1" and f"{100 * 42.8 / with_draft:.0f}" == "53"


def test_pruned_heads_shrink_the_bytes() -> None:
    thor = find("Jetson AGX Thor T5000")
    assert f"{rate(DecoderSpec('full', 2.51e9), thor, 8):.0f}" == "109"
    assert rate(DecoderSpec("pruned", 1.98e9), thor, 8) > 123


def test_batch_shares_the_weights_and_not_the_cache() -> None:
    c = decode_ceiling(decode_load(EIGHT, precision(16), context=1024, batch=4), H100)
    assert c.tokens_per_s == pytest.approx(4 * (c.tokens_per_s_per_stream or 0))
    assert c.bytes == 16e9 + 4 * 1024 * 131072


def test_expected_is_below_the_bound_and_a_probe_replaces_the_rule() -> None:
    load = decode_load(EIGHT, precision(4))
    c = decode_ceiling(load, ORIN)
    assert c.expected_tokens_per_s == pytest.approx(0.8 * 204.8e9 / (8e9 * 4.125 / 8))
    probed = decode_ceiling(load, ORIN, probe_bytes_s=173.3e9)
    assert probed.expected_tokens_per_s == pytest.approx(173.3e9 / (8e9 * 4.125 / 8))
    assert probed.tokens_per_s == c.tokens_per_s  # a probe is never the bound


# §6: cache-resident policies
def test_a_locomotion_mlp_stays_in_l2() -> None:
    load = decode_load(DecoderSpec("mlp", 0.2e6), precision(32))
    assert load.bound_bytes == 0.8e6
    c = decode_ceiling(load, ORIN)
    assert not c.dram_applies and c.memory_ns is None and c.limited_by == "compute"
    assert any("DRAM bound not applicable (L2-resident)" in n for n in c.notes)
    assert any("give --launches" in n for n in c.notes)
    launched = decode_ceiling(load, ORIN, launches=Launches(7))
    assert launched.limited_by == "launch" and launched.step_ns == 35_000


def test_act_is_resident_nowhere_and_unknown_l2_is_said() -> None:
    from robot_perf.devices import table

    load = decode_load(DecoderSpec("ACT", 34.4e6), precision(32))
    assert f"{load.bound_bytes / 1e6:.0f}" == "138"
    for device in table():
        if device.bandwidth_bytes_s is not None:
            c = decode_ceiling(load, device)
            assert c.dram_applies, device.name
            if device.l2_bytes is None:
                assert any("could not be checked" in n for n in c.notes)


def test_unknown_numbers_are_asked_for() -> None:
    load = decode_load(EIGHT, precision(16))
    with pytest.raises(UsageError, match="bandwidth unknown: give --bandwidth-gb-s"):
        decode_ceiling(load, find("Jetson AGX Orin Industrial"))
    c = decode_ceiling(load, find("GB10 (DGX Spark)"))
    assert c.compute_ns is None and any("bf16 peak unknown" in n for n in c.notes)


def test_memory_fit_counts_what_is_resident() -> None:
    assert decode_ceiling(decode_load(EIGHT, precision(16)), find("Jetson Orin Nano 8GB")).fits_memory is False
    assert decode_ceiling(decode_load(EIGHT, precision(4)), find("Jetson Orin Nano 8GB")).fits_memory is True
    assert decode_ceiling(decode_load(EIGHT, precision(4)), find("apple-m4")).fits_memory is None


@pytest.mark.parametrize("more", [{"batch": 0}, {"context": -1}, {"accepted": 0.5}, {"state_bytes": -1.0}])
def test_impossible_steps_are_refused(more: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        decode_load(EIGHT, precision(16), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"weight_bits": 0},
        {"weight_bits": 128},
        {"weight_format": "int5"},
        {"weight_format": "nvfp4", "weight_bits": 4},
        {"kv_bits": 0},
    ],
)
def test_impossible_precisions_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        precision(**options)  # type: ignore[arg-type]


# --rate and its inverse
def test_a_rate_asks_whether_it_fits() -> None:
    step_ns = 4e9 / 204.8e9 * 1e9
    check = check_rate(10, step_ns, token_ns=step_ns)
    assert check.fits and check.tokens_in_budget == 5 and check.headroom == pytest.approx(0.805, abs=1e-3)
    assert not check_rate(60, step_ns).fits
    assert check_rate(50, 100e6, actions=25).fits  # a chunk of 25 actions buys 25 periods


def test_the_inverse_meets_the_bound() -> None:
    budget = step_budget(ORIN, None, 10)
    bits = precision(4)
    load = decode_load(EIGHT, bits)
    biggest = largest_params(budget, bits)
    assert biggest.value == pytest.approx(204.8e9 / 10 * 8 / 4) and biggest.limited_by == "DRAM"
    assert rate(DecoderSpec("x", biggest.value or 0), ORIN, 4) == pytest.approx(10)
    most = most_bits(budget, EIGHT, load)
    assert rate(EIGHT, ORIN, most.value or 0) == pytest.approx(10)
    longest = longest_context(budget, EIGHT, load)
    assert longest.value == pytest.approx((204.8e9 / 10 - 4e9) // 131072)
    assert rate(EIGHT, ORIN, 4, context=int(longest.value or 0)) >= 10


def test_the_inverse_knows_memory_and_impossibility() -> None:
    nano = find("Jetson Orin Nano 8GB")
    assert largest_params(step_budget(nano, None, 1), precision(4)).limited_by == "memory size"
    budget = step_budget(ORIN, None, 1000)
    none = longest_context(budget, EIGHT, decode_load(EIGHT, precision(16)))
    assert none.value is None and "no context fit" in none.text
    assert "not even 4-bit fits" in most_bits(budget, EIGHT, decode_load(EIGHT, precision(16))).text


# properties
params = st.floats(1e8, 1e12)
widths = st.floats(1, 32)
contexts = st.integers(0, 200_000)
batches = st.integers(1, 64)


def bound(p: float, bits: float, context: int, batch: int, gb_s: float) -> float:
    model = DecoderSpec("m", p, layers=32, kv_heads=8, head_dim=128)
    device = DeviceSpec("d", peaks={"bf16": 1e15}, bandwidth_bytes_s=gb_s * 1e9, l2_bytes=1)
    return decode_ceiling(decode_load(model, Precision(bits, bits), context=context, batch=batch), device).step_ns or 0


@given(params, widths, contexts, batches, st.floats(10, 1e4), st.floats(1, 10))
def test_more_bandwidth_fewer_bits_shorter_context_never_lower_a_bound(
    p: float, bits: float, context: int, batch: int, gb_s: float, factor: float
) -> None:
    base = bound(p, bits, context, batch, gb_s)
    assert bound(p, bits, context, batch, gb_s * factor) <= base * (1 + 1e-12)
    assert bound(p, bits / factor, context, batch, gb_s) <= base * (1 + 1e-12)
    assert bound(p, bits, int(context / factor), batch, gb_s) <= base * (1 + 1e-12)
    assert bound(p / factor, bits, context, batch, gb_s) <= base * (1 + 1e-12)


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 256))
def test_distinct_experts_lie_between_one_tokens_and_all(experts: int, k: int, batch: int) -> None:
    k = min(k, experts)
    value = distinct_experts(experts, k, batch)
    assert k * (1 - 1e-9) <= value <= experts * (1 + 1e-9)
    assert value <= distinct_experts(experts, k, batch + 1) * (1 + 1e-12)


@given(params, widths, st.floats(0.1, 1e4))
def test_the_largest_model_is_the_bound_turned_round(p: float, bits: float, hz: float) -> None:
    device = dataclasses.replace(ORIN, memory_bytes=None, peaks={})
    limit = largest_params(step_budget(device, None, hz), Precision(bits, bits))
    fits = check_rate(hz, bound(p, bits, 0, 1, 204.8)).fits
    assert fits == (p <= (limit.value or 0) * (1 + 1e-9)) or p == pytest.approx(limit.value or 0)
