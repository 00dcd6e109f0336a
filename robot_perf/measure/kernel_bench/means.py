"""Geometric means of fastest peer over ours, each with its interval: of all points, by regime, and of the peers that ran everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.measure.kernel_bench.verdicts import OURS, PEER_BAR, SERIAL

__all__ = ["all_means", "led", "ratio"]

DRAWS = 2000
COLD = "headline, cold cache"
EVERYWHERE = "headline, the wide sweep's peers alone"
ORDER = ("headline", "headline rms_norm", "headline add_rms_norm")  # then its parts, then the wide sweep's


def all_means(
    groups: Mapping[str, Sequence[Mapping[str, Any]]], absent: Sequence[str], rounds: int
) -> dict[str, dict[str, Any]]:
    """Means by who and group of points. `absent` are peers that the wide sweep leaves out.

    Small points are ranked by their warm times and a launch is most of them, large ones by their cold times, the memory's: a mean of
    both is an answer to neither question, so each regime has its own.
    """
    draws = np.random.default_rng(0)
    main, wide = groups["headline"], groups["wide"]
    found: dict[str, dict[str, Any]] = {OURS: {}, SERIAL: {}}
    for who, means in found.items():
        means |= {name: _geometric_mean(part, who, "rank", rounds, draws) for name, part in groups.items() if part}
        if main:
            means[COLD] = _geometric_mean(main, who, "cold", rounds, draws)
    # drawn after the others, whose intervals stay what they were in reports without these
    for who, means in found.items():
        for name, part in (("headline", main), ("wide", wide)):
            for by in ("warm", "cold"):
                some = [r for r in part if r["providers"].get(who, {}).get("ranked_by") == by]
                if some:
                    means[f"{name}, ranked {by}"] = _geometric_mean(some, who, "rank", rounds, draws)
        fewer = _without(main, absent)
        if wide and fewer != main:
            means[EVERYWHERE] = _geometric_mean(fewer, who, "rank", rounds, draws)
        found[who] = {n: means[n] for n in sorted(means, key=_place)}
    return found


def _place(name: str) -> tuple[int, int]:
    whole = ORDER.index(name) if name in ORDER else len(ORDER)
    return int(name.startswith("wide")), whole + (name == COLD)


def led(rows: Sequence[Mapping[str, Any]], absent: Sequence[str]) -> dict[str, dict[str, int]]:
    """At how many of the rows each of these is the fastest peer: what leaving it out elsewhere may hide. Without those that ran at none."""
    peers = [_peers(row) for row in rows]
    firsts = [min(found, key=lambda n: _us(found[n], "rank")) for found in peers if found]
    ran = [name for name in absent if any(name in found for found in peers)]
    return {name: {"led": firsts.count(name), "of": len(firsts)} for name in ran}


def _without(rows: Sequence[Mapping[str, Any]], absent: Sequence[str]) -> list[Mapping[str, Any]]:
    return [{**r, "providers": {n: e for n, e in r["providers"].items() if n not in absent}} for r in rows]


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
