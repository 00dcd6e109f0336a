"""The model a ceiling is asked for: a parameter count, a config, a checkpoint, or a name of the catalogue."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

from robot_perf.errors import UsageError
from robot_perf.specs.model import DecoderSpec, SizedPolicy


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Exactly one of `params`, `model`, `config` and `checkpoint` says which model (a config may go with the
    others).
    """

    params: float | None = None
    model: str | None = None
    config: Path | None = None
    checkpoint: Path | None = None
    active_params: float | None = None
    layers: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    head_params: float | None = None
    views: int | None = None
    prompt_tokens: int | None = None
    solver_steps: int | None = None
    decode_tokens: int | None = None
    executed: int | None = None
    chunk: int | None = None


def chosen_model(request: ModelRequest) -> DecoderSpec | SizedPolicy:
    """The decoder, or the policy with its stages sized. Raises UsageError where none or two are named."""
    named = [n for n in ("model", "config", "params") if getattr(request, n) is not None]
    if not named and request.checkpoint is None:
        raise UsageError("which model?", do="Give --params N, --model NAME, --config FILE or --checkpoint FILE.")
    if request.model is not None and len(named) > 1:
        raise UsageError("--model goes with neither --params nor --config", do="Give one of them.")
    positive = (
        "views",
        "prompt_tokens",
        "solver_steps",
        "decode_tokens",
        "executed",
        "chunk",
        "layers",
        "kv_heads",
        "head_dim",
    )
    for field in positive:
        value = getattr(request, field)
        if value is not None and not 1 <= value <= 10**9:
            raise UsageError(f"--{field.replace('_', '-')} must be at least 1, at most 1e9", why=f"Got {value}.")
    if request.head_params is not None and not 0 <= request.head_params <= 1e18:
        raise UsageError(f"--head-params {request.head_params:g} is out of range", why="From 0 to 1e18.")
    if request.model is not None:
        return _from_catalogue(request, request.model)
    decoder = _from_config(request) if request.config is not None else _from_params(request)
    return _with_checkpoint(decoder, request.checkpoint) if request.checkpoint is not None else decoder


def _from_catalogue(request: ModelRequest, name: str) -> DecoderSpec | SizedPolicy:
    from robot_perf.policies.models.catalogue import find_model, size_policy

    found = find_model(name)
    if isinstance(found, DecoderSpec):
        decoder = _with_structure(found, request)
        return _with_checkpoint(decoder, request.checkpoint) if request.checkpoint is not None else decoder
    return size_policy(
        found,
        views=request.views,
        prompt_tokens=request.prompt_tokens,
        solver_steps=request.solver_steps,
        decode_tokens=request.decode_tokens,
        executed=request.executed,
        chunk=request.chunk,
        head_params=request.head_params,
    )


def _from_config(request: ModelRequest) -> DecoderSpec:
    from robot_perf.policies.models.decoder_config import decoder_from_config, read_config

    assert request.config is not None
    name = request.config.parent.name if request.config.name == "config.json" else request.config.stem
    decoder = decoder_from_config(
        read_config(request.config),
        name=name or "config",
        params=request.params,
        head_dim=request.head_dim,
        source=str(request.config),
    )
    return _with_structure(decoder, request)


def _from_params(request: ModelRequest) -> DecoderSpec:
    params = request.params if request.params is not None else 0.0
    if request.checkpoint is None and not (params > 0 and math.isfinite(params)):
        raise UsageError(f"--params {params:g} is out of range", why="Above 0.", do="For example --params 8e9.")
    name = f"{params / 1e9:g} B parameters" if params >= 1e9 else f"{params / 1e6:g} M parameters"
    decoder = DecoderSpec(name=name, params=params, embedding_counted=True)
    return _with_structure(decoder, request)


def _with_structure(decoder: DecoderSpec, request: ModelRequest) -> DecoderSpec:
    """The decoder with what single options said about it."""
    given = {f: getattr(request, f) for f in ("layers", "kv_heads", "head_dim", "active_params")}
    if (request.experts is None) != (request.experts_per_token is None):
        raise UsageError("--experts and --experts-per-token belong together", do="Give both.")
    if request.experts is not None:
        if not decoder.routed_params:
            raise UsageError(
                "--experts needs to know how many parameters are the experts'",
                do="Give --config FILE, or --active-params N for what one token reads.",
            )
        given |= {"experts": request.experts, "experts_per_token": request.experts_per_token}
    return dataclasses.replace(decoder, **{k: v for k, v in given.items() if v is not None})


def _with_checkpoint(decoder: DecoderSpec, path: Path) -> DecoderSpec:
    from robot_perf.policies.models.checkpoint import read_checkpoint

    stored = read_checkpoint(path)
    known = decoder.params or stored.total / 2
    streamed = stored.streamed(decoder.experts, decoder.experts_per_token)
    name = decoder.name if decoder.params else path.name
    return dataclasses.replace(
        decoder, name=name, params=known, checkpoint_bytes=streamed, resident_bytes=float(stored.total)
    )
