"""A policy's own reset method: found, and called with what it needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

RESET_NAMES = ("reset_memory", "reset")
_INSTEAD = "the loaded buffer values are restored instead"


def own_reset(target: Any, batch: int, all_done: Callable[[int], Any]) -> tuple[str, Callable[[], Any] | None, str]:
    """(name, a call without arguments, note) of `reset_memory` or `reset`; the call is None where there is none to make.

    A method that takes the environments that are done is called with all of them done, `all_done(batch)`; one that wants
    anything else can't be called, and the note says so.
    """
    for name in RESET_NAMES:
        method = getattr(target, name, None)
        if not callable(method):
            continue
        required = _required(method)
        if required is None:
            return name, None, f"{name} has a signature that can't be read: {_INSTEAD}"
        if not required:
            return name, method, ""
        if len(required) == 1 and "done" in required[0].lower():
            done = all_done(batch)
            return name, _with(method, done), f"{name}({required[0]}) is called with all {batch} environments done"
        return name, None, f"{name}({', '.join(required)}) can't be called without more knowledge: {_INSTEAD}"
    return "", None, ""


def _with(method: Any, argument: Any) -> Callable[[], Any]:
    return lambda: method(argument)


def _required(method: Any) -> list[str] | None:
    schema = getattr(method, "schema", None)
    if schema is not None:
        return [a.name for a in schema.arguments[1:] if not a.has_default_value()]
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in kinds]
