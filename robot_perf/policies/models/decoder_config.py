"""A decoder's parameters, streamed share and cache shape from its config.json (Hugging Face keys). No framework, no
weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.specs.model import DecoderSpec

# Architectures with a gated MLP (gate, up, down) and no position table: only for these is a count from sizes exact
# enough.
_GATED = {
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
    "deepseek_v2", "deepseek_v3", "olmo2", "phi3", "smollm3",
}  # fmt: skip


def read_config(path: Path) -> dict[str, Any]:
    """The JSON object in `path` (a config.json or a folder that holds one); its text part for a model of several
    parts.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: can't be read", detail=str(error)) from error
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not JSON", detail=str(error)) from error
    if not isinstance(data, dict):
        raise UsageError(f"{file}: not a config", why="The top level is no JSON object.")
    inner = data.get("text_config")
    return dict(inner) if isinstance(inner, dict) else data


def decoder_from_config(
    config: Mapping[str, Any], *, name: str, params: float | None = None, head_dim: int | None = None, source: str = ""
) -> DecoderSpec:
    """The decoder that a config describes. `params` replaces the count, `head_dim` a head size the config lacks.

    Raises UsageError where a key is missing or the architecture is one whose parameters can't be counted from sizes.
    """
    layers, hidden, heads = (_int(config, k, name) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    vocabulary = _int(config, "vocab_size", name)
    kv_heads = _optional(config, "num_key_value_heads", name) or heads
    dim = head_dim or _optional(config, "head_dim", name)
    rank = _optional(config, "kv_lora_rank", name)
    if dim is None and rank is None:
        raise UsageError(
            f"{name}: the config has no head_dim",
            why=f"hidden / heads = {hidden / heads:g} would be a guess: Gemma, Qwen3 and others differ from it.",
            do=f"Add --head-dim {hidden // heads} if that is right.",
        )
    experts = next((e for k in ("num_experts", "num_local_experts", "n_routed_experts") if (e := config.get(k))), None)
    routed = _routed_params(config, name, layers, hidden, experts)
    total = params if params is not None else _count(config, name, dim, kv_heads, routed)
    kinds = config.get("layer_types")
    return DecoderSpec(
        name=name,
        params=total,
        embedding_params=vocabulary * hidden,
        tied=bool(config.get("tie_word_embeddings", False)),
        # layers with linear or windowed attention keep no growing cache: leaving them out keeps the bound a bound
        layers=sum(k == "full_attention" for k in kinds) if isinstance(kinds, list) and kinds else layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        kv_lora_rank=rank,
        rope_dim=_optional(config, "qk_rope_head_dim", name) or 0,
        experts=experts,
        experts_per_token=_optional(config, "num_experts_per_tok", name) if experts else None,
        routed_params=routed,
        embedding_counted=False,
        source=source,
    )


def _count(config: Mapping[str, Any], name: str, dim: int | None, kv_heads: int, routed: float) -> float:
    kind = config.get("model_type")
    if kind not in _GATED:
        raise UsageError(
            f"{name}: parameters of a {kind!r} can't be counted from its config",
            why=f"Counted: {', '.join(sorted(_GATED))}.",
            do="Add --params N.",
        )
    layers, hidden, heads, vocabulary = (
        _int(config, k, name) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    )
    attention = _mla(config, name, hidden, heads) if config.get("kv_lora_rank") else None
    if attention is None:
        attention = hidden * (dim or 0) * (2 * heads + 2 * kv_heads)
        attention += (dim or 0) * (heads + 2 * kv_heads) if kind in ("qwen2", "qwen2_moe") else 0  # biases of q, k, v
        attention += 2 * (dim or 0) if kind in ("qwen3", "qwen3_moe") else 0  # norms of q and k
    moe_layers = _moe_layers(config, layers) if routed else 0
    dense = (layers - moe_layers) * 3 * hidden * _int(config, "intermediate_size", name)
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings", False) else 2)
    norms = (2 * layers + 1) * hidden
    return embeddings + layers * attention + dense + routed + _shared(config, name, hidden, moe_layers) + norms


def _mla(config: Mapping[str, Any], name: str, hidden: int, heads: int) -> int:
    """Multi-head latent attention: down- and up-projections of queries and of the shared latent, and the output."""
    rank, nope, rope, value = (
        _int(config, k, name) for k in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )
    query_rank = _optional(config, "q_lora_rank", name)
    wide = heads * (nope + rope)
    query = hidden * query_rank + query_rank * wide + query_rank if query_rank else hidden * wide
    return query + hidden * (rank + rope) + rank * heads * (nope + value) + rank + heads * value * hidden


def _moe_layers(config: Mapping[str, Any], layers: int) -> int:
    step = config.get("decoder_sparse_step") or config.get("moe_layer_freq") or 1
    return (layers - int(config.get("first_k_dense_replace") or 0)) // int(step)


def _routed_params(config: Mapping[str, Any], name: str, layers: int, hidden: int, experts: int | None) -> float:
    if not experts:
        return 0.0
    width = _optional(config, "moe_intermediate_size", name) or _int(config, "intermediate_size", name)
    return float(_moe_layers(config, layers) * experts * 3 * hidden * width)


def _shared(config: Mapping[str, Any], name: str, hidden: int, moe_layers: int) -> float:
    """Router and shared experts of the expert layers."""
    if not moe_layers:
        return 0.0
    experts = next(e for k in ("num_experts", "num_local_experts", "n_routed_experts") if (e := config.get(k)))
    width = _optional(config, "shared_expert_intermediate_size", name) or 0
    if config.get("n_shared_experts"):
        width = int(config["n_shared_experts"]) * _int(config, "moe_intermediate_size", name)
    bias = experts if config.get("model_type") == "deepseek_v3" else 0  # one score correction per expert
    return float(moe_layers * (experts * hidden + bias + 3 * hidden * width))


def _int(config: Mapping[str, Any], key: str, name: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name}: the config needs {key}", why=f"A whole number above 0; got {value!r}.")
    return value


def _optional(config: Mapping[str, Any], key: str, name: str) -> int | None:
    return None if config.get(key) is None else _int(config, key, name)
