"""What a long load is doing, for whoever shows it: the worker hands the words to the conductor through the step map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, float | None], None]

_listeners: list[Listener] = []


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Inside it `listener(what, fraction)` hears of every change; fraction None: no end is known."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def say(what: str, fraction: float | None = None) -> None:
    """Says what is being done, and how much of it, 0 to 1."""
    for listener in _listeners:
        listener(what, fraction)
