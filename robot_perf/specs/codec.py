"""Plain JSON to and from the spec dataclasses, with the standard library alone."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Dataclasses to dicts, tuples to lists; scalars pass through."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


def from_json(cls: type[T], data: Any) -> T:
    """The dataclass `cls` from what `to_json` wrote. Unknown keys are ignored (written by a later version).

    Raises TypeError or KeyError where a required field is absent: the caller knows which file it read.
    """
    return typing.cast(T, _decode(cls, data))


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(hint: Any, data: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return _decode(next(a for a in typing.get_args(hint) if a is not type(None)), data)
    if origin is tuple:
        arguments = typing.get_args(hint)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(arguments[0], item) for item in data)
        return tuple(_decode(a, item) for a, item in zip(arguments, data, strict=True))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = _hints(hint)
        return hint(
            **{f.name: _decode(hints[f.name], data[f.name]) for f in dataclasses.fields(hint) if f.name in data}
        )
    return data
