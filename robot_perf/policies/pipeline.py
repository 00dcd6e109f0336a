"""YAML files that name a policy: a pipeline of several files that make one control step, or one policy with its options.

A pipeline:

    stages:                              # run in this order; together they are one step with one response time
      encoder:
        file: encoder.onnx               # relative to the YAML file
        feed: history                    # a stage with one input may leave out the input's name
      policy:
        file: policy.onnx
        feed:                            # by input name: one piece, or several joined on the last axis
          mlp_input: [encoder, "history[-36:]", commands]
        outputs: [actions]               # optional names by position; also shape, state, action, backend, options
    inputs:                              # only what can't be told from the stages
      commands: [5]
    action: policy                       # the stage, or stage.output; the last stage by default

A piece is a pipeline input, a stage (its only output or its action) or `stage.output` (name or position), each with an
optional slice of the last axis. One policy with options (as in configs/policies):

    policy: mlp                          # what would be written as POLICY
    preset: humanoid
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies import builtin, wiring
from robot_perf.policies.asked import Asked, named_counters, position, shown
from robot_perf.policies.identify import identify
from robot_perf.specs import PolicyCost, PolicySpec, StageSpec, TensorSpec
from robot_perf.specs.validate import validated

LARGEST_YAML = 1_000_000
Resolve = Callable[[str, Asked], PolicySpec]  # `robot_perf.policies.resolve.resolve`, which reads YAML through here
STRICT = {"extra": "forbid"}  # a misspelt key is an error, not a default


@dataclass(slots=True)
class StageFile:
    """One stage as written."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    file: str
    feed: str | list[str] | dict[str, str | list[str]]
    shape: dict[str, list[int]] = field(default_factory=dict)
    state: dict[str, str | int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    action: str | int | None = None
    backend: str | None = None


@dataclass(slots=True)
class PipelineFile:
    """A pipeline as written."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    stages: dict[str, StageFile]
    inputs: dict[str, list[int]] = field(default_factory=dict)
    action: str | None = None
    rate_hz: float | None = None
    description: str = ""


@dataclass(slots=True)
class PolicyFile:
    """One policy with its options as written."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    policy: str
    preset: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    shape: dict[str, list[int]] = field(default_factory=dict)
    state: dict[str, str | int] = field(default_factory=dict)
    action: str | int | None = None
    rate_hz: float | None = None
    description: str = ""


def describe(path: Path, asked: Asked, resolve: Resolve) -> PolicySpec:
    """The PolicySpec of a YAML file; `resolve` describes the policies that it names. Raises PolicyError or UsageError that names the file and the key."""
    data = _read(path)
    if "stages" in data:
        return _pipeline(path, validated(PipelineFile, data, source=str(path)), asked, resolve)
    if "policy" in data:
        return _single(path, validated(PolicyFile, data, source=str(path)), asked, resolve)
    raise PolicyError(
        f"{path} is YAML without a policy",
        why=f"Its keys: {', '.join(shown(k, 30) for k in list(data)[:8]) or 'none'}.",
        do="Wanted: `stages` (a pipeline of files) or `policy` (one policy with options).",
    )


def _read(path: Path) -> dict[str, Any]:
    import yaml

    if path.stat().st_size > LARGEST_YAML:
        raise PolicyError(
            f"{path} has {path.stat().st_size:,} bytes", why=f"A policy's YAML has at most {LARGEST_YAML:,}."
        )
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError, OverflowError) as error:
        raise PolicyError(
            f"{path} is not sound YAML", do="Mend it at the place named.", detail=" ".join(str(error).split())
        ) from error
    if not isinstance(data, dict):
        raise PolicyError(
            f"{path} is YAML without a policy", why=f"Its top level is {type(data).__name__}, wanted a mapping."
        )
    return {str(k): v for k, v in data.items()}


def _single(path: Path, file: PolicyFile, asked: Asked, resolve: Resolve) -> PolicySpec:
    text = file.policy
    if not builtin.is_builtin(text) and ":" not in text:
        text = str(path.absolute().parent / text)
        if Path(text).suffix in (".yaml", ".yml"):
            raise PolicyError(f"{path}: policy {shown(file.policy)} is another YAML file", do="Name the policy itself.")
    asked = dataclasses.replace(
        asked,
        shapes={**_shapes(file.shape), **asked.shapes},
        state=asked.state or tuple((k, str(v)) for k, v in file.state.items()),
        action=asked.action if asked.action is not None else _word(file.action),
        preset=asked.preset or file.preset,
        options={**file.options, **asked.options},
    )
    spec = resolve(text, asked)
    rate = {"documented_rate_hz": f"{file.rate_hz:g}"} if file.rate_hz is not None else {}
    return dataclasses.replace(spec, name=path.stem, metadata={**spec.metadata, **rate})


