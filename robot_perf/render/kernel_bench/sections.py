"""The sections of the RMSNorm bench's markdown report; each is a list of lines, empty where there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robot_perf.render.kernel_bench.cells import (
    BYTE_RATIOS,
    OURS,
    ROTATED,
    SHORT,
    Summary,
    by_shape,
    cells,
    rotated,
    table,
    us,
)

__all__ = ["bandwidth", "batch_one", "byte_ratios", "fit_table", "host", "launch_bound", "mixed", "orders"]


RESIDENT = " (above the memory's peak: cache-resident)"
FITTED = (OURS, "F.rms_norm", "torch.compile", "quack", "fla", "liger")


def launch_bound(summary: Summary, names: Sequence[str]) -> list[str]:
    """Points where a launch is timed, warm and cold, without GB/s."""
    boundary = summary["boundary"]
    rows = [r for r in summary["rows"] if r["launch_bound"] and r["weight"] == r["dtype"]]
    if not rows or boundary is None:
        return []
    said = (
        f"Below {boundary['bytes'] / 1e6:.1f} MB ({boundary['copy_gb_s']:.0f} GB/s x {boundary['t0_us']:.2f} µs) a launch is "
        f"timed, not the memory: no GB/s. An empty kernel takes {boundary['empty_kernel_us'] or float('nan'):.2f} µs per graph node; "
        f"nothing is subtracted. `{ROTATED}` is the footprint of all sets of inputs, which take turns with a cold cache, as outputs do; "
        "`read`: that is less than three times the L2, and so much is read before each call instead."
    )
    parts = ["", "## Launch-bound points", "", said]
    for op in ("rms_norm", "add_rms_norm"):
        mine = by_shape([r for r in rows if r["op"] == op])
        if mine:
            for title, key in (("warm cache", "warm"), ("cold cache", "cold")):
                header = ["m x d", *(SHORT.get(n, n) for n in names), "best peer / ours"]
                lines = [cells(r, names, key) for r in mine]
                if key == "cold":
                    header, lines = (
                        [*header, ROTATED],
                        [[*line, rotated(r)] for line, r in zip(lines, mine, strict=True)],
                    )
                parts += ["", f"{op}, {title}:", "", *table(header, lines)]
    return parts


def bandwidth(summary: Summary, names: Sequence[str]) -> list[str]:
    """Points where the memory is the bound, with shares of the copy; all points where the boundary isn't known, without GB/s."""
    rows = [r for r in summary["rows"] if not r["launch_bound"] and r["weight"] == r["dtype"]]
    if not rows:
        return []
    if summary["boundary"] is None:
        title, said = (
            "All points",
            (
                "Where a launch is timed and where the memory is not known: that needs a few rows of at most 4096 and a copy of 256 MB or "
                "more. So no GB/s. "
            ),
        )
    else:
        title, said = "Bandwidth-bound points", ""
    parts = [
        "",
        f"## {title}",
        "",
        f"{said}Cold cache: inputs and outputs rotate over at least three times the L2 and at least three sets. The copy is the fastest of a "
        "clone, a copy_, a torch kernel and a Triton kernel over the same bytes, timed in turn with the providers; for the fused add it is "
        "of x and the residual as one tensor: as many bytes read and written as the op reads and writes. Warm µs are ours with "
        f"a warm cache. `{ROTATED}` is the footprint of all sets of inputs, which take turns, as outputs do. A point marked warm is too small to rotate: its µs are warm ones, its GB/s that of a call after a flush.",
    ]
    for flat in summary.get("flat", ()):
        parts += [
            "",
            f"Doubtful: {SHORT.get(flat['provider'], flat['provider'])}, {flat['op']}, d = {flat['d']}: {us(flat['us'])} µs at "
            f"{flat['m'][0]} rows and no more at {flat['m'][1]}. Something else than the memory was timed.",
        ]
    for op in ("rms_norm", "add_rms_norm"):
        mine = by_shape([r for r in rows if r["op"] == op])
        if mine:
            header = [
                "m x d",
                *(SHORT.get(n, n) for n in names),
                "best peer / ours",
                "MB",
                "copy",
                "GB/s",
                "of copy",
                "of spec",
                "warm µs",
                ROTATED,
            ]
            parts += ["", f"{op}:", "", *table(header, [[*_named(r, names), *_shares(r), rotated(r)] for r in mine])]
    return parts


