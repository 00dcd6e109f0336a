"""Validation of what people wrote, in the conductor only: pydantic over the plain dataclasses."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from robot_perf.errors import UsageError

T = TypeVar("T")


def validated(cls: type[T], data: Any, *, source: str) -> T:
    """`data` as `cls`, or one UsageError that names `source`, the field, what was got and what is allowed."""
    try:
        value: T = TypeAdapter(cls).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(p) for p in first["loc"]) or "top level"
        raise UsageError(f"{source}: {where}: {first['msg']}", why=f"Got {first.get('input')!r:.120}.") from None
    return value
