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

__all__ = ["PEER_BAR", "fastest", "summarise"]

OURS, SERIAL = "robot-perf", "robot-perf, no dependent launch"
PEER_BAR = 0.95  # inside 5 % is a tie
COPY_SHARE = {"rms_norm": 0.97, "add_rms_norm": 0.98}
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
        row["launch_bound"] = boundary is not None and row["bytes"] < boundary["bytes"]
    draws = np.random.default_rng(0)
    groups = {
        "headline": main,
        "headline rms_norm": [r for r in main if r["op"] == "rms_norm"],
        "headline add_rms_norm": [r for r in main if r["op"] == "add_rms_norm"],
        "wide": wide,
    }
    means: dict[str, Any] = {}
    for who in (OURS, SERIAL):
        means[who] = {name: _geometric_mean(part, who, "rank", draws) for name, part in groups.items() if part}
        if main:
            means[who]["headline, cold cache"] = _geometric_mean(main, who, "cold", draws)
    return {
        "rows": rows,
        "boundary": boundary,
        "geometric_mean": means,
        "per_peer": {name: _per_peer(part) for name, part in groups.items() if part},
        "fits": _fits(rows),
        "flat": _flat(rows),
        "verdicts": _verdicts(main, wide, means),
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
        if not samples.get("warm"):
            row["providers"][name] = {"absent": found.get("error") or found.get("failed") or "not measured"}
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
    """Fastest peer's time over `who`'s at a point (`key` rank, warm or cold); None where one of them is absent."""
    peers, mine = _peers(row), row["providers"].get(who, {})
    if not peers or "rank" not in mine:
        return None
    return min(_us(e, key) for e in peers.values()) / _us(mine, key)


def _geometric_mean(
    rows: Sequence[Mapping[str, Any]], who: str, key: str, draws: np.random.Generator
) -> dict[str, Any] | None:
    """Geometric mean over points of (fastest peer / who), with a 95 % bootstrap interval over each provider's samples."""
    usable = [r for r in rows if ratio(r, who, key) is not None]
    if not usable:
        return None
    values = np.array([ratio(r, who, key) for r in usable])
    logs = np.zeros(DRAWS)
    for row in usable:
        mine = _resampled(row["providers"][who]["samples"][key], draws)
        peers = np.stack([_resampled(e["samples"][key], draws) for e in _peers(row).values()])
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


def _resampled(samples: Sequence[float], draws: np.random.Generator) -> Any:
    data = np.asarray(samples)
    return np.median(data[draws.integers(0, len(data), (DRAWS, len(data)))], axis=1)


def _per_peer(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Per peer: geometric mean of its time over ours, its share of points ahead of ours, and its median host cost at M <= 16."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(n for r in rows for n in r["providers"]):
        both = [r for r in rows if "rank" in r["providers"].get(name, {}) and "rank" in r["providers"].get(OURS, {})]
        if not both:
            continue
        times = np.array([r["providers"][name]["rank"] / r["providers"][OURS]["rank"] for r in both])
        host = [r["providers"][name]["host"]["median"] for r in both if r["m"] <= 16 and "host" in r["providers"][name]]
        found[name] = {
            "over_ours": float(np.exp(np.log(times).mean())),
            "n": len(both),
            "ahead_of_ours": int((times < 1).sum()),
            "host_us": float(np.median(host)) if host else None,
        }
    return found


def _boundary(rows: Sequence[Mapping[str, Any]], empty_us: float | None) -> dict[str, Any] | None:
    """Bytes below which a launch, not the memory, is timed: copy bandwidth at the largest point times t0 (best at 1 x 4096)."""
    small = [
        min(e["rank"] for e in r["providers"].values() if "rank" in e)
        for r in rows
        if (r["op"], r["m"], r["d"]) == ("rms_norm", 1, 4096) and any("rank" in e for e in r["providers"].values())
    ]
    copied = [r["bytes"] / r["copy_us"] / 1e3 for r in rows if r["copy_us"]]
    if not small or not copied:
        return None
    return {
        "t0_us": small[0],
        "copy_gb_s": max(copied),
        "bytes": small[0] * max(copied) * 1e3,
        "empty_kernel_us": empty_us,
    }


def _fits(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """t = t0 + bytes / BW per provider, op and d with at least three counts of rows; least squares on relative errors."""
    series: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for row in rows:
        if row["weight"] != row["dtype"]:
            continue
        for name, entry in row["providers"].items():
            if "rank" in entry:
                series.setdefault((name, row["op"], row["d"]), []).append((row["bytes"], entry["rank"]))
    found = []
    for (name, op, d), points in series.items():
        if len(points) < 3:
            continue
        size, us = np.array(points).T
        system = np.stack([1 / us, size / us], axis=1)
        (t0, slope), *_ = np.linalg.lstsq(system, np.ones(len(us)), rcond=None)
        if slope <= 0 or not math.isfinite(t0):
            continue
        found.append(
            {"provider": name, "op": op, "d": d, "t0_us": float(t0), "gb_s": float(1e-3 / slope), "n": len(points)}
        )
    return found


def _flat(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where a provider's time stays within 5 % while the bytes grow fourfold, above the launch-bound regime: not the memory was timed."""
    found = []
    series: dict[tuple[str, str, int], list[tuple[int, int, float]]] = {}
    for row in rows:
        for name, entry in row["providers"].items():
            if "rank" in entry and not row["launch_bound"] and row["weight"] == row["dtype"]:
                series.setdefault((name, row["op"], row["d"]), []).append((row["bytes"], row["m"], entry["rank"]))
    for (name, op, d), points in series.items():
        for small, m, us in sorted(points):
            flat = [n for size, n, more in points if size >= FLAT_BYTES * small and more < us / PEER_BAR]
            if flat:
                found.append({"provider": name, "op": op, "d": d, "m": [m, max(flat)], "us": us})
    return found


def _verdicts(
    main: Sequence[Mapping[str, Any]], wide: Sequence[Mapping[str, Any]], means: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The bench's own targets, each with what was measured; `met` None where nothing was."""
    out = []

    def add(what: str, target: str, measured: str, met: bool | None) -> None:
        out.append({"what": what, "target": target, "measured": measured, "met": met})

    for name, rows in (("headline", main), ("wide", wide)):
        mean = means[OURS].get(name)
        if mean:
            said = f"{mean['value']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}], n = {mean['n']}"
            add(f"{name}: geometric mean of fastest peer / ours", ">= 1.00", said, mean["value"] >= 1.0)
            worst = f"{mean['worst']:.3f} at {mean['worst_point']}" + (
                f"; {len(mean['below_bar'])} below" if mean["below_bar"] else ""
            )
            add(f"{name}: worst point", f">= {PEER_BAR}", worst, mean["worst"] >= PEER_BAR)
        for op, bar in COPY_SHARE.items():
            shares = [
                (r["providers"][OURS]["of_copy"], r)
                for r in rows
                if r["op"] == op and r["bytes"] >= BIG_BYTES and r["providers"].get(OURS, {}).get("of_copy")
            ]
            if shares:
                share, row = min(shares, key=lambda pair: pair[0])
                said = f"{share:.3f} at {row['m']} x {row['d']}, n = {len(shares)}"
                add(f"{name}: least share of the copy at 256 MB or more, {op}", f">= {bar}", said, share >= bar)
    for d, limit in ((4096, 1.5), (16384, 2.4)):
        us = [r["providers"][OURS]["warm"]["median"] for r in main if (r["op"], r["m"], r["d"]) == ("rms_norm", 1, d) and "rank" in r["providers"].get(OURS, {})]  # fmt: skip
        add(
            f"M = 1, d = {d}, in a graph",
            f"<= {limit} µs",
            f"{us[0]:.2f} µs" if us else "not measured",
            us[0] <= limit if us else None,
        )
    hosts = [
        (r["providers"][OURS]["host"]["median"], r["providers"]["F.rms_norm"]["host"]["median"])
        for r in main
        if r["m"] <= 16 and all("host" in r["providers"].get(n, {}) for n in (OURS, "F.rms_norm"))
    ]
    if hosts:
        mine, theirs = np.median([h[0] for h in hosts]), np.median([h[1] for h in hosts])
        add("host cost of an eager call, M <= 16", "<= F.rms_norm's beside it", f"{mine:.1f} µs against {theirs:.1f} µs, median of {len(hosts)} points", bool(mine <= theirs))  # fmt: skip
    return out


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
