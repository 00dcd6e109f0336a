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
DRAWS = 2000
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
        row["launch_bound"] = None if boundary is None else row["bytes"] < boundary["bytes"]
    draws = np.random.default_rng(0)
    rounds = report.get("rounds", 1)
    groups = {
        "headline": main,
        "headline rms_norm": [r for r in main if r["op"] == "rms_norm"],
        "headline add_rms_norm": [r for r in main if r["op"] == "add_rms_norm"],
        "wide": wide,
    }
    means: dict[str, Any] = {}
    for who in (OURS, SERIAL):
        means[who] = {name: _geometric_mean(part, who, "rank", rounds, draws) for name, part in groups.items() if part}
        if main:
            means[who]["headline, cold cache"] = _geometric_mean(main, who, "cold", rounds, draws)
    late = not_reached(report)
    parts = {
        "headline": Part(main, [p for p in late if (p.op, p.m, p.d) in chosen], None),
        "wide": Part(wide, [p for p in late if (p.op, p.m, p.d) not in chosen], WIDE_LEAST),
    }
    return {
        "rows": rows,
        "boundary": boundary,
        "geometric_mean": means,
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


def _us(entry: Mapping[str, Any], key: str) -> float:
    value = entry[key]
    return float(value["median"] if isinstance(value, Mapping) else value)


def _peers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {n: e for n, e in row["providers"].items() if n not in (OURS, SERIAL) and "rank" in e}


def ratio(row: Mapping[str, Any], who: str = OURS, key: str = "rank") -> float | None:
    """Fastest peer's time over `who`'s at a point (`key` rank, warm or cold).

    None where one of them is absent, and where a cold time is lost in the noise of the flush that is taken off it.
    """
    peers, mine = _peers(row), row["providers"].get(who, {})
    if not peers or "rank" not in mine:
        return None
    if any(min(e["samples"].get(key, (1.0,))) <= 0 for e in (mine, *peers.values())):
        return None
    return min(_us(e, key) for e in peers.values()) / _us(mine, key)


def _geometric_mean(
    rows: Sequence[Mapping[str, Any]], who: str, key: str, rounds: int, draws: np.random.Generator
) -> dict[str, Any] | None:
    """Geometric mean over points of (fastest peer / who), with a 95 % bootstrap interval.

    Drawn anew: the turns of a point, the same for everyone (they were interleaved, and drift is larger between turns than within
    one), then each provider's replays in them. The points are given, not drawn.
    """
    usable = [r for r in rows if ratio(r, who, key) is not None]
    if not usable:
        return None
    values = np.array([ratio(r, who, key) for r in usable])
    logs = np.zeros(DRAWS)
    for row in usable:
        turns = draws.integers(0, rounds, (DRAWS, rounds))
        mine = _resampled(row["providers"][who]["samples"][key], turns, draws)
        peers = np.stack([_resampled(e["samples"][key], turns, draws) for e in _peers(row).values()])
        logs += np.log(peers.min(axis=0) / mine)
    low, high = np.exp(np.percentile(logs / len(usable), [2.5, 97.5]))
    worst = usable[int(values.argmin())]
    below = [f"{r['op']} {r['m']} x {r['d']} ({v:.3f})" for r, v in zip(usable, values, strict=True) if v < PEER_BAR]
    return {
        "value": float(np.exp(np.log(values).mean())),
        "low": float(low),
        "high": float(high),
        "n": len(usable),
        "worst": float(values.min()),
        "worst_point": f"{worst['op']} {worst['m']} x {worst['d']}",
        "below_bar": below,
    }


def _resampled(samples: Sequence[float], turns: Any, draws: np.random.Generator) -> Any:
    data = np.asarray(samples).reshape(turns.shape[1], -1)  # a turn's replays are a row
    replays = draws.integers(0, data.shape[1], (*turns.shape, data.shape[1]))
    return np.median(data[turns[:, :, None], replays].reshape(len(turns), -1), axis=1)


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
