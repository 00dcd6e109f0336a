"""State through the signature (convention S1): which output of step n is which input of step n+1.

Found by names that differ only by in/out, prev/next or a suffix, confirmed by equal dtype and shape; never guessed from shapes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies.asked import position, shape_text, shown
from robot_perf.specs import StatePair, TensorSpec

# `input` and `output` alone also name plain tensors (`mlp_input`, `mlp_output`): such a pair is weak.
WEAK_WORDS = {"input", "output"}
IN_WORDS = {"in", "input", "prev", "previous", "old", "last", "init", "initial"}
OUT_WORDS = {"out", "output", "next", "new", "final", "updated"}
# torch writes the recurrent state before and after a sequence as h0 and hn.
_ZERO_N = re.compile(r"^(h|c|hidden|cell|state)_?(0|n)$")
NONE_FOUND = "state: none found"
Tree = list[Any] | None  # a tensor, or a tuple of trees


@dataclass(frozen=True, slots=True)
class Name:
    """A tensor name without its direction: `h_in` and `h_out` share the stem ("h",)."""

    stem: tuple[str, ...]
    direction: str  # in | out | ""
    numbered: bool = False
    weak: bool = False


def parse(name: str) -> Name:
    """Stem and direction of a tensor name."""
    if (match := _ZERO_N.match(name.lower())) is not None:
        return Name((match[1],), "in" if match[2] == "0" else "out")
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = [w.lower() for w in re.split(r"[^A-Za-z0-9]+", spaced) if w]
    marked = [w for w in words if w in IN_WORDS | OUT_WORDS]
    stem = tuple(w for w in words if w not in IN_WORDS | OUT_WORDS)
    direction = ""
    if marked:
        direction = "in" if marked[-1] in IN_WORDS else "out"
    elif len(stem) > 1 and stem[-1].isdigit():
        return Name(stem[:-1], "", numbered=True)
    return Name(stem, direction, weak=bool(marked) and set(marked) <= WEAK_WORDS)


def pairs(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], asked: Sequence[tuple[str, str]], *, policy: str
) -> tuple[tuple[StatePair, ...], tuple[str, ...]]:
    """State pairs in input order, and notes on state that is possible but not carried.

    Raises PolicyError for a pair by name whose shapes or dtypes differ, UsageError for a bad `--state`.
    """
    found: dict[int, int] = {}
    settled: set[int] = set()
    for target_word, source_word in asked:
        target = position(target_word, tuple(inputs), policy=policy, option="--state", what="input")
        settled.add(target)
        if source_word:
            source = position(source_word, tuple(outputs), policy=policy, option="--state", what="output")
            _require_equal(inputs[target], outputs[source], policy)
            if source in found.values():
                raise UsageError(f"{policy}: --state names output {source} twice", why="One output feeds one input.")
            found[target] = source
    for i, tensor in enumerate(inputs):
        if i not in settled:
            matches = [
                o
                for o, out in enumerate(outputs)
                if _match(parse(tensor.name), parse(out.name)) and o not in found.values()
            ]
            if len(matches) == 1 and _sound(tensor, outputs[matches[0]], policy):
                found[i] = matches[0]
    if len(found) == len(inputs):
        # A policy observes something: what is left without a feed is an observation whose name happens to match.
        found = {i: o for i, o in found.items() if i in settled or not parse(inputs[i].name).weak}
    carried = tuple(StatePair(target=i, source=found[i]) for i in sorted(found))
    return carried, _possible(inputs, outputs, found, settled)


def nested(arguments: Sequence[Tree], result: Tree) -> list[tuple[int, int]]:
    """Convention S3: flat (input, output) positions of each tuple argument that equals exactly one member of the result."""
    members = result if isinstance(result, list) else [result]
    starts = [sum(_leaves(m) for m in members[:i]) for i in range(len(members))]
    found, at = [], 0
    for argument in arguments:
        alike = [s for m, s in zip(members, starts, strict=True) if isinstance(argument, list) and m == argument]
        if len(alike) == 1:
            found += [(at + i, alike[0] + i) for i in range(_leaves(argument))]
        at += _leaves(argument)
    return found


def _leaves(tree: Tree) -> int:
    return sum(_leaves(t) for t in tree) if isinstance(tree, list) else 1


def finding(carried: Sequence[StatePair], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """The line that every report prints about state."""
    if not carried:
        return NONE_FOUND
    names = ", ".join(f"{inputs[p.target].name}<-{outputs[p.source].name}" for p in carried)
    count = f"{len(carried)} pair{'s' if len(carried) > 1 else ''}"
    return f"state: {count} carried ({names}), reset before measuring"


def _match(given: Name, taken: Name) -> bool:
    if not given.stem or given.stem != taken.stem:
        return False
    if given.direction == "out" or taken.direction == "in":
        return False
    return bool(given.direction or taken.direction or given.numbered != taken.numbered)


def _sound(given: TensorSpec, taken: TensorSpec, policy: str) -> bool:
    if given.dtype == taken.dtype and _shapes_agree(given.shape, taken.shape):
        return True
    a, b = parse(given.name), parse(taken.name)
    if a.direction and b.direction and not (a.weak or b.weak):
        _require_equal(given, taken, policy)
    return False  # `x` and `x_1`, or `last_action` and `action`, of other shapes are two tensors, not one that changed


def _shapes_agree(given: tuple[int, ...], taken: tuple[int, ...]) -> bool:
    return len(given) == len(taken) and all(a == b or b < 0 for a, b in zip(given, taken, strict=True))


def _require_equal(given: TensorSpec, taken: TensorSpec, policy: str) -> None:
    if given.dtype != taken.dtype or not _shapes_agree(given.shape, taken.shape):
        raise PolicyError(
            f"{policy}: state {shown(given.name)} <- {shown(taken.name)} does not fit",
            why=f"{shown(given.name)} is {given.dtype} {shape_text(given.shape)}, "
            f"{shown(taken.name)} is {taken.dtype} {shape_text(taken.shape)}.",
            do=f"Export it with equal shapes, or say which output feeds it: --state {shown(given.name)}=OUTPUT "
            f"(--state {shown(given.name)}= to feed it as an observation).",
        )


def _possible(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], found: dict[int, int], settled: set[int]
) -> tuple[str, ...]:
    notes = []
    if len(inputs) < 2:
        return ()
    for i, tensor in enumerate(inputs):
        if i in found or i in settled:
            continue
        alike = [
            o
            for o, out in enumerate(outputs)
            if out.dtype == tensor.dtype and out.shape == tensor.shape and o not in found.values()
        ]
        if alike:
            options = " or ".join(f"--state {tensor.name}={o}" for o in alike[:3])
            notes.append(
                f"possible state, not carried: input {tensor.name} has the shape of output"
                f"{'s' if len(alike) > 1 else ''} {', '.join(map(str, alike))}; if it is its next value add {options}"
            )
    return tuple(notes)