def _pipeline(path: Path, file: PipelineFile, asked: Asked, resolve: Resolve) -> PolicySpec:
    if not file.stages:
        raise PolicyError(f"{path}: stages is empty", do="Name at least one stage with its file.")
    if asked.shapes or asked.state or asked.preset or asked.options:
        raise UsageError(
            f"{path} is a pipeline: shapes, state and options belong to its stages",
            do="Write them under the stage's name.",
        )
    loaded = {name: _stage(path, name, stage, asked, resolve) for name, stage in file.stages.items()}
    recorded = {k: shape for k, (_, shape) in asked.recorded.items()}
    feeds = {name: _feed(stage.feed, loaded[name], path, name) for name, stage in file.stages.items()}
    inputs, stages = wiring.connect(path, loaded, feeds, _shapes(file.inputs), recorded)
    spec = PolicySpec(
        name=path.stem,
        kind="pipeline",
        path=str(path.absolute()),
        sha256=_digest(path, stages),
        size_bytes=sum(s.policy.size_bytes or 0 for s in stages),
        inputs=inputs,
        counters=wiring.counters(inputs, stages)
        if asked.counters is None
        else named_counters(asked.counters, inputs, set(), policy=path.name),
        state_note="; ".join(f"{s.name}: {s.policy.state_note}" for s in stages),
        seed=asked.seed,
        asked=asked.to_spec(),
        stages=stages,
        cost=_cost(stages),
        metadata={"documented_rate_hz": f"{file.rate_hz:g}"} if file.rate_hz is not None else {},
        notes=tuple(f"{s.name}: {n}" for s in stages for n in s.policy.notes),
    )
    return wiring.with_action(spec, asked.action if asked.action is not None else file.action)


def _stage(path: Path, name: str, stage: StageFile, asked: Asked, resolve: Resolve) -> PolicySpec:
    if "." in name or "[" in name or not name:
        raise PolicyError(f"{path}: stage {shown(name)}: a stage's name has no dot and no bracket", do="Rename it.")
    own = Asked(
        shapes=_shapes(stage.shape),
        state=tuple((k, str(v)) for k, v in stage.state.items()),
        action=_word(stage.action),
        seed=asked.seed,
        options=stage.options,
    )
    text = stage.file
    if not builtin.is_builtin(text) and ":" not in text:
        text = str(path.absolute().parent / text)
        if Path(text).is_file() and identify(Path(text)).kind == "yaml":
            # Refused before it is read: a file may name itself.
            raise PolicyError(f"{path}: stage {shown(name)} is a pipeline itself", do="Write its stages here.")
    try:
        spec = resolve(text, own)
    except UsageError as error:
        raise UsageError(
            f"{path}: stage {shown(name)}: {error.what}", why=error.why, do=error.do, detail=error.detail
        ) from error
    if spec.kind == "pipeline":
        raise PolicyError(f"{path}: stage {shown(name)} is a pipeline itself", do="Write its stages here.")
    if not spec.inputs and stage.shape:
        # TorchScript: the worker checks these against the file's own arguments.
        spec = dataclasses.replace(
            spec, inputs=tuple(TensorSpec(n, "float32", s) for n, s in _shapes(stage.shape).items())
        )
    if stage.outputs:
        if spec.outputs and len(stage.outputs) != len(spec.outputs):
            raise PolicyError(
                f"{path}: stage {shown(name)} names {len(stage.outputs)} outputs, its file has {len(spec.outputs)}"
            )
        spec = dataclasses.replace(spec, asked={**spec.asked, "output_names": list(stage.outputs)})
    return dataclasses.replace(spec, asked={**spec.asked, "backend": stage.backend}) if stage.backend else spec


def _feed(
    feed: str | list[str] | Mapping[str, str | list[str]], policy: PolicySpec, path: Path, name: str
) -> dict[int, list[str]]:
    if not policy.inputs:
        raise PolicyError(
            f"{path}: stage {shown(name)}: its file does not say its input sizes",
            do="Add `shape: {input: [1, 48]}` to the stage.",
        )
    if not isinstance(feed, Mapping):
        if len(policy.fed) != 1:
            names = ", ".join(shown(policy.inputs[i].name) for i in policy.fed)
            raise PolicyError(
                f"{path}: stage {shown(name)} has {len(policy.fed)} inputs to feed: {names}",
                do="Name each under `feed`.",
            )
        return {policy.fed[0]: [feed] if isinstance(feed, str) else list(feed)}
    found = {}
    for word, pieces in feed.items():
        where = position(str(word), policy.inputs, policy=f"{path}: stage {shown(name)}", option="feed", what="input")
        found[where] = [pieces] if isinstance(pieces, str) else list(pieces)
    return found


def _shapes(shape: Mapping[str, list[int]]) -> dict[str, tuple[int, ...]]:
    return {str(k): tuple(v) for k, v in shape.items()}


def _word(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def _digest(path: Path, stages: tuple[StageSpec, ...]) -> str:
    total = hashlib.sha256(path.read_bytes())
    for stage in stages:
        total.update((stage.policy.sha256 or stage.policy.name).encode())
    return total.hexdigest()


def _cost(stages: tuple[StageSpec, ...]) -> PolicyCost | None:
    costs = [s.policy.cost for s in stages]
    known = [c for c in costs if c is not None]
    if len(known) < len(costs):
        return None
    read = [c.bytes_read for c in known]
    flop = [c.flop for c in known]
    return PolicyCost(
        parameters=sum(c.parameters for c in known),
        constants=sum(c.constants for c in known),
        bytes_read=None if None in read else sum(n or 0 for n in read),
        flop=None if None in flop else sum(n or 0 for n in flop),
    )
