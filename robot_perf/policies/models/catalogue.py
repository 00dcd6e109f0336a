"""The catalogue of published models (configs/models/*.yaml): decoders by config, robot policies by stage."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from robot_perf.errors import UsageError
from robot_perf.policies.models.decoder_config import decoder_from_config
from robot_perf.specs.model import DecoderSpec, Documented, SizedPolicy, Stage

_MILLION = 1e6


class StageRow(BaseModel):
    """One phase as written in the catalogue; millions of parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    params_m: PositiveFloat
    tokens: PositiveInt | Literal["patches", "image", "prefix", "chunk", "chunk+1"] | None = None
    repeats: PositiveInt | Literal["solver_steps", "decode"] = 1
    new_m: PositiveFloat | None = None


class DocumentedRow(BaseModel):
    """One published latency, ms per call."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    device: str
    ms: PositiveFloat
    what: str
    bits: PositiveFloat | None = None
    views: PositiveInt | None = None
    source: str


class PolicyRow(BaseModel):
    """One published robot policy; an absent key is unknown, never zero."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    aliases: tuple[str, ...] = ()
    kind: Literal["imitation", "diffusion", "vla", "vla-autoregressive"]
    dtype: Literal["fp32", "bf16", "fp16"]
    params_m: PositiveFloat | None = None
    stages: tuple[StageRow, ...]
    looked_up_m: PositiveFloat | None = None
    patches_per_image: PositiveInt | None = None
    tokens_per_image: PositiveInt | None = None
    cameras: PositiveInt | None = None
    text_tokens: PositiveInt | None = None
    chunk_len: PositiveInt | None = None
    actions_executed: PositiveInt | None = None
    solver_steps: PositiveInt | None = None
    decode_tokens: PositiveInt | None = None
    control_rate_hz: PositiveFloat | None = None
    uncounted: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    documented: tuple[DocumentedRow, ...] = ()
    source: str
    note: str = ""


