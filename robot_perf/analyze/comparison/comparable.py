"""May two Runs stand beside one another? The conditions that must agree, and those worth naming (measurement.md §13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robot_perf.run.model import Run
from robot_perf.units import format_duration

__all__ = ["CHECKED", "NAMED", "Difference", "checked_differences", "named_differences"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A condition that differs; values as they stand in the two Runs' conditions."""

    field: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.field}: {self._words(self.a)} and {self._words(self.b)}"

    def _words(self, value: Any) -> str:
        if value is None:
            return "not recorded"
        if self.field.endswith("_ns") and isinstance(value, int):
            return format_duration(value)
        return str(value)


def _identity(run: Run) -> Any:
    """The file's hash where there is a file; else what the policy was made of."""
    policy = run.policy
    if policy.sha256:
        return f"{policy.name} (sha256 {policy.sha256[:12]})"
    built = {k: v for k, v in sorted(dict(policy.builtin or {}).items()) if (k, v) != ("name", policy.name)}
    made_of = policy.factory or ", ".join(f"{k} {v}" for k, v in built.items())
    return f"{policy.name} ({made_of})" if made_of else policy.name


def _condition(*path: str) -> Callable[[Run], Any]:
    def read(run: Run) -> Any:
        value: Any = run.conditions
        for key in path:
            value = value.get(key) if hasattr(value, "get") else None
        return value

    return read


# field -> how to read it. A field that neither Run knows is no difference; None is "not recorded".
CHECKED: dict[str, Callable[[Run], Any]] = {
    "policy": _identity,
    "policy.batch": _condition("policy", "batch"),
    "policy.chunk": _condition("policy", "chunk"),
    "loop.period_ns": _condition("loop", "period_ns"),
    "loop.deadline_ns": _condition("loop", "deadline_ns"),
    "loop.overrun": _condition("loop", "overrun"),
    "loop.shape": _condition("loop", "shape"),
    "host.machine": _condition("host", "machine"),
    "host.cpu_model": _condition("host", "cpu_model"),
    "host.device_tree_model": _condition("host", "device_tree_model"),
    "host.governors": _condition("host", "governors"),
    "host.power_mode": _condition("host", "power_mode"),
}

NAMED: dict[str, Callable[[Run], Any]] = {
    "backend": _condition("backend", "name"),
    "backend options": _condition("backend", "options"),
    "loop.wait": _condition("loop", "wait"),
    "loop.gc": _condition("loop", "gc"),
    "loop.real_time": _condition("loop", "real_time"),
    "robot-perf": _condition("version"),
    "host.kernel": _condition("host", "kernel"),
    "host.python": _condition("host", "python"),
    "host.packages": _condition("host", "packages"),
}


def checked_differences(a: Run, b: Run) -> tuple[Difference, ...]:
    """The conditions that must agree and don't: any of them makes the Runs not comparable."""
    return _differences(CHECKED, a, b)


def named_differences(a: Run, b: Run) -> tuple[Difference, ...]:
    """What else differs: perhaps the very thing that is compared."""
    return _differences(NAMED, a, b)


def _differences(fields: dict[str, Callable[[Run], Any]], a: Run, b: Run) -> tuple[Difference, ...]:
    pairs = ((name, read(a), read(b)) for name, read in fields.items())
    return tuple(Difference(name, x, y) for name, x, y in pairs if x != y)
