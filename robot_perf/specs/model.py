"""A model as far as a ceiling needs it: what is streamed and computed per step. No weights, no framework."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    checkpoint_bytes: float | None = None
    resident_bytes: float | None = None
    embedding_counted: bool = True  # False: the split is known and the input embedding is left out
    source: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One phase of a policy: `params` read and computed `repeats` times on `tokens` each. Tokens None: bytes only."""

    name: str
    params: float
    tokens: int | None
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Documented:
    """A latency that somebody published: shown beside the ceiling, never used in it."""

    device: str
    ms: float
    what: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """A published robot policy, its stages not yet sized (`robot_perf.policies.catalogue.stages` does that).

    Empty numbers are None: unknown, never 0. `derived` names fields that were computed, not printed by an author.
    """

    name: str
    kind: str  # imitation | diffusion | vla | vla-autoregressive
    dtype: str | None = None
    params_m: float | None = None  # what inference uses
    vision_m: float | None = None
    prefix_m: float | None = None
    expert_m: float | None = None
    head_m: float | None = None
    other_m: float | None = None  # read once per chunk, tokens unknown
    patches_per_image: int | None = None
    tokens_per_image: int | None = None
    cameras: int | None = None
    text_tokens: int | None = None
    expert_tokens: int | None = None
    chunk_len: int | None = None
    actions_executed: int | None = None
    solver_steps: int | None = None
    decode_tokens: int | None = None
    control_rate_hz: float | None = None
    uncounted: tuple[str, ...] = ()  # stages that are known to exist and have no size here
    derived: tuple[str, ...] = ()
    documented: tuple[Documented, ...] = ()
    source: str = ""
    note: str = ""
    aliases: tuple[str, ...] = field(default_factory=tuple)
