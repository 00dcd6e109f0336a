"""The model catalogue and what is counted from a config or a checkpoint."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.errors import UsageError
from robot_perf.policies.models.catalogue import PolicyRow, decoder_rows, find_model, policy_rows, size_policy
from robot_perf.policies.models.checkpoint import read_checkpoint
from robot_perf.policies.models.decoder_config import decoder_from_config, read_config
from robot_perf.specs.model import DecoderSpec

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize("row", decoder_rows(), ids=lambda r: r.name)
def test_counts_equal_the_published_totals(row: Any) -> None:
    model = find_model(row.name.upper())
    assert isinstance(model, DecoderSpec)
    assert model.params == row.params
    assert row.source.startswith("https://huggingface.co/")


@pytest.mark.parametrize(
    ("name", "streamed_b"),
    [
        ("Llama-3.1-8B", 7.5),
        ("Llama-2-7B", 6.61),
        ("Qwen3-8B", 7.57),
        ("Llama-3.2-3B", 3.21),
        ("Mixtral-8x7B", 12.75),
        ("Llama-3.1-70B", 69.5),
    ],
)
def test_streamed_parameters_leave_the_input_embedding_and_idle_experts_out(name: str, streamed_b: float) -> None:
    from robot_perf.analyze.ceiling.decode_bytes import streamed_params

    model = find_model(name)
    assert isinstance(model, DecoderSpec)
    assert streamed_params(model) / 1e9 == pytest.approx(streamed_b, abs=0.006)


def test_the_policies_equal_the_facts_they_were_made_from(shared_dir: Path) -> None:
    with (shared_dir / "data" / "policy_models.csv").open(encoding="utf-8") as stream:
        facts = list(csv.DictReader(stream))
    assert [r.name for r in policy_rows()] == [f["model"] for f in facts]
    for row, fact in zip(policy_rows(), facts, strict=True):
        assert row.kind == fact["kind"], row.name
        for field, column in (("cameras", "cameras"), ("chunk_len", "chunk_len"), ("solver_steps", "solver_steps"), ("decode_tokens", "decode_tokens"),
                              ("actions_executed", "actions_executed"), ("control_rate_hz", "control_rate_hz")):  # fmt: skip
            if fact[column]:
                assert getattr(row, field) == float(fact[column]), (row.name, field)
            else:
                assert getattr(row, field) is None, (row.name, field)
        if fact["prefix_tokens"] and row.tokens_per_image and row.cameras and row.text_tokens:
            assert row.tokens_per_image * row.cameras + row.text_tokens == int(fact["prefix_tokens"]), row.name
        if fact["params_inference_m"]:
            assert row.params_m == float(fact["params_inference_m"]), row.name
        parts = [p.split("=") for p in fact["params_by_part_m"].split(";") if p]
        kept = sum(float(v) for n, v in parts if "train_only" not in n and "adarms" not in n)
        if kept:
            held = sum(s.new_m or s.params_m for s in row.stages) + (row.looked_up_m or 0)
            assert held == pytest.approx(kept, abs=0.15), row.name


def test_names_are_found_exactly() -> None:
    assert isinstance(find_model("  PI0 "), PolicyRow)
    with pytest.raises(UsageError, match="is not in the catalogue"):
        find_model("pi")
    with pytest.raises(UsageError, match="OpenVLA"):
        find_model("openvla-8b")


def test_a_pruned_head_is_left_out_of_each_decode_step() -> None:
    row = find_model("pi0-fast")
    assert isinstance(row, PolicyRow)
    full = size_policy(row, views=2, prompt_tokens=48, decode_tokens=30)
    pruned = size_policy(row, views=2, prompt_tokens=48, decode_tokens=30, head_params=0)
    assert full.stages[-1].params == 2509e6 and pruned.stages[-1].params == 1982e6
    assert full.stages[-1].repeats == 29 and not full.missing


def test_one_decoded_token_has_no_decode_stage() -> None:
    row = find_model("openvla")
    assert isinstance(row, PolicyRow)
    assert [s.name for s in size_policy(row, decode_tokens=1).stages] == ["vision", "prefill"]


def test_derived_numbers_are_said() -> None:
    row = find_model("smolvla")
    assert isinstance(row, PolicyRow)
    assert any("derived by the catalogue" in a for a in size_policy(row).assumptions)


def test_a_config_without_head_dim_is_asked_for_it() -> None:
    config = {k: v for k, v in LLAMA.items() if k != "head_dim"}
    with pytest.raises(UsageError, match="--head-dim 128"):
        decoder_from_config(config, name="x")
    assert decoder_from_config(config, name="x", head_dim=128).params == 8030261248


def test_other_architectures_need_the_parameter_count() -> None:
    config = LLAMA | {"model_type": "falcon_mamba"}
    with pytest.raises(UsageError, match="Add --params N"):
        decoder_from_config(config, name="x")
    assert decoder_from_config(config, name="x", params=7e9).params == 7e9


def test_layers_without_a_growing_cache_are_not_counted() -> None:
    config = LLAMA | {"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}
    assert decoder_from_config(config, name="x").layers == 8


@pytest.mark.parametrize(
    "broken", [{"hidden_size": "4096"}, {"num_hidden_layers": 0}, {"vocab_size": None}, {"num_key_value_heads": True}]
)
def test_bad_configs_name_the_key(broken: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(broken))):
        decoder_from_config(LLAMA | broken, name="x")


def test_reading_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {}, "text_config": LLAMA}))
    assert read_config(tmp_path)["hidden_size"] == 4096
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(UsageError, match="not a config"):
        read_config(tmp_path / "bad.json")
    (tmp_path / "worse.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(UsageError, match="not JSON"):
        read_config(tmp_path / "worse.json")
    with pytest.raises(UsageError, match="can't be read"):
        read_config(tmp_path / "absent.json")


def safetensors(path: Path, tensors: dict[str, tuple[str, int]]) -> Path:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))
    return path


def test_a_checkpoint_is_counted_by_stored_dtype(tmp_path: Path) -> None:
    shard = {
        "model.embed_tokens.weight": ("BF16", 1000), "lm_head.weight": ("BF16", 1000), "model.layers.0.q_proj.weight": ("F8_E4M3", 400),
        "model.layers.0.mlp.experts.0.up_proj.weight": ("U8", 80), "model.layers.0.mlp.experts.1.up_proj.weight": ("U8", 80),
    }  # fmt: skip
    stored = read_checkpoint(safetensors(tmp_path / "m.safetensors", shard))
    assert (stored.total, stored.embedding, stored.experts) == (2560, 1000, 160)
    assert stored.by_dtype == {"BF16": 2000, "F8_E4M3": 400, "U8": 160}
    assert stored.streamed() == 1560 and stored.streamed(2, 1) == 1480
    assert read_checkpoint(tmp_path).total == 2560  # a folder of shards


def test_a_tied_head_is_not_subtracted_from_a_checkpoint(tmp_path: Path) -> None:
    stored = read_checkpoint(safetensors(tmp_path / "m.safetensors", {"model.embed_tokens.weight": ("BF16", 1000)}))
    assert stored.streamed() == 1000


@given(st.binary(max_size=200))
def test_any_bytes_end_in_one_message(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("st") / "x.safetensors"
    path.write_bytes(data)
    try:
        read_checkpoint(path)
    except UsageError as error:
        assert "x.safetensors" in str(error)


def test_a_folder_without_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="safetensors file"):
        read_checkpoint(tmp_path)
