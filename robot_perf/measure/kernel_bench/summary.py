"""What a raw bench report says: medians, ratios with intervals, shares of the copy, the launch-bound boundary, fits, verdicts.

Pure functions of the report's JSON; numpy alone. Times in µs, bandwidths in GB/s (1e9 B/s).

`rank` is the figure that providers are compared by: the cold time where inputs rotate past the cache, else the warm one (a point
too small to rotate). Both are in a CUDA graph.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.measure.kernel_bench.means import all_means, led
from robot_perf.measure.kernel_bench.points import BIG_BYTES
from robot_perf.measure.kernel_bench.verdicts import (
    FEW_ROWS,
    OURS,
    PEER_BAR,
    SERIAL,
    WIDE_LEAST,
    Part,
    not_reached,
    verdicts,
)

__all__ = ["PEER_BAR", "fastest", "summarise"]

T0_WIDTH = 4096
FLAT_BYTES = 4
Report = Mapping[str, Any]


def summarise(
    report: Report, headline: Iterable[tuple[str, int, int]], spec_gb_s: float | None = None
) -> dict[str, Any]:
    """The summary that tables, charts and verdicts are made of. `headline` names the points that carry the verdicts."""
    chosen = set(headline)
    rows = [_row(point, spec_gb_s) for point in report["points"]]
    main = [r for r in rows if (r["op"], r["m"], r["d"]) in chosen and r["weight"] == r["dtype"]]
    wide = [r for r in rows if (r["op"], r["m"], r["d"]) not in chosen and r["weight"] == r["dtype"]]
    boundary = _boundary(rows, report.get("empty_kernel_us"))
    for row in rows:
        row["headline"] = (row["op"], row["m"], row["d"]) in chosen and row["weight"] == row["dtype"]
        row["launch_bound"] = None if boundary is None else row["bytes"] < boundary["bytes"]
    groups = {
        "headline": main,
        "headline rms_norm": [r for r in main if r["op"] == "rms_norm"],
        "headline add_rms_norm": [r for r in main if r["op"] == "add_rms_norm"],
        "wide": wide,
    }
    absent = [n for n in report.get("left_out", ()) if n not in (OURS, SERIAL, "copy")]
    means = all_means(groups, absent, report.get("rounds", 1))
    late = not_reached(report)
    parts = {
        "headline": Part(main, [p for p in late if (p.op, p.m, p.d) in chosen], None),
        "wide": Part(wide, [p for p in late if (p.op, p.m, p.d) not in chosen], WIDE_LEAST),
    }
    return {
        "rows": rows,
        "boundary": boundary,
        "geometric_mean": means,
        "left_out": led(main, absent),
        "per_peer": {name: _per_peer(part) for name, part in groups.items() if part},
        "fits": _fits(rows, spec_gb_s),
        "flat": _flat(rows),
        "verdicts": verdicts(parts, means, [n for n in report.get("providers", ()) if n not in (OURS, SERIAL)]),
    }


def _spread(samples: Sequence[float]) -> dict[str, float]:
    p10, p50, p90 = np.percentile(samples, [10, 50, 90])
    return {"p10": float(p10), "median": float(p50), "p90": float(p90), "n": len(samples)}


def _row(point: Mapping[str, Any], spec_gb_s: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {k: point[k] for k in ("op", "m", "d", "dtype", "weight", "bytes")}
    copy = point.get("copy", {})
    copied = copy.get("samples_us", {})
    row["copy_us"] = _spread(copied["cold"])["median"] if copied.get("cold") else None
    row["copy_way"] = copy.get("way")
    # the same inputs in every process
    turning = next((f for f in point["providers"].values() if f.get("rotated_bytes")), None)
    row["rotated"] = turning and {"bytes": turning["rotated_bytes"], "sets": turning["sets"], "by": turning["cold_by"]}
    row["providers"] = {}
    for name, found in point["providers"].items():
        samples = found.get("samples_us", {})
        # one that failed while it was timed has times of its first turns: they stand beside nobody's
        why = found.get("error") or found.get("failed")
        if why or not samples.get("warm") or not samples.get("cold"):
            row["providers"][name] = {"absent": why or "not measured"}
            continue
        entry: dict[str, Any] = {what: _spread(values) for what, values in samples.items()}
        ranked = "cold" if found["cold_by"] == "rotation" else "warm"
        cold = entry["cold"]["median"]
        entry |= {
            "rank": entry[ranked]["median"],
            "samples": {"rank": samples[ranked], "cold": samples["cold"]},
            "ranked_by": ranked,
            "order": found.get("order"),
            "max_ulp": found.get("max_ulp"),
            "nodes": found.get("nodes_per_call"),
            "gap_us": found.get("gap_us"),
            "kernel_us": found.get("kernel_us"),
            "fused_op_ran": found.get("fused_op_ran"),
            "gb_s": point["bytes"] / cold / 1e3 if cold > 0 else None,
            "of_copy": row["copy_us"] / cold if row["copy_us"] and cold > 0 and ranked == "cold" else None,
        }
        if spec_gb_s and entry["gb_s"]:
            entry["of_spec"] = entry["gb_s"] / spec_gb_s
            entry["above_peak"] = entry["gb_s"] > spec_gb_s
            entry["warm_above_peak"] = point["bytes"] / entry["warm"]["median"] / 1e3 > spec_gb_s
        row["providers"][name] = entry
    return row


def _per_peer(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Per peer: geometric mean of its time over ours, points ahead of ours (beyond a tie), and its median host cost at M <= 16."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(n for r in rows for n in r["providers"]):
        both = [r for r in rows if "rank" in r["providers"].get(name, {}) and "rank" in r["providers"].get(OURS, {})]
        if not both:
            continue
        times = np.array([r["providers"][name]["rank"] / r["providers"][OURS]["rank"] for r in both])
        host = [
            r["providers"][name]["host"]["median"]
            for r in both
            if r["m"] <= FEW_ROWS and "host" in r["providers"][name]
        ]
        found[name] = {
            "over_ours": float(np.exp(np.log(times).mean())),
            "n": len(both),
            "ahead_of_ours": int((times < 1).sum()),
            "ahead_beyond_tie": int((times < PEER_BAR).sum()),
            "host_us": float(np.median(host)) if host else None,
        }
    return found


def _boundary(rows: Sequence[Mapping[str, Any]], empty_us: float | None) -> dict[str, Any] | None:
    """Bytes below which a launch, not the memory, is timed: bandwidth of the fastest copy of 256 MB or more times t0.

    t0 is the fastest provider's time at 1 x 4096, plain; in a sweep without it, at a few rows of at most that width. None where
    one of the two was not measured.
    """
    same = [r for r in rows if r["weight"] == r["dtype"]]
    few = [r for r in same if r["op"] == "rms_norm" and r["m"] <= FEW_ROWS and r["d"] <= T0_WIDTH]
    few = [r for r in few if (r["m"], r["d"]) == (1, T0_WIDTH)] or few
    small = [e["rank"] for r in few for e in r["providers"].values() if "rank" in e]
    copied = [r["bytes"] / r["copy_us"] / 1e3 for r in rows if r["copy_us"] and r["bytes"] >= BIG_BYTES]
    if not small or not copied:
        return None
    return {
        "t0_us": min(small),
        "copy_gb_s": max(copied),
        "bytes": min(small) * max(copied) * 1e3,
        "empty_kernel_us": empty_us,
    }


def _fits(rows: Sequence[Mapping[str, Any]], spec_gb_s: float | None) -> list[dict[str, Any]]:
    """t = t0 + bytes / BW per provider, op and d; least squares on relative errors.

    At least three counts of rows, at least one of them bound by the memory: else the slope is the cache's.
    """
    series: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    bound = set()
    for row in rows:
        if row["weight"] != row["dtype"]:
            continue
        for name, entry in row["providers"].items():
            if "rank" in entry:
                key = (name, row["op"], row["d"])
                series.setdefault(key, []).append((row["bytes"], entry["rank"]))
                bound |= {key} if row["launch_bound"] is False else set()
    found = []
    for key, points in series.items():
        if len(points) < 3 or key not in bound:
            continue
        size, us = np.array(points).T
        system = np.stack([1 / us, size / us], axis=1)
        (t0, slope), *_ = np.linalg.lstsq(system, np.ones(len(us)), rcond=None)
        if slope <= 0 or not math.isfinite(t0):
            continue
        name, op, d = key
        gb_s = float(1e-3 / slope)
        above = bool(spec_gb_s and gb_s > spec_gb_s)
        found.append(
            {"provider": name, "op": op, "d": d, "t0_us": float(t0), "gb_s": gb_s, "above_peak": above, "n": len(us)}
        )
    return found


def _flat(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where a provider's time stays within 5 % while the bytes grow fourfold, above the launch-bound regime: not the memory was timed."""
    found = []
    series: dict[tuple[str, str, int], list[tuple[int, int, float]]] = {}
    for row in rows:
        for name, entry in row["providers"].items():
            if "rank" in entry and row["launch_bound"] is False and row["weight"] == row["dtype"]:
                series.setdefault((name, row["op"], row["d"]), []).append((row["bytes"], row["m"], entry["rank"]))
    for (name, op, d), points in series.items():
        for small, m, us in sorted(points):
            flat = [n for size, n, more in points if size >= FLAT_BYTES * small and more < us / PEER_BAR]
            if flat:
                found.append({"provider": name, "op": op, "d": d, "m": [m, max(flat)], "us": us})
    return found


def fastest(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The copy's way with the least median, its samples, and the medians of all ways: the roof is measured like what stands under it."""
    medians = {what.removeprefix("cold "): statistics.median(values) for what, values in samples.items()}
    if not medians:
        return {"samples_us": {}}
    way = min(medians, key=lambda name: medians[name])
    return {
        "way": way,
        "samples_us": {"cold": list(samples[f"cold {way}"])},
        "ways_us": {name: round(us, 3) for name, us in medians.items()},
    }