def _named(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    shape, *rest = cells(row, names)
    warm = any(e.get("ranked_by") == "warm" for e in row["providers"].values())
    return [f"{shape} (warm)" if warm else shape, *rest]


def _shares(row: Mapping[str, Any]) -> list[str]:
    entry = row["providers"].get(OURS, {})
    copy = "–" if row["copy_us"] is None else f"{us(row['copy_us'])} ({row['copy_way']})"
    size = f"{row['bytes'] / 1e6:.1f}"
    warm = (
        "–" if "warm" not in entry else us(entry["warm"]["median"]) + (RESIDENT if entry.get("warm_above_peak") else "")
    )
    if entry.get("gb_s") is None or row["launch_bound"] is None:
        return [size, copy, "–", "–", "–", warm]
    resident = RESIDENT if entry.get("above_peak") else ""
    of_copy = "–" if entry.get("of_copy") is None else f"{entry['of_copy']:.3f}"
    of_spec = "–" if entry.get("of_spec") is None else f"{entry['of_spec']:.2f}"
    return [size, copy, f"{entry['gb_s']:.0f}{resident}", of_copy, of_spec, warm]


def mixed(summary: Summary, names: Sequence[str]) -> list[str]:
    """Points whose weight has another dtype."""
    rows = [r for r in summary["rows"] if r["weight"] != r["dtype"]]
    if not rows:
        return []
    header = ["m x d", *(SHORT.get(n, n) for n in names), "best peer / ours"]
    title = f"## {rows[0]['dtype']} x with a {rows[0]['weight']} weight"
    return ["", title, "", *table(header, [cells(r, names) for r in rows])]


def byte_ratios(summary: Summary) -> list[str]:
    """Predicted byte ratios, the asked ones and those of the baseline that was timed, beside measured ones."""
    lines = []
    for op, baseline, asked, moved, ours, what in BYTE_RATIOS:
        for row in summary["rows"]:
            pair = [row["providers"].get(n, {}).get("rank") for n in (baseline, OURS)]
            if row["op"] == op and row["bytes"] >= 256e6 and None not in pair and row["weight"] == row["dtype"]:
                predicted = [f"{theirs} to {ours} = {theirs / ours:.2f}" for theirs in (asked, moved)]
                lines.append([op, what, f"{row['m']} x {row['d']}", *predicted, f"{pair[0] / pair[1]:.2f}"])
    if not lines:
        return []
    said = (
        "Bytes per element of a 16-bit tensor. 14 to 4 was asked for: the plain formula in 16-bit temporaries (square, mean, scale, weight). "
        "No provider computes that: the eager provider computes in FP32, as the contract asks, in nine kernels that move 40, and its time is to be "
        "read beside 10.00. A measured ratio above that of the bytes says that the baseline also moves its bytes slower than ours does."
    )
    header = ["op", "baseline", "m x d", "asked byte ratio", "byte ratio of what was timed", "measured ratio of µs"]
    return ["", "## Predicted byte ratios and measured ratios", "", said, "", *table(header, lines)]


def host(summary: Summary) -> list[str]:
    """Host cost of an eager call."""
    rows = [
        [SHORT.get(n, n), group.removeprefix("headline "), f"{e['host_us']:.1f}"]
        for group, found in summary["per_peer"].items()
        if group in ("headline rms_norm", "headline add_rms_norm")
        for n, e in found.items()
        if e["host_us"] is not None
    ]
    if not rows:
        return []
    said = "µs of host work to queue one eager call at M <= 16, output allocation included; median over the points."
    return ["", "## Host cost", "", said, "", *table(["provider", "op", "host µs"], rows)]


def batch_one(summary: Summary, names: Sequence[str]) -> list[str]:
    """Kernels per call and idle gaps at M = 1."""
    rows = []
    for row in summary["rows"]:
        for name in names:
            entry = row["providers"].get(name, {})
            if row["m"] == 1 and entry.get("gap_us") is not None:
                kernels = (entry.get("nodes") or {}).get("kernel")
                rows.append(
                    [
                        f"{row['op']} 1 x {row['d']}", SHORT.get(name, name), "–" if kernels is None else f"{kernels:g}",
                        f"{entry['kernel_us']:.2f}", f"{entry['gap_us']:.2f}", f"{entry['warm']['median']:.2f}",
                    ]
                )  # fmt: skip
    if not rows:
        return []
    said = (
        "Kernels per call are nodes of the captured graph. Durations and idle gaps between kernels are the profiler's, whose tracing "
        "lengthens both. With dependent launch a kernel starts early and waits for the one before: its duration includes that wait, "
        "the spans overlap and the gap is negative. The last column is the untraced µs per call."
    )
    header = ["point", "provider", "kernels per call", "kernel µs", "idle gap µs", "µs per call"]
    return ["", "## Batch 1: kernels and gaps", "", said, "", *table(header, rows)]


def fit_table(summary: Summary) -> list[str]:
    """The fit per width."""
    found: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = {}
    for fit in summary["fits"]:
        found.setdefault((fit["op"], fit["d"]), {})[fit["provider"]] = fit
    names = [n for n in FITTED if any(n in mine for mine in found.values())]
    if not names:
        return []

    def cell(fit: Mapping[str, Any] | None) -> str:
        if fit is None:
            return "–"
        return f"{fit['t0_us']:.2f}, {fit['gb_s']:.0f}" + (RESIDENT if fit.get("above_peak") else "")

    rows = [
        [op, str(d), str(max(f["n"] for f in mine.values())), *(cell(mine.get(n)) for n in names)]
        for (op, d), mine in sorted(found.items(), key=lambda item: (item[0][0] != "rms_norm", item[0][1]))
    ]
    said = (
        "t0 in µs, BW in GB/s, over the counts of rows of a width of which the memory bounds at least one; launch-bound points by "
        "their warm time, so that BW is a slope and no bandwidth that a point reached."
    )
    header = ["op", "d", "counts", *(SHORT.get(n, n) for n in names)]
    return ["", "## Fit of t = t0 + bytes / BW per d", "", said, "", *table(header, rows)]


def orders(summary: Summary, names: Sequence[str]) -> list[str]:
    """Which order each provider computes, and its largest error."""
    rows = []
    for op in ("rms_norm", "add_rms_norm"):
        for name in names:
            mine = [
                r["providers"][name]
                for r in summary["rows"]
                if r["op"] == op and r["providers"].get(name, {}).get("order")
            ]
            if mine:
                orders = sorted({e["order"] for e in mine})
                fused = [e["fused_op_ran"] for e in mine if e["fused_op_ran"] is not None]
                proof = (
                    "" if not fused else f"aten::_fused_rms_norm ran at {sum(fused)} of {len(fused)} profiled points"
                )
                rows.append(
                    [op, SHORT.get(name, name), "; ".join(orders), f"{max(e['max_ulp'] for e in mine):.2f}", proof]
                )
    header = ["op", "provider", "order computed (found, not assumed)", "largest error, ulp", ""]
    return ["", "## Correctness against FP64", "", *table(header, rows)]
