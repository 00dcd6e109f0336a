"""Names, cells and tables that every rendering of the RMSNorm bench shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "BYTE_RATIOS",
    "OURS",
    "ROTATED",
    "SERIAL",
    "SHORT",
    "Summary",
    "best",
    "by_shape",
    "cells",
    "figure",
    "mark",
    "measured",
    "rotated",
    "table",
    "us",
]

OURS, SERIAL = "robot-perf", "robot-perf, no dependent launch"
SHORT = {
    OURS: "ours",
    SERIAL: "ours, serial",
    "torch.compile": "compile",
    "torch.compile max-autotune": "compile max",
}
BYTE_RATIOS = (
    # op, baseline, bytes per element asked for, those that the baseline moves, ours, what the baseline is
    ("rms_norm", "eager", 14, 40, 4, "eager, FP32"),
    ("add_rms_norm", "F.rms_norm", 10, 10, 8, "x + r, F.rms_norm"),
)
ROTATED = "rotated MB (sets)"
Summary = Mapping[str, Any]


def measured(summary: Summary) -> list[str]:
    """Providers with a time anywhere, in order."""
    return list(dict.fromkeys(n for r in summary["rows"] for n, e in r["providers"].items() if "rank" in e))


def figure(entry: Mapping[str, Any], key: str) -> float | None:
    """A figure of a provider's entry; the median where it is a spread; None where there is none."""
    found = entry.get(key)
    return found["median"] if isinstance(found, Mapping) else found


def best(row: Mapping[str, Any], key: str) -> tuple[str, float] | None:
    """(fastest peer, its time over ours) at a point; None where one is missing."""
    peers = {n: figure(e, key) for n, e in row["providers"].items() if n not in (OURS, SERIAL)}
    known = {n: found for n, found in peers.items() if found is not None}
    mine = figure(row["providers"].get(OURS, {}), key)
    if not known or mine is None:
        return None
    name = min(known, key=lambda n: known[n])
    return name, known[name] / mine


def cells(row: Mapping[str, Any], names: Sequence[str], key: str = "rank") -> list[str]:
    """One line of a table of times: the shape, each provider, the fastest peer over ours."""
    line = [f"{row['m']} x {row['d']}"]
    for name in names:
        found = figure(row["providers"].get(name, {}), key)
        line.append("–" if found is None else us(found))
    fastest = best(row, key)
    return [*line, "–" if fastest is None else f"{fastest[1]:.2f} ({SHORT.get(fastest[0], fastest[0])})"]


def rotated(row: Mapping[str, Any]) -> str:
    """The footprint of the inputs that take turns with a cold cache, and the number of sets; `read` where it is too small."""
    found = row.get("rotated")
    if found is None:
        return "–"
    size = found["bytes"] / 1e6
    return f"{size:.{0 if size >= 10 else 2}f} ({found['sets']})" + ("" if found["by"] == "rotation" else ", read")


def us(value: float) -> str:
    """µs with two decimals, one above 100."""
    return f"{value:.2f}" if value < 100 else f"{value:.1f}"


def mark(met: bool | None) -> str:
    """A verdict in a word; what was measured in part or not at all leaves it open."""
    return "open" if met is None else "yes" if met else "NO"


def by_shape(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows by width, then by their number: a bench measures the wide sweep in a shuffled order."""
    return sorted(rows, key=lambda row: (row["d"], row["m"]))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A markdown table."""
    return [
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(r) + " |" for r in rows),
    ]
