"""What the medians of the RMSNorm bench's report leave out: how replays scatter, and what compiling took."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from robot_perf.render.kernel_bench.cells import SHORT, Summary, by_shape, table, us

__all__ = ["compiling", "spread"]


def spread(summary: Summary, names: Sequence[str]) -> list[str]:
    """p10 to p90 of the replays: of every provider at the headline points, and how wide that is over all points."""
    rows = [r for r in summary["rows"] if r["headline"]]
    parts = []
    for op in ("rms_norm", "add_rms_norm"):
        mine = by_shape([r for r in rows if r["op"] == op])
        if mine:
            lines = [[f"{r['m']} x {r['d']}", *(_range(r["providers"].get(n, {})) for n in names)] for r in mine]
            parts += ["", f"{op}:", "", *table(["m x d", *(SHORT.get(n, n) for n in names)], lines)]
    widths = [[SHORT.get(name, name), *_widths(summary["rows"], name)] for name in names]
    if not widths:
        return []
    said = (
        "10th to 90th percentile of the replays in µs, of the time that a point is ranked by, at the headline points; the JSON has them "
        "for every point, warm and cold. Below, (p90 - p10) / median over all points: the middle one, and the widest and where it was."
    )
    header = ["provider", "points ranked warm", "middle", "widest", "points ranked cold", "middle", "widest"]
    return ["", "## Spread of the replays", "", said, *parts, "", "All points:", "", *table(header, widths)]


def _range(entry: Mapping[str, Any]) -> str:
    if "rank" not in entry:
        return "–"
    found = entry[entry["ranked_by"]]
    low, high = us(found["p10"]), us(found["p90"])
    return low if low == high else f"{low}–{high}"


def _widths(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    cells = []
    for by in ("warm", "cold"):
        found = []
        for row in rows:
            entry = row["providers"].get(name, {})
            if entry.get("ranked_by") == by:
                ours = entry[by]
                found.append(((ours["p90"] - ours["p10"]) / ours["median"], f"{row['op']} {row['m']} x {row['d']}"))
        if not found:
            cells += ["0", "–", "–"]
            continue
        widest, where = max(found)
        middle = statistics.median(width for width, _ in found)
        cells += [str(len(found)), f"{middle * 100:.1f} %", f"{widest * 100:.0f} % ({where})"]
    return cells


def compiling(report: Mapping[str, Any], summary: Summary, names: Sequence[str]) -> list[str]:
    """Seconds until a provider's first call of a point had returned, and kernels per call of the captured graphs."""
    rows = []
    for name in names:
        took = {p: s for p, s in report.get("compile_s", {}).get(name, {}).items() if isinstance(s, int | float)}
        entries = [r["providers"].get(name, {}) for r in summary["rows"]]
        kernels = sorted({e["nodes"]["kernel"] for e in entries if (e.get("nodes") or {}).get("kernel")})
        ends = dict.fromkeys(kernels[:1] + kernels[-1:])
        counted = " to ".join(f"{k:g}" for k in ends) or "–"
        if not took:
            rows.append([SHORT.get(name, name), "–", "–", "–", "–", counted])
            continue
        slowest = max(took, key=lambda point: took[point])
        middle, total = statistics.median(took.values()), sum(took.values())
        longest = f"{took[slowest]:.1f} ({slowest})"
        rows.append([SHORT.get(name, name), str(len(took)), f"{middle:.2f}", longest, f"{total:.0f}", counted])
    if not rows:
        return []
    ahead = report.get("ahead_s")
    said = (
        "Seconds from the inputs of a point to the end of its first call: compiling, tuning, and waiting for others, in the processes of a "
        "provider together; the first call in a process also starts CUDA and loads the library. It is in no time above. "
        + (f"Compiling ahead, in all processes at once, took {ahead:.0f} s of the bench. " if ahead else "")
        + "A tuner times each of its candidates under a lock, so that no two are timed at once; the first call of what another process has "
        "just compiled does not wait for it: such a launch may fall into a candidate's timing."
    )
    header = ["provider", "points", "median s", "longest s", "sum s", "kernels per call"]
    return ["", "## Compile time and kernels per call", "", said, "", *table(header, rows)]
