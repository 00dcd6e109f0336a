"""What a bench was asked for, and the words of its options: backends with options, rates, keep-warm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError, unknown
from robot_perf.measure.window.keep_warm import ALL, parse_keep_warm
from robot_perf.run.bench_report import TIGHT
from robot_perf.units import period_ns

__all__ = ["BenchRequest", "Target", "parse_keep_warms", "parse_rates", "parse_targets"]

_TARGET = re.compile(r"^(?P<name>[A-Za-z_][\w-]*)(?:\[(?P<options>[^\[\]]*)\])?$")


@dataclass(frozen=True, slots=True)
class Target:
    """A backend to measure: `label` as asked (`onnxruntime[graph=true]`), the backend's name, its options."""

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What a person asked for. `backends` empty: every backend of the table. Rates are "tight" or Hz as text."""

    policies: tuple[str, ...]
    backends: tuple[Target, ...] = ()
    rates: tuple[str, ...] = ("50", "200", TIGHT)
    steps: int = 500
    blocks: int = 2
    longest_ns: int | None = None  # of a point: fewer steps are run where `steps` would take longer
    keep_warm: tuple[str, ...] = ("none",)
    device: str = "cpu"
    python: dict[str, str] = field(default_factory=dict)
    together: bool = (
        False  # load all workers of all policies at once: quicker, and their cold starts disturb one another
    )
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    state: tuple[tuple[str, str], ...] = ()
    action: str | None = None
    preset: str | None = None
    policy_options: dict[str, Any] = field(default_factory=dict)
    observations: Path | None = None
    ort_library: Path | None = None
    cast: bool = False
    seed: int = 0
    output: Path | None = None
    force: bool = False
    hang_s: float = 20.0
    load_s: float = 300.0

    def steps_at(self, rate: str) -> int:
        """Steps of a point at a rate, over all its blocks: `steps`, or what fits into `longest_ns`."""
        if rate == TIGHT or self.longest_ns is None:
            return self.steps
        return max(min(self.steps, self.longest_ns // period_ns(rate)), 10 * self.blocks)


def parse_targets(text: str | None, known: Sequence[str]) -> tuple[Target, ...]:
    """`eager,onnxruntime[graph=true;threads=2]` as targets. Raises UsageError for an unknown name or a bad form."""
    if text is None:
        return ()
    found = []
    for part in _split(text):
        match = _TARGET.match(part.strip())
        if match is None:
            raise UsageError(
                f"--backends {part.strip()!r} is not a backend",
                do="Write NAME or NAME[option=value;option=value], with commas between.",
            )
        if match["name"] not in known:
            raise unknown("backend", match["name"], known)
        found.append(Target(part.strip(), match["name"], _options(part, match["options"] or "")))
    labels = [t.label for t in found]
    if len(set(labels)) != len(labels):
        raise UsageError(f"--backends {text!r} names a backend twice", do="Give the second one other options.")
    return tuple(found)


def _split(text: str) -> list[str]:
    """Parts between commas that stand outside brackets."""
    return re.findall(r"[^,\[]+(?:\[[^\]]*\]?)?", text) or [text]


def _options(part: str, text: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in filter(None, (p.strip() for p in text.split(";"))):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise UsageError(
                f"--backends {part}: {pair!r} is not option=value", do="For example onnxruntime[threads=2]."
            )
        options[key.strip()] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_rates(text: str) -> tuple[str, ...]:
    """`50,200,tight`: rates in Hz and the word tight, each once."""
    rates = tuple(part.strip() for part in text.split(",") if part.strip())
    if not rates:
        raise UsageError("--rates is empty", do="Write for example --rates 50,200,tight.")
    for rate in rates:
        if rate != TIGHT:
            period_ns(rate)
    values = [rate if rate == TIGHT else Fraction(rate) for rate in rates]
    if len(set(values)) != len(values):
        raise UsageError(f"--rates {text!r} names a rate twice")
    return rates


def parse_keep_warms(text: str | None) -> tuple[str, ...]:
    """`all`, or one or several cures with commas; `none` is always among them, for their price is the difference to it."""
    if text is None:
        return ("none",)
    asked = ALL if text.strip() == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
    for one in asked:
        parse_keep_warm(one)
    return tuple(dict.fromkeys(("none", *asked)))
