"""Bytes and FLOP of one decode step: weights by format, KV cache, experts. Every rule says what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from robot_perf.errors import UsageError, unknown
from robot_perf.specs.model import DecoderSpec

# name -> (bits of a weight alone, effective bits with its scales). GGUF block layouts: ggml-common.h; OCP microscaling
# formats: MX v1.0. "about" figures are means over a model's tensors.
WEIGHT_FORMATS: dict[str, tuple[float, float]] = {
    "fp32": (32, 32),
    "bf16": (16, 16),
    "fp16": (16, 16),
    "fp8": (8, 8),
    "int8": (8, 8),
    "int4-g128": (4, 4.125),
    "int4-g128-zp": (4, 4.156),
    "int4-g64": (4, 4.25),
    "int4-g32": (4, 4.5),
    "nvfp4": (4, 4.5),
    "mxfp4": (4, 4.25),
    "q4_0": (4, 4.5),
    "q8_0": (8, 8.5),
    "q6_k": (6, 6.56),
    "q4_k_m": (4, 4.9),
}
_MOST = 1e18
COMPUTE_BITS = {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "fp32": 32}


def effective_bits(bits: float, group: int, *, scale_bits: float = 16, zero_bits: float = 0) -> float:
    """Bits a weight takes with its group's scale (and zero point): bits + (scale + zero) / group."""
    if group < 1 or not bits > 0:
        raise UsageError("bits and group must be above 0")
    return bits + (scale_bits + zero_bits) / group


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits per weight for the bound (scales may be left out) and for the expectation; bits of a cached value."""

    weight_bits: float
    expected_bits: float
    kv_bits: float = 16
    note: str = ""


def precision(
    weight_bits: float | None = None, *, weight_format: str | None = None, group: int | None = None, kv_bits: float = 16
) -> Precision:
    """The precision that options describe. Plain 4-bit weights are expected to carry a 16-bit scale per group of
    128.
    """
    if not 0.1 <= kv_bits <= 64:
        raise UsageError(f"--kv-bits {kv_bits:g} is out of range", why="From 0.1 to 64.")
    if weight_format is not None:
        if weight_bits is not None or group is not None:
            raise UsageError("--weight-format already says the bits", do="Leave --weight-bits and --group-size out.")
        if weight_format.lower() not in WEIGHT_FORMATS:
            raise unknown("weight format", weight_format, WEIGHT_FORMATS)
        plain, effective = WEIGHT_FORMATS[weight_format.lower()]
        note = f"{weight_format.lower()}: {plain:g} bits in the bound, {effective:g} with scales in the expectation"
        return Precision(plain, effective, kv_bits, note)
    bits = 16.0 if weight_bits is None else weight_bits
    if not 0.1 <= bits <= 64:
        raise UsageError(f"--weight-bits {bits:g} is out of range", why="From 0.1 to 64.")
    if group is not None:
        effective = effective_bits(bits, group)
        return Precision(
            bits, effective, kv_bits, f"bound without scales, expectation {effective:g} bits (group {group})"
        )
    if bits <= 4:
        effective = effective_bits(bits, 128)
        return Precision(
            bits, effective, kv_bits, f"bound without scales, expectation {effective:g} bits (group 128 assumed)"
        )
    return Precision(bits, bits, kv_bits, "no scales")


def kv_bytes_per_token(model: DecoderSpec, kv_bits: float = 16) -> float:
    """Bytes of KV cache that one token adds: K and V of every layer, or MLA's one latent. Raises UsageError if
    unknown.
    """
    if model.layers is not None and model.kv_lora_rank is not None:
        return (model.kv_lora_rank + model.rope_dim) * model.layers * kv_bits / 8
    if model.layers is None or model.kv_heads is None or model.head_dim is None:
        lacking = [n for n in ("layers", "kv_heads", "head_dim") if getattr(model, n) is None]
        raise UsageError(
            f"{model.name}: the KV cache needs {', '.join(lacking)}",
            why="Head size is taken from the config, never hidden / heads; KV heads are not query heads.",
            do="Give --config FILE, or --layers, --kv-heads and --head-dim.",
        )
    return 2 * model.layers * model.kv_heads * model.head_dim * kv_bits / 8


def distinct_experts(experts: int, per_token: int, batch: int) -> float:
    """Expected number of different experts that a batch reads, uniform routing: E (1 - (1 - k/E)^B)."""
    if not 0 < per_token <= experts or batch < 1:
        raise UsageError("experts per token must be between 1 and the number of experts, batch at least 1")
    return experts * (1 - (1 - per_token / experts) ** batch)


def streamed_params(model: DecoderSpec, *, expected_batch: int | None = None) -> float:
    """Parameters read per step: all but the input embedding (unless tied) and the routed experts that no token takes.

    The bound takes k experts whatever the batch, since all tokens may choose the same; `expected_batch` takes the
    expected number of distinct ones instead.
    """
    if model.active_params is not None:
        return model.active_params
    unread = 0.0 if model.tied else model.embedding_params
    if model.experts and model.experts_per_token and model.routed_params:
        read = (
            float(model.experts_per_token)
            if expected_batch is None
            else distinct_experts(model.experts, model.experts_per_token, expected_batch)
        )
        unread += model.routed_params * (1 - read / model.experts)
    return model.params - unread


@dataclass(frozen=True, slots=True)
class DecodeLoad:
    """One decode step in bytes and FLOP. `bound_bytes` is the least that must move, `expected_bytes` what is likely."""

    name: str
    bound_bytes: float
    expected_bytes: float
    flop: float
    resident_bytes: float
    batch: int = 1
    accepted: float = 1.0
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    assumptions: tuple[str, ...] = ()


def decode_load(
    model: DecoderSpec,
    bits: Precision,
    *,
    context: int = 0,
    batch: int = 1,
    accepted: float = 1.0,
    state_bytes: float = 0.0,
    weight_bytes: float | None = None,
) -> DecodeLoad:
    """The load of one step: W + B x KV(context) + state. `weight_bytes` replaces parameters times bits (a file's
    size).
    """
    _check(model, context, batch, accepted, state_bytes)
    per_token = kv_bytes_per_token(model, bits.kv_bits) if context else 0.0
    kv = batch * context * per_token
    active = streamed_params(model)
    if weight_bytes is not None and not 0 < weight_bytes <= _MOST:
        raise UsageError(f"the weights' size is out of range: {weight_bytes:g} B", why="Above 0, at most 1e18 B.")
    given = weight_bytes if weight_bytes is not None else model.checkpoint_bytes
    weights = given if given is not None else active * bits.weight_bits / 8
    likely = given if given is not None else streamed_params(model, expected_batch=batch) * bits.expected_bits / 8
    resident = model.resident_bytes or (given if given is not None else model.params * bits.expected_bits / 8)
    return DecodeLoad(
        name=model.name,
        bound_bytes=weights + kv + state_bytes,
        expected_bytes=likely + kv + state_bytes,
        flop=2.0 * active * batch,
        resident_bytes=resident + kv + state_bytes,
        batch=batch,
        accepted=accepted,
        weight_bytes=weights,
        kv_bytes=kv,
        assumptions=_assumptions(model, bits, context, batch, per_token, given is not None),
    )


def _assumptions(
    model: DecoderSpec, bits: Precision, context: int, batch: int, per_token: float, given: bool
) -> tuple[str, ...]:
    counted = streamed_params(model)
    embedding = "embedding included" if model.embedding_counted else "tied head, read once" if model.tied else ""
    embedding = embedding or "input embedding left out"
    lines = [f"{_shown(counted)} streamed parameters ({embedding})"]
    lines.append("weights by stored bytes" if given else f"{bits.weight_bits:g}-bit weights, {bits.note}")
    lines.append(f"KV {per_token:,.0f} B/token x {context:,} tokens" if context else "no KV")
    if model.active_params is not None and batch > 1:
        lines.append("the batch's distinct experts are unknown: the expectation counts one token's; give --config")
    if model.experts and model.experts_per_token and model.routed_params:
        likely = distinct_experts(model.experts, model.experts_per_token, batch)
        lines.append(
            f"{model.experts_per_token} of {model.experts} experts in the bound, {likely:.1f} distinct expected"
        )
    return tuple(lines)


def _shown(count: float) -> str:
    """A parameter count as people write it: 8e9, 7.505e9, 387e6."""
    for scale, name in ((1e9, "e9"), (1e6, "e6")):
        if count >= scale:
            return f"{count / scale:.4g}{name}"
    return f"{count:,.0f}"


def _check(model: DecoderSpec, context: int, batch: int, accepted: float, state_bytes: float) -> None:
    if not 0 < model.params <= _MOST:
        raise UsageError(
            f"{model.name}: parameters are out of range", why=f"Above 0, at most 1e18; got {model.params:g}."
        )
    if not (1 <= batch <= 10**9 and 0 <= context <= 10**12 and 1 <= accepted <= 1e4 and 0 <= state_bytes <= _MOST):
        raise UsageError(
            "batch from 1 to 1e9, context from 0 to 1e12, accepted tokens per step from 1 to 1e4",
            why=f"Got batch {batch}, context {context}, accepted {accepted:g}, state {state_bytes:g}.",
        )
    if model.active_params is not None and not 0 < model.active_params <= model.params:
        raise UsageError(
            f"{model.name}: active parameters must be above 0 and at most all {model.params:.4g}",
            why=f"Got {model.active_params:.4g}.",
        )
    if model.experts_per_token and model.experts and model.experts_per_token > model.experts:
        raise UsageError(f"{model.name}: {model.experts_per_token} of {model.experts} experts per token")
