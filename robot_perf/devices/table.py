"""The device table and exact look-up in it: full name or alias, plus memory size. Never a substring, never a guess."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from robot_perf.devices.schema import CLASSES, DeviceRow, parse_row, to_spec
from robot_perf.errors import UsageError
from robot_perf.specs.device import DeviceSpec
from robot_perf.units import GIB

# A runtime reports less than the marketing size (firmware and carve-outs take up to 18 % on the smallest Jetson) and,
# since it counts in GiB where vendors print GB, never more than 5 % above it.
MEMORY_BELOW = 0.80
MEMORY_ABOVE = 1.05

OVERRIDE_HELP = (
    "Give its numbers: --bandwidth-gb-s N and --peak bf16=N (TFLOP/s, dense); or measure: robot-perf devices probe."
)


def read_rows(device_class: str) -> list[DeviceRow]:
    """The rows of one class as written in configs/devices/<class>.yaml."""
    document = _document(device_class)
    return [parse_row(item, where=f"configs/devices/{device_class}.yaml") for item in document["devices"]]


@cache
def table() -> tuple[DeviceSpec, ...]:
    """Every device of the table, in file order. Raises UsageError where a file breaks the schema."""
    rows = []
    for device_class in CLASSES:
        links = _document(device_class).get("links", {})
        rows += [to_spec(row, device_class, links) for row in read_rows(device_class)]
    _refuse_duplicates(rows)
    return tuple(rows)


def names() -> list[str]:
    """The names of all devices, in file order."""
    return [device.name for device in table()]


def normalise(name: str) -> str:
    """The form in which names are compared: case, repeated blanks and a leading "NVIDIA" don't count."""
    words = name.lower().split()
    return " ".join(words[1:] if len(words) > 1 and words[0] == "nvidia" else words)


def matches(name: str, memory_bytes: float | None = None) -> list[DeviceSpec]:
    """The rows whose name, alias or runtime name is `name` and, where it is known, whose memory fits; maybe several."""
    key = normalise(name)
    exact = [d for d in table() if key in {normalise(n) for n in (d.name, *d.aliases)}]
    rows = exact or [d for d in table() if key in {normalise(n) for n in d.runtime_names}]
    return nearest_memory(rows, memory_bytes)


def nearest_memory(rows: Sequence[DeviceSpec], memory_bytes: float | None) -> list[DeviceSpec]:
    """The rows of the marketing size nearest to what a runtime reports, within a tolerance; all rows where none is
    known.
    """
    if memory_bytes is None:
        return list(rows)
    gib = memory_bytes / GIB
    sized = [d for d in rows if d.memory_gb and MEMORY_BELOW * d.memory_gb <= gib <= MEMORY_ABOVE * d.memory_gb]
    if not sized:
        return [d for d in rows if d.memory_gb is None]
    best = min(abs(gib - _gb(d)) for d in sized)
    return [d for d in sized if abs(gib - _gb(d)) == best]


def find(name: str, memory_bytes: float | None = None) -> DeviceSpec:
    """The one row that `name` and the memory size identify.

    Raises UsageError, with the nearest names and the override options, where no row or more than one does.
    """
    rows = matches(name, memory_bytes)
    if len(rows) == 1:
        return rows[0]
    if rows:
        found = " or ".join(d.name for d in rows)
        raise UsageError(f"{name!r} could be {found}", why="They share that name.", do="Name one of them in full.")
    known = matches(name)
    if known and memory_bytes is not None:
        sizes = ", ".join(f"{d.name} ({d.memory_gb:g} GB)" for d in known if d.memory_gb)
        raise UsageError(
            f"{name!r} with {memory_bytes / GIB:.1f} GiB is not in the device table",
            why=f"Known under that name: {sizes}. A slice of a GPU (MIG, vGPU) has other numbers than the whole.",
            do=OVERRIDE_HELP,
        )
    near = nearest(name)
    raise UsageError(
        f"{name!r} is not in the device table",
        why=f"Did you mean {' or '.join(near)}?" if near else "No name is near it. Names are matched in full.",
        do=f"{OVERRIDE_HELP} All names: robot-perf devices list.",
    )


def nearest(name: str, count: int = 4) -> list[str]:
    """Names of the table that look like `name`, for an error message only."""
    spelled = {normalise(n): d.name for d in table() for n in (d.name, *d.aliases, *d.runtime_names)}
    close = difflib.get_close_matches(normalise(name), spelled, n=2 * count, cutoff=0.5)
    return list(dict.fromkeys(spelled[c] for c in close))[:count]


def _gb(device: DeviceSpec) -> float:
    return device.memory_gb or 0.0


@cache
def _document(device_class: str) -> dict[str, Any]:
    path = files("robot_perf") / "configs" / "devices" / f"{device_class}.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("class") != device_class or "devices" not in document:
        raise UsageError(f"configs/devices/{device_class}.yaml needs `class: {device_class}` and `devices:`")
    return document


def _refuse_duplicates(rows: Iterable[DeviceSpec]) -> None:
    seen: dict[str, str] = {}
    for device in rows:
        for name in {normalise(n) for n in (device.name, *device.aliases)}:
            if name in seen:
                raise UsageError(f"device table: {name!r} names both {seen[name]} and {device.name}")
            seen[name] = device.name
