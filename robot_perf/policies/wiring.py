"""How the stages of a pipeline feed each other: pieces of the last axis, checked for size as far as sizes are known.

The conductor checks what files tell; the worker checks again once TorchScript stages have told theirs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies.asked import position, shape_text, shown
from robot_perf.specs import PolicySpec, StageInput, StageSpec, TensorSpec

Piece = tuple[str, int, int | None, int | None]
_SLICE = re.compile(r"^(.+?)\s*\[\s*(-?\d{1,9})?\s*:\s*(-?\d{1,9})?\s*\]$")


def connect(
    path: Path,
    loaded: Mapping[str, PolicySpec],
    feeds: Mapping[str, Mapping[int, list[str]]],
    given: Mapping[str, tuple[int, ...]],
    recorded: Mapping[str, tuple[int, ...]],
) -> tuple[tuple[TensorSpec, ...], tuple[StageSpec, ...]]:
    """The pipeline's own inputs and its stages. `given` are sizes from the YAML, `recorded` those of a recording.

    Raises PolicyError that names stage, input and sizes.
    """
    names: list[str] = []
    parsed: dict[str, dict[int, list[Piece]]] = {}
    earlier: dict[str, PolicySpec] = {}
    for stage, policy in loaded.items():
        wanted = dict(feeds[stage])
        for i in policy.fed:
            if i not in wanted and i in policy.counters:
                wanted[i] = [f"{stage}.{policy.inputs[i].name}"]  # a counter nobody feeds counts the pipeline's steps
                names.append(wanted[i][0])
        lost = [policy.inputs[i].name for i in policy.fed if i not in wanted]
        if lost or any(i not in policy.fed for i in wanted):
            extra = [policy.inputs[i].name for i in wanted if i not in policy.fed]
            raise PolicyError(
                f"{path}: stage {shown(stage)}: "
                + (
                    f"input {shown(lost[0])} is not fed"
                    if lost
                    else f"input {shown(extra[0])} is state, which the stage carries itself"
                ),
                do="Write it under `feed`." if lost else "Leave it out of `feed`.",
            )
        parsed[stage] = {i: [_piece(path, stage, text, earlier, names) for text in wanted[i]] for i in policy.fed}
        earlier[stage] = policy
    clash = [n for n in names if n in loaded]
    if clash:
        raise PolicyError(
            f"{path}: {shown(clash[0])} names a stage that runs later, or an input and a stage", do="Rename one."
        )
    if unused := [n for n in given if n not in names]:
        raise PolicyError(
            f"{path}: input {shown(unused[0])} is fed to no stage", do="Write it under a stage's `feed`, or drop it."
        )
    inputs = tuple(_input(path, i, n, loaded, parsed, given.get(n) or recorded.get(n)) for i, n in enumerate(names))
    stages = tuple(
        StageSpec(name, policy, tuple(StageInput(tuple(parsed[name][i])) for i in policy.fed))
        for name, policy in loaded.items()
    )
    check(str(path), inputs, stages)
    return inputs, stages


def check(source: str, inputs: tuple[TensorSpec, ...], stages: tuple[StageSpec, ...]) -> None:
    """Compares what each stage is fed with what it takes. Raises PolicyError; unknown outputs are passed over."""
    outputs = {s.name: s.policy.outputs for s in stages}
    for stage in stages:
        for where, feed in zip(stage.policy.fed, stage.feeds, strict=True):
            wanted = stage.policy.inputs[where]
            tensors = [_source(piece, inputs, outputs) for piece in feed.pieces]
            if any(t is None for t in tensors):
                continue
            known = [t for t in tensors if t is not None]
            got = (*known[0].shape[:-1], sum(width(t.shape, p) for t, p in zip(known, feed.pieces, strict=True)))
            odd = next(
                (t for t in known if t.shape[:-1] != got[:-1] or t.dtype != wanted.dtype or len(t.shape) < 1), None
            )
            if odd is not None or got != wanted.shape:
                parts = " + ".join(_fed(p, t) for p, t in zip(feed.pieces, known, strict=True))
                raise PolicyError(
                    f"{source}: stage {shown(stage.name)}: its feed does not fit input {shown(wanted.name)}",
                    why=f"Got {parts}; wanted {wanted.dtype} {shape_text(wanted.shape)}.",
                    do="Mend the slices under `feed`; pieces are joined on the last axis.",
                )


def _fed(piece: Piece, tensor: TensorSpec) -> str:
    name = tensor.name if piece[0] == "" else (piece[0] if piece[1] == 0 else f"{piece[0]}.{piece[1]}")
    return f"{shown(name, 30)} {tensor.dtype} {shape_text((*tensor.shape[:-1], width(tensor.shape, piece)))}"


def width(shape: tuple[int, ...], piece: Piece) -> int:
    """Elements of the last axis that a piece takes."""
    return len(range(*slice(piece[2], piece[3]).indices(shape[-1]))) if shape else 0


def counters(inputs: tuple[TensorSpec, ...], stages: tuple[StageSpec, ...]) -> tuple[int, ...]:
    """Pipeline inputs that feed nothing but a stage's counter."""
    found: dict[int, bool] = {}
    for stage in stages:
        for where, feed in zip(stage.policy.fed, stage.feeds, strict=True):
            for source, index, start, stop in feed.pieces:
                if source == "":
                    alone = len(feed.pieces) == 1 and start is None and stop is None and where in stage.policy.counters
                    found[index] = found.get(index, True) and alone
    return tuple(i for i in range(len(inputs)) if found.get(i))


