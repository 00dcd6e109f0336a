"""Conditions that a report reads, checked for their kind: a damaged Run file is one clear error, never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_perf.analyze.conditions import check_run
from robot_perf.errors import RunFileError
from robot_perf.render.lines import clean
from robot_perf.run.model import Run

__all__ = ["check_conditions"]

_OBJECT, _LIST, _WHOLE, _TEXT = (
    (Mapping, "an object"),
    ((list, tuple), "a list"),
    (int, "a whole number"),
    (str, "text"),
)
_KINDS: dict[str, tuple[Any, str]] = {
    "policy.name": _TEXT,
    "policy.kind": _TEXT,
    "policy.action": _WHOLE,
    "policy.chunk": _WHOLE,
    "policy.cost.parameters": _WHOLE,
    "backend": ((Mapping, str), "an object or a name"),
    "backend.options": _OBJECT,
    "backend_facts": _OBJECT,
    "host": _OBJECT,
    "host.packages": _OBJECT,
    "host.governors": _LIST,
    "host.virtualization": _LIST,
    "host.power_mode": _OBJECT,
    "real_time": _OBJECT,
    "real_time.affinity": _LIST,
    "real_time.refused": _LIST,
    "phases": _OBJECT,
    "phases.columns": _OBJECT,
    "notes": _LIST,
    "invalid": _LIST,
    "argv": _LIST,
}
_REQUIRED = ("policy.name", "policy.kind", "policy.chunk", "policy.cost.parameters", "backend", "invalid")


def check_conditions(run: Run) -> None:
    """Raises RunFileError that names the first condition of the wrong kind, what it is and what it should be."""
    check_run(run)
    for name, (kind, words) in _KINDS.items():
        value, present = _at(run.conditions, name.split("."))
        if present and value is None and name not in _REQUIRED:
            continue
        if present and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise RunFileError(
                f"the Run's condition {name} is damaged", why=f"Got {clean(repr(value))[:80]}, allowed: {words}."
            )


def _at(value: Any, path: list[str]) -> tuple[Any, bool]:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None, False
        value = value[key]
    return value, True
