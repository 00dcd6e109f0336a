"""The RMSNorm bench for people: a terminal table, markdown, a chart. Takes the summary's JSON, returns text or bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from robot_perf.errors import RobotPerfError
from robot_perf.render.grid import grid

__all__ = ["kernel_bench_chart", "kernel_bench_markdown", "kernel_bench_text"]

OURS, SERIAL = "robot-perf", "robot-perf, no dependent launch"
SHORT = {
    OURS: "ours",
    SERIAL: "ours, serial",
    "torch.compile": "compile",
    "torch.compile max-autotune": "compile max",
}
BYTE_RATIOS = (
    # op, baseline, bytes per element of the baseline and of ours, what the baseline's bytes are
    ("rms_norm", "eager", 40, 4, "the FP32 formula: nine kernels, six of them of full width, FP32 temporaries"),
    ("add_rms_norm", "F.rms_norm", 10, 8, "x + r, then F.rms_norm"),
)
Summary = Mapping[str, Any]


def kernel_bench_text(report: Mapping[str, Any], summary: Summary) -> str:
    """The verdicts and the headline table for a terminal."""
    names = _measured(summary)
    lines = [_machine(report), ""]
    lines += [f"{_mark(v['met'])} {v['what']}: {v['measured']}   (target {v['target']})" for v in summary["verdicts"]]
    for op in ("rms_norm", "add_rms_norm"):
        rows = [r for r in summary["rows"] if r["op"] == op and r["weight"] == r["dtype"]]
        if rows:
            header = ["m x d", *(SHORT.get(n, n) for n in names), "best peer / ours"]
            lines += ["", f"{op}, µs per call in a CUDA graph", grid(header, [_cells(r, names) for r in rows])]
    lines += _absent(report)
    return "\n".join(lines) + "\n"


def kernel_bench_markdown(report: Mapping[str, Any], summary: Summary, *, command: str, chart: str = "") -> str:
    """The whole report: conditions, verdicts, launch-bound and bandwidth-bound points apart, host costs, fits, absent peers."""
    names = _measured(summary)
    parts = [
        "# RMSNorm kernels",
        "",
        f"`{command}`",
        "",
        _machine(report),
        "",
        "At large sizes all good kernels tie at the memory; at batch 1 in eager mode the host's launch is what is timed; the gain "
        "of a fused kernel at batch 1 is realised inside a CUDA graph. Differences below 5 % are ties. µs per call, medians.",
        "",
        "## Targets",
        "",
        *_table(
            ["target", "asked", "measured", "met"],
            [[v["what"], v["target"], v["measured"], _mark(v["met"])] for v in summary["verdicts"]],
        ),
        "",
        *_means(summary),
    ]
    if chart:
        parts += ["", f"![µs per call over bytes]({chart})"]
    parts += _launch_bound(summary, names) + _bandwidth(summary, names) + _mixed(summary, names)
    parts += (
        _byte_ratios(summary)
        + _host(summary)
        + _batch_one(summary, names)
        + _fit_table(summary)
        + _orders(summary, names)
    )
    return "\n".join([*parts, *_absent(report)]) + "\n"


def _machine(report: Mapping[str, Any]) -> str:
    gpu, machine = report["gpu"], report.get("machine", {})
    clocks = [c for p in report["points"] for c in p.get("clocks", []) if c]
    sm = sorted({c["sm_mhz"] for c in clocks if c["sm_mhz"]})
    memory = sorted({c["memory_mhz"] for c in clocks if c["memory_mhz"]})
    throttle = sorted({t for c in clocks for t in c["throttle"] if t not in ("idle", "application clocks")})
    words = [
        f"{gpu['name']} (sm_{gpu['capability'].replace('.', '')}, {gpu['sm']} SM, L2 {gpu['l2_bytes'] / 2**20:.0f} MiB)",
        f"driver {machine['driver']}" if machine.get("driver") else "",
        f"torch {report['torch']}",
        f"power limit {machine['power_limit_w']:.0f} W" if machine.get("power_limit_w") else "",
        f"SM clock {sm[0]}–{sm[-1]} MHz" if sm else "clocks not readable",
        f"memory clock {'/'.join(map(str, memory))} MHz" if memory else "",
        f"throttled: {', '.join(throttle)}" if throttle else "not throttled" if clocks else "",
        f"{len(report['points'])} points, {report['rounds']} interleaved rounds of {report['replays']} replays",
        f"empty kernel {report['empty_kernel_us']:.2f} µs per graph node" if report.get("empty_kernel_us") else "",
        report.get("date", ""),
    ]
    return "; ".join(w for w in words if w) + "."


def _measured(summary: Summary) -> list[str]:
    return list(dict.fromkeys(n for r in summary["rows"] for n, e in r["providers"].items() if "rank" in e))


def _value(entry: Mapping[str, Any], key: str) -> float | None:
    value = entry.get(key)
    return value["median"] if isinstance(value, Mapping) else value


def _best(row: Mapping[str, Any], key: str) -> tuple[str, float] | None:
    peers = {n: _value(e, key) for n, e in row["providers"].items() if n not in (OURS, SERIAL)}
    known = {n: us for n, us in peers.items() if us is not None}
    mine = _value(row["providers"].get(OURS, {}), key)
    if not known or mine is None:
        return None
    name = min(known, key=lambda n: known[n])
    return name, known[name] / mine


def _cells(row: Mapping[str, Any], names: Sequence[str], key: str = "rank") -> list[str]:
    cells = [f"{row['m']} x {row['d']}"]
    for name in names:
        value = _value(row["providers"].get(name, {}), key)
        cells.append("–" if value is None else _us(value))
    best = _best(row, key)
    return [*cells, "–" if best is None else f"{best[1]:.2f} ({SHORT.get(best[0], best[0])})"]


def _us(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.1f}"


def _mark(met: bool | None) -> str:
    return "not measured" if met is None else "yes" if met else "NO"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(r) + " |" for r in rows),
    ]


def _means(summary: Summary) -> list[str]:
    rows = []
    for who, groups in summary["geometric_mean"].items():
        for name, mean in groups.items():
            if mean:
                below = "; ".join(mean["below_bar"][:6]) + (" …" if len(mean["below_bar"]) > 6 else "")
                rows.append(
                    [
                        SHORT.get(who, who), name, f"{mean['value']:.3f}", f"{mean['low']:.3f} to {mean['high']:.3f}", str(mean["n"]),
                        f"{mean['worst']:.3f} ({mean['worst_point']})", below or "none",
                    ]
                )  # fmt: skip
    peers = [
        [SHORT.get(n, n), group, f"{e['over_ours']:.2f}", f"{e['ahead_of_ours']} of {e['n']}"]
        for group, found in summary["per_peer"].items()
        for n, e in found.items()
        if n != OURS and group in ("headline", "wide")
    ]
    said = (
        "Fastest peer at each point over ours (above 1: ours is faster), geometric mean with its 95 % bootstrap interval. A point is "
        "ranked by its cold time where its inputs can rotate past the cache, else by its warm one; the last lines take the cold one "
        "everywhere. `serial` is ours with dependent launch off: what the kernels do after and before kernels of others."
    )
    return [
        said,
        "",
        *_table(["", "points", "mean", "interval", "n", "worst point", "below 0.95"], rows),
        "",
        "Each provider's time over ours:",
        "",
        *_table(["provider", "points", "geometric mean", "points where it is ahead"], peers),
    ]


def _launch_bound(summary: Summary, names: Sequence[str]) -> list[str]:
    boundary = summary["boundary"]
    rows = [r for r in summary["rows"] if r["launch_bound"] and r["weight"] == r["dtype"]]
    if not rows or boundary is None:
        return []
    said = (
        f"Below {boundary['bytes'] / 1e6:.1f} MB ({boundary['copy_gb_s']:.0f} GB/s x {boundary['t0_us']:.2f} µs) a launch is "
        f"timed, not the memory: no GB/s. An empty kernel takes {boundary['empty_kernel_us'] or float('nan'):.2f} µs per graph node; "
        "nothing is subtracted."
    )
    parts = ["", "## Launch-bound points", "", said]
    for op in ("rms_norm", "add_rms_norm"):
        mine = [r for r in rows if r["op"] == op]
        if mine:
            for title, key in (("warm cache", "warm"), ("cold cache", "cold")):
                header = ["m x d", *(SHORT.get(n, n) for n in names), "best peer / ours"]
                parts += ["", f"{op}, {title}:", "", *_table(header, [_cells(r, names, key) for r in mine])]
    return parts


def _bandwidth(summary: Summary, names: Sequence[str]) -> list[str]:
    rows = [r for r in summary["rows"] if not r["launch_bound"] and r["weight"] == r["dtype"]]
    if not rows:
        return []
    parts = [
        "",
        "## Bandwidth-bound points",
        "",
        "Cold cache: inputs and outputs rotate over at least three times the L2.",
    ]
    for op in ("rms_norm", "add_rms_norm"):
        mine = [r for r in rows if r["op"] == op]
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
            ]
            parts += ["", f"{op}:", "", *_table(header, [[*_cells(r, names), *_shares(r)] for r in mine])]
    return parts


def _shares(row: Mapping[str, Any]) -> list[str]:
    entry = row["providers"].get(OURS, {})
    copy = "–" if row["copy_us"] is None else f"{_us(row['copy_us'])} ({row['copy_way']})"
    if entry.get("gb_s") is None:
        return [f"{row['bytes'] / 1e6:.1f}", copy, "–", "–", "–"]
    resident = " (above the memory's peak: cache-resident)" if entry.get("above_peak") else ""
    of_copy = "–" if entry.get("of_copy") is None else f"{entry['of_copy']:.3f}"
    of_spec = "–" if entry.get("of_spec") is None else f"{entry['of_spec']:.2f}"
    return [f"{row['bytes'] / 1e6:.1f}", copy, f"{entry['gb_s']:.0f}{resident}", of_copy, of_spec]


def _mixed(summary: Summary, names: Sequence[str]) -> list[str]:
    rows = [r for r in summary["rows"] if r["weight"] != r["dtype"]]
    if not rows:
        return []
    header = ["m x d", *(SHORT.get(n, n) for n in names), "best peer / ours"]
    title = f"## {rows[0]['dtype']} x with a {rows[0]['weight']} weight"
    return ["", title, "", *_table(header, [_cells(r, names) for r in rows])]


def _byte_ratios(summary: Summary) -> list[str]:
    lines = []
    for op, baseline, theirs, ours, what in BYTE_RATIOS:
        for row in summary["rows"]:
            pair = [row["providers"].get(n, {}).get("rank") for n in (baseline, OURS)]
            if row["op"] == op and row["bytes"] >= 256e6 and None not in pair and row["weight"] == row["dtype"]:
                lines.append(
                    [
                        op,
                        what,
                        f"{row['m']} x {row['d']}",
                        f"{theirs} to {ours} = {theirs / ours:.2f}",
                        f"{pair[0] / pair[1]:.2f}",
                    ]
                )
    if not lines:
        return []
    said = (
        "Bytes per element of a 16-bit tensor. The same formula in 16-bit temporaries would move 14 to our 4 (3.50): square, mean, "
        "scale, weight. The eager provider computes in FP32, as the contract asks, and moves 40."
    )
    header = ["op", "baseline", "m x d", "predicted byte ratio", "measured ratio of µs"]
    return ["", "## Predicted byte ratios and measured ratios", "", said, "", *_table(header, lines)]


def _host(summary: Summary) -> list[str]:
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
    return ["", "## Host cost", "", said, "", *_table(["provider", "op", "host µs"], rows)]


def _batch_one(summary: Summary, names: Sequence[str]) -> list[str]:
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
    return ["", "## Batch 1: kernels and gaps", "", said, "", *_table(header, rows)]


def _fit_table(summary: Summary) -> list[str]:
    rows = [
        [
            f["op"],
            str(f["d"]),
            SHORT.get(f["provider"], f["provider"]),
            f"{f['t0_us']:.2f}",
            f"{f['gb_s']:.0f}",
            str(f["n"]),
        ]
        for f in summary["fits"]
        if f["provider"] in (OURS, "F.rms_norm", "torch.compile", "quack", "fla", "liger")
    ]
    if not rows:
        return []
    return [
        "",
        "## Fit of t = t0 + bytes / BW per d",
        "",
        *_table(["op", "d", "provider", "t0 µs", "BW GB/s", "points"], rows),
    ]


def _orders(summary: Summary, names: Sequence[str]) -> list[str]:
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
    return ["", "## Correctness against FP64", "", *_table(header, rows)]


def _absent(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f"- {n}: not available: {p['unavailable']}" for n, p in report["providers"].items() if p.get("unavailable")
    ]
    refused: dict[tuple[str, str], list[str]] = {}
    for point in report["points"]:
        for name, found in point["providers"].items():
            why = found.get("error") or found.get("failed")
            if why:
                refused.setdefault((name, why), []).append(f"{point['op']} {point['m']} x {point['d']}")
    lines += [
        f"- {name}: {why} ({len(where)} points: {', '.join(where[:4])}{' …' if len(where) > 4 else ''})"
        for (name, why), where in refused.items()
    ]
    return ["", "## Not measured", "", *lines] if lines else []


def kernel_bench_chart(report: Mapping[str, Any], summary: Summary) -> bytes:
    """PNG: µs per call over bytes, one panel per op, with the copy's line. Raises RobotPerfError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RobotPerfError(
            f"a drawing needs {error.name}, which is not installed", do="Install it: pip install 'robot_perf[report]'"
        ) from None
    figure = Figure(figsize=(13, 5.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(1, 2, sharey=True)
    for axes, op in zip(panels, ("rms_norm", "add_rms_norm"), strict=True):
        rows = sorted(
            (r for r in summary["rows"] if r["op"] == op and r["weight"] == r["dtype"]), key=lambda r: r["bytes"]
        )
        for name in _measured(summary):
            points = [
                (r["bytes"] / 1e6, r["providers"][name]["rank"]) for r in rows if "rank" in r["providers"].get(name, {})
            ]
            if points:
                size, weight = (26, 3) if name == OURS else (10, 2)
                axes.scatter(*zip(*points, strict=True), s=size, label=SHORT.get(name, name), zorder=weight, alpha=0.8)
        copied = [(r["bytes"] / 1e6, r["copy_us"]) for r in rows if r["copy_us"] and not r["launch_bound"]]
        if copied:
            axes.plot(*zip(*copied, strict=True), color="0.4", linewidth=1, label="copy of the same bytes")
        axes.set(xscale="log", yscale="log", xlabel="MB that must move", title=op)
        axes.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel("µs per call in a CUDA graph")
    panels[0].legend(fontsize="small")
    figure.suptitle(f"{report['gpu']['name']}, BF16, {report.get('date', '')}")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "robot-perf"})
    return buffer.getvalue()