class DecoderRow(BaseModel):
    """One language decoder: the sizes of its config.json, and its published parameter count."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    aliases: tuple[str, ...] = ()
    params: PositiveFloat
    config: dict[str, Any] = Field(min_length=1)
    source: str


@cache
def policy_rows() -> tuple[PolicyRow, ...]:
    """Every robot policy of the catalogue, in file order."""
    return tuple(_parse(PolicyRow, item, "policies") for item in _read("policies"))


@cache
def decoder_rows() -> tuple[DecoderRow, ...]:
    """Every language decoder of the catalogue, in file order."""
    return tuple(_parse(DecoderRow, item, "decoders") for item in _read("decoders"))


def find_model(name: str) -> PolicyRow | DecoderSpec:
    """The model of that name or alias, case and repeated blanks apart. Raises UsageError with the nearest names."""
    key = " ".join(name.lower().split())
    for row in policy_rows():
        if key in {n.lower() for n in (row.name, *row.aliases)}:
            return row
    for entry in decoder_rows():
        if key in {n.lower() for n in (entry.name, *entry.aliases)}:
            return decoder_from_config(entry.config, name=entry.name, source=entry.source)
    rows: list[PolicyRow | DecoderRow] = [*policy_rows(), *decoder_rows()]
    names = {n.lower(): r.name for r in rows for n in (r.name, *r.aliases)}
    near = list(dict.fromkeys(names[n] for n in difflib.get_close_matches(key, names, n=4, cutoff=0.4)))
    raise UsageError(
        f"model {name!r} is not in the catalogue",
        why=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(dict.fromkeys(names.values()))}.",
        do="Give --params N or --config FILE for a model of your own.",
    )


def size_policy(
    row: PolicyRow,
    *,
    views: int | None = None,
    prompt_tokens: int | None = None,
    solver_steps: int | None = None,
    decode_tokens: int | None = None,
    executed: int | None = None,
    chunk: int | None = None,
    head_params: float | None = None,
) -> SizedPolicy:
    """The policy's stages with this many cameras, prompt tokens, solver steps and decoded tokens (else the
    catalogue's).

    `head_params` replaces the language head that each decode step streams (0 after vocabulary pruning).
    Raises UsageError for a policy without a single sized stage.
    """
    if not row.stages:
        raise UsageError(
            f"{row.name}: parameter count unknown",
            why=row.note,
            do="Give --params N --weight-bits B for a bytes-only bound.",
        )
    cameras = views or row.cameras
    text = prompt_tokens if prompt_tokens is not None else row.text_tokens
    steps = solver_steps or row.solver_steps
    decoded = decode_tokens or row.decode_tokens
    missing = list(row.uncounted)
    length = chunk or row.chunk_len
    if length is not None and executed is not None and executed > length:
        raise UsageError(f"--executed {executed} is more than the chunk's {length} actions")
    tokens = _tokens(row, cameras, text, length)
    stages = [_stage(s, tokens, steps, decoded, missing, head_params) for s in row.stages]
    kept = tuple(s for s in stages if s.repeats > 0)
    return SizedPolicy(
        name=row.name,
        stages=kept,
        read_params=_read_params(row, kept, decoded),
        resident_params=max((row.params_m or 0) * _MILLION, sum(_new(s) for s in kept)),
        missing=tuple(dict.fromkeys(missing)),
        assumptions=_assumptions(row, cameras, text, steps, decoded),
        actions=executed or row.actions_executed,
        chunk=length,
        control_rate_hz=row.control_rate_hz,
        views=cameras,
        documented=tuple(Documented(d.device, d.ms, d.what, d.bits, d.views, d.source) for d in row.documented),
    )


def _tokens(row: PolicyRow, cameras: int | None, text: int | None, chunk: int | None) -> dict[str, int | None]:
    def times(per_image: int | None) -> int | None:
        return None if per_image is None or cameras is None else per_image * cameras

    image = times(row.tokens_per_image)
    prefix = None if image is None or text is None else image + text
    with_state = None if chunk is None else chunk + 1
    return {
        "patches": times(row.patches_per_image),
        "image": image,
        "prefix": prefix,
        "chunk": chunk,
        "chunk+1": with_state,
    }


def _stage(
    row: StageRow,
    tokens: dict[str, int | None],
    steps: int | None,
    decoded: int | None,
    missing: list[str],
    head_params: float | None,
) -> Stage:
    count = tokens[row.tokens] if isinstance(row.tokens, str) else row.tokens
    if count is None:
        hint = ": give --views and --prompt-tokens" if isinstance(row.tokens, str) else ""
        missing.append(f"arithmetic of {row.name} (tokens unknown{hint})")
    repeats = row.repeats
    if repeats == "solver_steps":
        repeats = steps or 1
        if steps is None:
            missing.append(f"repeats of {row.name} (give --solver-steps)")
    elif repeats == "decode":
        repeats = (decoded or 1) - 1
        if decoded is None:
            missing.append(f"{row.name} steps (give --decode-tokens)")
    params, new = row.params_m * _MILLION, row.new_m * _MILLION if row.new_m else None
    if head_params is not None and new is not None:
        params, new = params - new + head_params, head_params
    return Stage(row.name, params, count, repeats, new)


def _read_params(row: PolicyRow, stages: Sequence[Stage], decoded: int | None) -> float:
    """Parameter reads of the bytes-only line: of an autoregressive policy, n whole decode reads in place of its
    prefill.
    """
    decode = next((s for s in stages if s.name == "decode"), None)
    if row.kind != "vla-autoregressive" or decode is None or decoded is None:
        return sum(s.params * s.repeats for s in stages)
    first = sum(s.params * s.repeats for s in stages if s.name not in ("prefill", "decode"))
    return first + decoded * decode.params


def _new(stage: Stage) -> float:
    return stage.params if stage.new_params is None else stage.new_params


def _assumptions(
    row: PolicyRow, cameras: int | None, text: int | None, steps: int | None, decoded: int | None
) -> tuple[str, ...]:
    parts = [("camera views", cameras), ("prompt tokens", text), ("solver steps", steps), ("decoded tokens", decoded)]
    lines = [", ".join(f"{what} {value}" for what, value in parts if value is not None)]
    if row.derived:
        lines.append(f"derived by the catalogue, not printed by an author: {', '.join(row.derived)}")
    if row.looked_up_m:
        lines.append(f"{row.looked_up_m:g} M of embeddings are looked up, not streamed")
    return tuple(line for line in lines if line)


def _read(name: str) -> list[Any]:
    path = files("robot_perf") / "configs" / "models" / f"{name}.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or not isinstance(document.get(name), list):
        raise UsageError(f"configs/models/{name}.yaml needs a list `{name}:`")
    return list(document[name])


def _parse(cls: type[Any], item: Any, name: str) -> Any:
    try:
        return cls.model_validate(item)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(p) for p in first["loc"]) or "row"
        label = item.get("name", "?") if isinstance(item, dict) else "?"
        raise UsageError(f"configs/models/{name}.yaml: {label}: {where}: {first['msg']}") from None
