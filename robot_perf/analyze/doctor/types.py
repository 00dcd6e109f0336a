"""What a check of `doctor` is, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Advice", "Check", "Facts", "Finding"]

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Advice:
    """`outcome` is "mend" (it hurts and can be mended) or "note" (know it when you read figures from here)."""

    outcome: str
    what: str
    why: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A name for scripts, the facts without which it can't answer, and the judgement: None is clean.

    `jetson` checks are clean where there is no L4T release: the question does not arise.
    """

    name: str
    needs: tuple[str, ...]
    judge: Callable[[Facts], Advice | None]
    jetson: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """`outcome`: mend, note, clean or can't answer (then `what` is the reason)."""

    check: str
    outcome: str
    what: str
    why: str
    command: str
