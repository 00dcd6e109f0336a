"""A model as far as a ceiling needs it: what is streamed and computed per step. No weights, no framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder that yields one token per step. Parameters are counts; None is unknown.

    `params` is everything that is resident. `embedding_params` is the input embedding: one row of it is read per token,
    so it is not streamed, unless `tied` says that it is the head as well. `routed_params` is the part of `params` that
    belongs to routed experts, `experts_per_token` of `experts` of which a token reads. `checkpoint_bytes` replaces
    parameters times bits where a checkpoint was read: bytes streamed per token by stored dtype.
    """

    name: str
    params: float
    embedding_params: float = 0
    tied: bool = False
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None  # MLA: one latent of this rank ...
    rope_dim: int = 0  # ... and one rotary part are cached, once, not K and V
    experts: int | None = None
    experts_per_token: int | None = None
    routed_params: float = 0
    active_params: float | None = None  # read per token, where only that total is known and not the experts' structure
    checkpoint_bytes: float | None = None
    resident_bytes: float | None = None
    embedding_counted: bool = True  # False: the split is known and the input embedding is left out
    source: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One phase of a policy: `params` read and computed `repeats` times on `tokens` each. Tokens None: bytes only.

    `new_params` is what this stage adds to memory where it shares weights with an earlier one (decode after prefill).
    """

    name: str
    params: float
    tokens: int | None
    repeats: int = 1
    new_params: float | None = None


@dataclass(frozen=True, slots=True)
class Documented:
    """A latency that somebody published, ms per call: shown beside the floor, never used in it. None: not stated."""

    device: str
    ms: float
    what: str
    bits: float | None = None
    views: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class SizedPolicy:
    """A policy's stages with their tokens and repeats settled.

    `read_params` is the parameter reads of the bytes-only line; `missing` names what runs and has no size here (the
    floor is then "at least"); `assumptions` says, for a person, which numbers were used. `actions` executed per call.
    """

    name: str
    stages: tuple[Stage, ...]
    read_params: float
    resident_params: float
    missing: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    actions: int | None = None
    chunk: int | None = None
    control_rate_hz: float | None = None
    views: int | None = None
    documented: tuple[Documented, ...] = ()