def outputs(stages: tuple[StageSpec, ...]) -> tuple[TensorSpec, ...]:
    """All stages' outputs in order; a stage's only output carries the stage's name, others `stage.output`. () if one is unknown."""
    if any(not s.policy.outputs for s in stages):
        return ()
    return tuple(
        dataclasses.replace(t, name=n) for s in stages for t, n in zip(s.policy.outputs, _names(s), strict=True)
    )


def _names(stage: StageSpec) -> list[str]:
    given = stage.policy.asked.get("output_names", [])
    if len(given) == len(stage.policy.outputs):
        return list(given)
    return [stage.name if len(stage.policy.outputs) == 1 else f"{stage.name}.{t.name}" for t in stage.policy.outputs]


def with_action(spec: PolicySpec, word: str | None) -> PolicySpec:
    """`spec` with its outputs and its action: the stage or `stage.output` that is named, else the last stage's."""
    by_name = {s.name: s for s in spec.stages}
    text = word if word is not None else spec.stages[-1].name
    named = outputs(spec.stages)
    if word is not None and word.isdigit() and named:
        at = position(word, named, policy=spec.name, option="--action", what="output")
        flat = [(s.name, i) for s in spec.stages for i in range(len(s.policy.outputs))]
        return dataclasses.replace(spec, outputs=named, action=at, stage_action=flat[at])
    name, _, rest = text.partition(".")
    if name not in by_name:
        raise UsageError(
            f"{spec.name}: action {shown(text)} names no stage", why=f"Stages: {', '.join(map(shown, by_name))}."
        )
    policy = by_name[name].policy
    where = _output(policy, rest, f"{spec.name}: action {shown(text)}")
    before = sum(len(s.policy.outputs) for s in spec.stages[: [s.name for s in spec.stages].index(name)])
    return dataclasses.replace(
        spec, outputs=named, action=before + where if named else None, stage_action=(name, where)
    )


def _output(policy: PolicySpec, word: str, where: str) -> int:
    if not word:
        if policy.action is not None or not policy.outputs:
            return policy.action or 0
        raise UsageError(f"{where}: it has {len(policy.outputs)} outputs", do="Name one: stage.output")
    if not policy.outputs:
        if word.isdigit():
            return int(word)
        raise UsageError(f"{where}: outputs of a TorchScript stage have positions, not names", do="Write stage.0")
    given = policy.asked.get("output_names", [])
    if given.count(word) == 1:
        return int(given.index(word))
    return position(word, policy.outputs, policy=where, option="output", what="output")


def _piece(path: Path, stage: str, text: str, earlier: Mapping[str, PolicySpec], names: list[str]) -> Piece:
    match = _SLICE.match(text)
    base = match[1] if match else text.strip()
    start = int(match[2]) if match and match[2] else None
    stop = int(match[3]) if match and match[3] else None
    head, _, rest = base.partition(".")
    if base not in names and head in earlier:
        where = f"{path}: stage {shown(stage)}: feed {shown(text)}"
        return head, _output(earlier[head], rest, where), start, stop
    if not base or "[" in base:
        raise PolicyError(
            f"{path}: stage {shown(stage)}: feed {shown(text)!r} is no piece", do='Write NAME or "NAME[start:stop]".'
        )
    if base not in names:
        names.append(base)
    return "", names.index(base), start, stop


def _input(
    path: Path,
    index: int,
    name: str,
    loaded: Mapping[str, PolicySpec],
    parsed: Mapping[str, Mapping[int, list[Piece]]],
    given: tuple[int, ...] | None,
) -> TensorSpec:
    """A pipeline input's dtype and shape: as written, or as the stage that takes it leaves no choice."""
    dtype, shape = None, given
    for stage, feeds in parsed.items():
        for where, pieces in feeds.items():
            if not any(p[0] == "" and p[1] == index for p in pieces):
                continue
            wanted = loaded[stage].inputs[where]
            dtype = dtype or wanted.dtype
            if shape is None and pieces == [("", index, None, None)]:
                shape = wanted.shape
    if shape is None or dtype is None or any(n < 1 for n in shape):
        raise PolicyError(
            f"{path}: the size of input {shown(name)} can't be told from the stages",
            do=f"Add it: inputs: {{{shown(name)}: [5]}}",
        )
    return TensorSpec(name, dtype, shape)


def _source(
    piece: Piece, inputs: tuple[TensorSpec, ...], outputs: Mapping[str, tuple[TensorSpec, ...]]
) -> TensorSpec | None:
    if piece[0] == "":
        return inputs[piece[1]]
    known = outputs[piece[0]]
    if not known or any(n < 0 for n in known[piece[1]].shape):
        return None
    return known[piece[1]]
