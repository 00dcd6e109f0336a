"""Option values that are more than one word."""

from __future__ import annotations

import math
import os
import re
from typing import Any

from robot_perf.errors import UsageError, unknown

_EXAMPLES = {
    "--shape": "obs=1,48",
    "--state": "h_in=h_out",
    "--limit": "p99=12",
    "--option": "hidden=512,256",
    "--backend-option": "precision=fp16",
    "--python": "tensorrt=/opt/trt/bin/python3",
}


def parse_pairs(name: str, values: list[str] | None) -> list[tuple[str, str]]:
    """NAME=VALUE each; the name may hold dots and colons, as tensor names do."""
    pairs = []
    for value in values or []:
        key, equals, text = value.partition("=")
        if not equals or not key.strip() or not text.strip():
            example = f"Write for example {name} {_EXAMPLES[name]}." if name in _EXAMPLES else ""
            raise UsageError(f"{name} {value!r} is not NAME=VALUE", do=example)
        pairs.append((key.strip(), text.strip()))
    return pairs


def parse_interpreters(values: list[str] | None, backends: list[str]) -> dict[str, str]:
    """BACKEND=PATH each, of the backends that there are."""
    found = dict(parse_pairs("--python", values))
    for name in found:
        if name not in backends:
            raise unknown("--python: backend", name, backends)
    return found


def parse_values(name: str, values: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE each, the value as a number, true, false or text."""
    return {key: _value(text) for key, text in parse_pairs(name, values)}


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if not math.isfinite(value):
            raise UsageError(
                f"{text!r} is no finite number",
                why="A Run keeps its options as JSON, which has neither infinity nor NaN.",
            )
        return value
    return text


def parse_shapes(values: list[str] | None) -> dict[str, tuple[int, ...]]:
    """NAME=1,12 each: sizes of an input, or of one open axis."""
    shapes = {}
    for key, text in parse_pairs("--shape", values):
        parts = [part.strip() for part in text.replace("x", ",").split(",")]
        if not all(part.isdecimal() and 0 < int(part) <= 2**31 for part in parts):
            raise UsageError(
                f"--shape {key}={text} is not a list of sizes",
                why="Allowed: whole numbers above 0.",
                do=f"Write for example --shape {key}=1,48.",
            )
        shapes[key] = tuple(int(part) for part in parts)
    return shapes


def parse_m_in_k(text: str | None) -> tuple[int, int] | None:
    """m,K with 0 <= m < K: at most m MISSES in any K consecutive releases."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,9})\s*,\s*(\d{1,9})\s*", text)
    if match is None or not int(match[1]) < int(match[2]):
        raise UsageError(
            f"--m-in-k {text!r} is not m,K",
            why="m is the number of misses allowed in any K consecutive releases; m < K.",
            do="Write for example 2,10.",
        )
    return int(match[1]), int(match[2])


def parse_percentile_limits(values: list[str] | None) -> dict[str, int]:
    """p99=12 each: a percentile and a limit in ms, as ns."""
    limits = {}
    for key, text in parse_pairs("--limit", values):
        if not re.fullmatch(r"p\d{1,2}(\.\d{1,6})?", key) or float(key[1:]) <= 0:
            raise UsageError(
                f"--limit {key}={text}: {key!r} is no percentile", do="Write for example p99=12 or p99.9=15."
            )
        try:
            limit_ms = float(text)
        except ValueError:
            raise UsageError(f"--limit {key}={text}: {text!r} is no number of ms") from None
        if not 0 < limit_ms <= 86_400_000:
            raise UsageError(f"--limit {key}={text} is out of range", why="Allowed: above 0, at most one day in ms.")
        limits[key] = round(limit_ms * 1_000_000)
    return limits


def parse_cpus(text: str | None) -> tuple[int, ...]:
    """`3`, `0,2` or `2-5`; each must exist here."""
    if text is None:
        return ()
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:\s*-\s*(\d{1,5}))?\s*", part)
        if match is None:
            raise UsageError(f"--cpus {text!r} is not a list of processors", do="Write for example 3, 0,2 or 2-5.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= 65536:
            raise UsageError(f"--cpus {part!r} is not a range")
        cpus.update(range(first, last + 1))
    available = os.sched_getaffinity(0)
    if not cpus <= available:
        raise UsageError(
            f"--cpus {text}: this process can't use {sorted(cpus - available)}", why=f"It may use {sorted(available)}."
        )
    return tuple(sorted(cpus))
