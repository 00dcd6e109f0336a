"""What a person asked about a policy beside its name, and small helpers for the words of messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_perf.errors import UsageError, did_you_mean
from robot_perf.specs import TensorSpec


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of `policies.describe`; `recorded` holds dtype and shape of each recorded input, without the step axis."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    state: tuple[tuple[str, str], ...] = ()
    action: str | None = None
    preset: str | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    observations: str | None = None
    counters: tuple[str, ...] | None = None
    ort_library: str | None = None
    recorded: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def to_spec(self, *, recorded: bool = False) -> dict[str, Any]:
        """Plain JSON for `PolicySpec.asked`: what the worker still needs; empty entries are left out.

        `recorded` adds the recording's shapes, for files that do not state their own.
        """
        entries: dict[str, Any] = {
            "shapes": {k: list(v) for k, v in self.shapes.items()},
            "state": [list(pair) for pair in self.state],
            "action": self.action,
            "options": dict(self.options),
            "observations": self.observations,
            "counters": None if self.counters is None else list(self.counters),
            "ort_library": self.ort_library,
            "recorded": {k: [dtype, list(shape)] for k, (dtype, shape) in self.recorded.items()} if recorded else {},
        }
        return {k: v for k, v in entries.items() if v not in (None, {}, []) or (k == "counters" and v is not None)}


def shown(text: object, limit: int = 80) -> str:
    """Text from a file made fit for one line of a message: printable, at most `limit` characters."""
    clean = "".join(c if c.isprintable() else "?" for c in str(text))
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def shape_text(shape: tuple[int, ...], symbols: tuple[str | None, ...] = ()) -> str:
    """`[1,45]`, with symbolic names where an axis is open."""
    names = [
        s if s else ("?" if n < 0 else str(n)) for n, s in zip(shape, symbols or (None,) * len(shape), strict=False)
    ]
    return "[" + ",".join(shown(n, 24) for n in names) + "]"


def listed(tensors: tuple[TensorSpec, ...], limit: int = 12, *, without: Collection[int] = ()) -> str:
    """`0 actions float32 [1,12]; 1 …` for a message; positions `without` are left out."""
    some = [(i, t) for i, t in enumerate(tensors) if i not in without]
    items = [f"{i} {shown(t.name, 40)} {t.dtype} {shape_text(t.shape)}" for i, t in some[:limit]]
    return "; ".join(items) + (f"; … {len(some)} in all" if len(some) > limit else "")


def position(word: str, tensors: tuple[TensorSpec, ...], *, policy: str, option: str, what: str) -> int:
    """The position that `word` means: a position, else a name that occurs once.

    Raises UsageError that lists what exists. Positions win over names that are numbers.
    """
    if word.isascii() and word.isdigit() and int(word) < len(tensors):
        return int(word)
    found = [i for i, t in enumerate(tensors) if t.name == word]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"{policy}: {option} {shown(word)}: {len(found)} {what}s have this name",
            why=f"Positions {', '.join(map(str, found))}.",
            do=f"Give the position: {option} {found[0]}",
        )
    raise UsageError(
        f"{policy}: {option} {shown(word)}: there is no such {what}",
        why=f"It has: {listed(tensors)}.",
        do=did_you_mean(word, [shown(t.name) for t in tensors]),
    )


def named_counters(
    words: tuple[str, ...], inputs: tuple[TensorSpec, ...], carried: set[int], *, policy: str
) -> tuple[int, ...]:
    """The inputs that `--counter` names; none for the one word `none`. Raises UsageError for one that is not fed."""
    if words == ("none",):
        return ()
    found = tuple(position(word, inputs, policy=policy, option="--counter", what="input") for word in words)
    if state := [inputs[i].name for i in found if i in carried]:
        raise UsageError(
            f"{policy}: --counter: {shown(state[0])} is state, which the policy itself advances",
            why=f"Inputs that it is fed: {listed(inputs, without=carried)}.",
        )
    return found


def action_position(word: str | None, outputs: tuple[TensorSpec, ...], carried: set[int], *, policy: str) -> int:
    """Which output is the action: the one named, else the only one that no state pair takes. Never "the first".

    Raises UsageError that lists positions and shapes when it can't be told.
    """
    if word is not None:
        return position(word, outputs, policy=policy, option="--action", what="output")
    free = [i for i in range(len(outputs)) if i not in carried]
    if len(free) == 1:
        return free[0]
    if len(outputs) == 1:
        return 0
    raise UsageError(
        f"{policy} has {len(outputs)} outputs: which one is the action can't be told from the file",
        why=f"Outputs: {listed(outputs)}.",
        do="Name it by position: --action N",
    )
