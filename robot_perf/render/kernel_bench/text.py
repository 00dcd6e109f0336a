"""The RMSNorm bench for people: a terminal table and markdown. Takes the report and its summary as JSON, returns text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_perf.render.grid import grid
from robot_perf.render.kernel_bench import sections, spread
from robot_perf.render.kernel_bench.cells import OURS, SERIAL, SHORT, Summary, by_shape, cells, mark, measured, table

__all__ = ["kernel_bench_markdown", "kernel_bench_text"]


def kernel_bench_text(report: Mapping[str, Any], summary: Summary) -> str:
    """The verdicts and the headline table for a terminal."""
    names = measured(summary)
    lines = [_machine(report), ""]
    lines += [f"{mark(v['met'])} {v['what']}: {v['measured']}   (target {v['target']})" for v in summary["verdicts"]]
    for op in ("rms_norm", "add_rms_norm"):
        rows = [r for r in summary["rows"] if r["op"] == op and r["weight"] == r["dtype"]]
        if rows:
            header = ["m x d", *(SHORT.get(n, n) for n in names), "best peer / ours"]
            lines += ["", f"{op}, µs per call in a CUDA graph", grid(header, [cells(r, names) for r in by_shape(rows)])]
    lines += _absent(report, summary)
    return "\n".join(lines) + "\n"


def kernel_bench_markdown(report: Mapping[str, Any], summary: Summary, *, command: str, chart: str = "") -> str:
    """The whole report: conditions, verdicts, launch-bound and bandwidth-bound points apart, host costs, fits, absent peers."""
    names = measured(summary)
    parts = [
        "# RMSNorm kernels",
        "",
        f"`{command}`",
        "",
        _machine(report),
        "",
        _versions(report),
        "",
        "At large sizes all good kernels tie at the memory; at batch 1 in eager mode the host's launch is what is timed; the gain "
        "of a fused kernel at batch 1 is realised inside a CUDA graph. Differences below 5 % are ties. µs per call, medians.",
        "",
        "## Targets",
        "",
        *table(
            ["target", "asked", "measured", "met"],
            [[v["what"], v["target"], v["measured"], mark(v["met"])] for v in summary["verdicts"]],
        ),
        "",
        *_means(summary),
    ]
    if chart:
        parts += ["", f"![µs per call over bytes]({chart})"]
    parts += sections.launch_bound(summary, names) + sections.bandwidth(summary, names) + sections.mixed(summary, names)
    parts += (
        sections.byte_ratios(summary)
        + sections.host(summary)
        + sections.batch_one(summary, names)
        + spread.spread(summary, names)
        + spread.compiling(report, summary, names)
        + sections.fit_table(summary)
        + sections.orders(summary, names)
    )
    return "\n".join([*parts, *_absent(report, summary)]) + "\n"


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
        f"triton {report['triton']}" if report.get("triton") else "",
        f"power limit {machine['power_limit_w']:.0f} W" if machine.get("power_limit_w") else "",
        f"SM clock {sm[0]}–{sm[-1]} MHz" if sm else "clocks not readable",
        f"memory clock {'/'.join(map(str, memory))} MHz" if memory else "",
        f"throttled: {', '.join(throttle)}" if throttle else "not throttled" if clocks else "",
        f"{len(report['points'])} points, {report['rounds']} interleaved rounds of {report['replays']} replays",
        f"empty kernel {report['empty_kernel_us']:.2f} µs per graph node" if report.get("empty_kernel_us") else "",
        report.get("date", ""),
    ]
    return "; ".join(w for w in words if w) + "."


def _versions(report: Mapping[str, Any]) -> str:
    """What was measured, and of which release."""
    others = {n: p.get("version") for n, p in report["providers"].items() if n not in (OURS, SERIAL)}
    said = [f"{n} {version}" for n, version in others.items() if version and not report["torch"].startswith(version)]
    ours = f"kernels {report['kernels']} (a digest of their source)" if report.get("kernels") else ""
    return "; ".join(w for w in (ours, ", ".join(said)) if w)


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
        [
            SHORT.get(n, n),
            group,
            f"{e['over_ours']:.2f}",
            f"{e['ahead_of_ours']} of {e['n']}",
            str(e["ahead_beyond_tie"]),
        ]
        for group, found in summary["per_peer"].items()
        for n, e in found.items()
        if n != OURS and group in ("headline", "wide")
    ]
    said = (
        "Fastest peer at each point over ours (above 1: ours is faster), geometric mean with its 95 % bootstrap interval over turns and "
        "replays: it is about these points, not about others. It covers what timing the same calls again would change in this one run, not "
        "how a peer's autotuner, or its compiler, would choose in another run. A point is ranked by its cold time where its inputs can rotate "
        "past the cache, else by its warm one, and a mean of both mixes two questions: ranked warm, a launch is most of the time; "
        "ranked cold, the memory is. The lines `cold cache` take the cold one everywhere. `serial` is ours with dependent launch off: what the kernels do after and before kernels of others."
    )
    return [
        said,
        "",
        *table(["", "points", "mean", "interval", "n", "worst point", "below 0.95"], rows),
        "",
        *_flattered(summary),
        "Each provider's time over ours:",
        "",
        *table(["provider", "points", "geometric mean", "points where it is ahead", "by more than 5 %"], peers),
    ]


def _flattered(summary: Summary) -> list[str]:
    """What leaving peers out of the wide sweep does to a mean, seen where they ran."""
    means = summary["geometric_mean"].get(OURS, {})
    whole, fewer = means.get("headline"), means.get("headline, the wide sweep's peers alone")
    if not whole or not fewer:
        return []
    who = "; ".join(f"{SHORT.get(n, n)} at {e['led']} of {e['of']}" for n, e in summary["left_out"].items())
    return [
        "Peers that the wide sweep leaves out are the fastest one at so many headline points: "
        f"{who}. Without them the headline's mean is {fewer['value']:.3f} instead of {whole['value']:.3f}: so much does leaving "
        "them out flatter ours there. The wide mean is one without them.",
        "",
    ]


def _absent(report: Mapping[str, Any], summary: Summary) -> list[str]:
    lines = [
        f"- {n}: not available: {p['unavailable']}" for n, p in report["providers"].items() if p.get("unavailable")
    ]
    lines += [
        f"- {n}: its process died; at the next point it had a new one, {p['restarts']} times in all"
        for n, p in report["providers"].items()
        if p.get("restarts")
    ]
    refused: dict[tuple[str, str], list[str]] = {}
    for point in report["points"]:
        for name, found in point["providers"].items():
            why = found.get("error") or found.get("failed") or _unprofiled(found)
            if why:
                refused.setdefault((name, why), []).append(f"{point['op']} {point['m']} x {point['d']}")
    lines += [
        f"- {name}: {why} ({len(where)} points: {', '.join(where[:4])}{' …' if len(where) > 4 else ''})"
        for (name, why), where in refused.items()
    ]
    lines += [
        f"- {SHORT.get(name, name)}: left out by a rule fixed beforehand, {rule['points']} points of the wide sweep: {_why(rule)}"
        + _led(summary, name)
        for name, rule in report.get("left_out", {}).items()
        if any(name not in p["providers"] and (name != "copy" or "way" not in p["copy"]) for p in report["points"])
    ]
    late = report.get("not_reached", [])
    if late:
        within = "within the budget" if report.get("stopped") else "before the bench was ended"
        lines.append(
            f"- not reached {within}: {len(late)} points ({', '.join(late[:8])}{' …' if len(late) > 8 else ''})"
        )
    return ["", "## Not measured", "", *lines] if lines else []


def _unprofiled(found: Mapping[str, Any]) -> str:
    why = found.get("profile_error")
    return f"timed, but the profiler failed: {why}" if why else ""


def _why(rule: Mapping[str, Any]) -> str:
    """The rule's reason; reports of before also say how often a peer led in some report before them, which was no count of their own."""
    why, _, _ = rule["why"].partition("; led at ")
    return str(why)


def _led(summary: Summary, name: str) -> str:
    found = summary["left_out"].get(name)
    return f"; here the fastest peer at {found['led']} of {found['of']} headline points" if found else ""
