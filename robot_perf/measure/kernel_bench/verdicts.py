"""The RMSNorm bench's own targets, each with what was measured and whether that meets it.

A target is met only by a complete measurement: points that were not reached, or at which ours or every peer failed, leave it open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from robot_perf.measure.kernel_bench.points import BIG_BYTES, HEADLINE, MIXED, WIDE, Point, bytes_touched

__all__ = ["FEW_ROWS", "OURS", "PEER_BAR", "SERIAL", "WIDE_LEAST", "Part", "not_reached", "verdicts"]

OURS, SERIAL = "robot-perf", "robot-perf, no dependent launch"
PEER_BAR = 0.95  # inside 5 % is a tie
COPY_SHARE = {"rms_norm": 0.97, "add_rms_norm": 0.98}
IN_A_GRAPH = ((4096, 1.5), (16384, 2.4))  # width at one row, µs
FEW_ROWS = 16  # host cost is compared at batch sizes of a robot
WIDE_LEAST = 150  # points that the wide sweep must have to answer


class Part(NamedTuple):
    """One part of the bench: its rows, its points that were not reached, and how many points answer (None: all of them)."""

    rows: Sequence[Mapping[str, Any]]
    late: Sequence[Point]
    least: int | None

    def big(self, op: str) -> int:
        """Points of an op at which a share of the copy is asked for."""
        sizes = [r["bytes"] for r in self.rows if r["op"] == op] + [bytes_touched(p) for p in self.late if p.op == op]
        return len([size for size in sizes if size >= BIG_BYTES])


def not_reached(report: Mapping[str, Any]) -> list[Point]:
    """Points of one dtype that the budget (or an end before it) left out."""
    known = {p.name: p for p in (*HEADLINE, *MIXED, *WIDE)}
    found = [known[name] for name in report.get("not_reached", ()) if name in known]
    return [p for p in found if p.weight == p.dtype]


def verdicts(parts: Mapping[str, Part], means: Mapping[str, Any], peers: Sequence[str]) -> list[dict[str, Any]]:
    """The bench's own targets, each with what was measured.

    `met` None where that leaves it open: nothing was measured, or what was is good but not all of it.
    """
    out: list[dict[str, Any]] = []

    def add(what: str, target: str, measured: str, good: bool | None, *, whole: bool = True) -> None:
        met = None if good and not whole else good
        out.append({"what": what, "target": target, "measured": measured, "met": met})

    for name, part in parts.items():
        asked = len(part.rows) + len(part.late)
        if not asked:
            continue
        mean = means[OURS].get(name)
        n = 0 if mean is None else mean["n"]
        whole = n >= (asked if part.least is None else part.least)
        counted = f"n = {n} of {asked}" + _without(part.rows, peers)
        if part.least is not None and not whole:
            counted += f", {part.least} asked for"
        mean_of = f"{name}: geometric mean of fastest peer / ours"
        if mean is None:
            add(mean_of, ">= 1.00", "not measured", None)
        else:
            said = f"{mean['value']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}], {counted}"
            # a mean of some of the points is no answer, good or bad
            add(mean_of, ">= 1.00", said, mean["value"] >= 1.0 if whole else None)
            worst = f"{mean['worst']:.3f} at {mean['worst_point']}" + (
                f"; {len(mean['below_bar'])} below" if mean["below_bar"] else ""
            )
            add(f"{name}: worst point", f">= {PEER_BAR}", worst, mean["worst"] >= PEER_BAR, whole=whole)
        for op, bar in COPY_SHARE.items():
            _add_share(add, name, part, op, bar)
    main = parts["headline"].rows
    for d, limit in IN_A_GRAPH:
        at = [r["providers"] for r in main if (r["op"], r["m"], r["d"]) == ("rms_norm", 1, d)]
        us, serial = (at[0].get(who, {}).get("warm", {}).get("median") if at else None for who in (OURS, SERIAL))
        said = "not measured" if us is None else f"{us:.2f} µs"
        said += "" if us is None or serial is None else f", without dependent launch {serial:.2f}"
        add(f"M = 1, d = {d}, in a graph", f"<= {limit} µs", said, None if us is None else us <= limit)
    _add_host(add, [r for r in main if r["m"] <= FEW_ROWS], sum(p.m <= FEW_ROWS for p in parts["headline"].late))
    return out


def _add_host(add: Callable[..., None], few: Sequence[Mapping[str, Any]], late: int) -> None:
    """Each op's median must be met: the two have different things beside them.

    In reports of before `host beside` F.rms_norm was timed in its own process alone.
    """
    asked = len(few) + late
    target = ("host cost of an eager call, M <= 16", "<= F.rms_norm's beside it")
    pairs: dict[str, list[tuple[float, float]]] = {}
    one_process = True
    for row in few:
        ours = row["providers"].get(OURS, {})
        beside = ours.get("host beside") or row["providers"].get("F.rms_norm", {}).get("host")
        if "host" in ours and beside is not None:
            one_process &= "host beside" in ours
            pairs.setdefault(row["op"], []).append((ours["host"]["median"], beside["median"]))
    if not pairs:
        if asked:
            add(*target, "not measured", None)
        return
    medians = {op: tuple(float(np.median(side)) for side in zip(*found, strict=True)) for op, found in pairs.items()}
    flat = [pair for found in pairs.values() for pair in found]
    said = "; ".join(f"{op} {mine:.1f} µs against {theirs:.1f}" for op, (mine, theirs) in medians.items())
    said += f"; medians of {len(flat)} of {asked} points, {'in one process' if one_process else 'in processes of their own'}"
    said += f"; at most {max(a / b for a, b in flat):.2f} times"
    add(*target, said, all(mine <= theirs for mine, theirs in medians.values()), whole=len(flat) == asked)


def _add_share(add: Callable[..., None], name: str, part: Part, op: str, bar: float) -> None:
    asked = part.big(op)
    if not asked:
        return
    target = f"{name}: least share of the copy at 256 MB or more, {op}"
    shares = [
        (r["providers"][OURS]["of_copy"], r)
        for r in part.rows
        if r["op"] == op and r["bytes"] >= BIG_BYTES and r["providers"].get(OURS, {}).get("of_copy")
    ]
    if not shares:
        add(target, f">= {bar}", "not measured", None)
        return
    share, row = min(shares, key=lambda pair: pair[0])
    said = f"{share:.3f} at {row['m']} x {row['d']}, n = {len(shares)} of {asked}"
    add(target, f">= {bar}", said, share >= bar, whole=len(shares) == asked)


def _without(rows: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> str:
    """The peers that were measured at none of the rows: who isn't there can't be the fastest."""
    missing = [n for n in peers if not any("rank" in r["providers"].get(n, {}) for r in rows)]
    return f"; without {', '.join(missing)}" if missing else ""
