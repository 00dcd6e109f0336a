"""Benchmarks of the shipped kernels: measure or read a report, summarise it, render it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError, unknown

__all__ = ["RmsNormRequest", "bench_rmsnorm", "chart", "document", "markdown", "read_report", "text"]


@dataclass(frozen=True, slots=True)
class RmsNormRequest:
    """What to bench. `sweep` headline | wide | all; providers empty = every one that is installed; one that is named is run at
    every point, also of the wide sweep.
    """

    sweep: str = "headline"
    providers: tuple[str, ...] = ()
    rounds: int = 3
    replays: int = 5
    ahead: int = 0
    budget_s: float | None = None
    resume: Path | None = None  # a report, or the partial one of a bench that was stopped: its points are kept


def bench_rmsnorm(
    request: RmsNormRequest, say: Callable[[str], None], keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """The raw report of a bench on this machine's GPU. Raises UsageError for an unknown sweep or provider."""
    from robot_perf.measure.kernel_bench.conductor import BenchRequest, run_bench
    from robot_perf.measure.kernel_bench.points import HEADLINE, MIXED, WIDE, left_out
    from robot_perf.measure.kernel_bench.providers import OURS, PROVIDERS

    headline, wide = (*HEADLINE, *MIXED), tuple(_shuffled(WIDE))
    sweeps = {"headline": (headline,), "wide": (wide,), "all": (headline, wide)}
    if request.sweep not in sweeps:
        raise unknown("--sweep", request.sweep, sweeps)
    for name in request.providers:
        if name not in PROVIDERS:
            raise unknown("--provider", name, PROVIDERS)
    names = request.providers or tuple(PROVIDERS)
    if OURS not in names:
        names = (OURS, *names)
    report = run_bench(
        BenchRequest(
            parts=sweeps[request.sweep],
            providers=names,
            rounds=request.rounds,
            replays=request.replays,
            ahead=request.ahead,
            budget_s=request.budget_s,
            profiled=frozenset(HEADLINE),
            left_out={name: rule for name, rule in left_out().items() if name not in request.providers},
            resumed=None if request.resume is None else read_report(request.resume),
        ),
        say,
        keep,
    )
    return {**report, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}


def _shuffled(points: tuple[Any, ...]) -> list[Any]:
    """A fixed order that a budget may cut anywhere without leaving out one end of the grid."""
    import random

    order = list(points)
    random.Random(0).shuffle(order)
    return order


def read_report(path: Path) -> dict[str, Any]:
    """A report that an earlier bench wrote. Raises UsageError where the file isn't one, or lacks what a summary needs."""
    from robot_perf.measure.kernel_bench.report import wrong_in

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} can't be read as a bench report", detail=str(error)) from error
    report = found.get("report", found) if isinstance(found, dict) else None
    if not isinstance(report, dict) or report.get("schema") != "robot-perf/rmsnorm-1":
        raise UsageError(f"{path} is not an RMSNorm bench report", why="Its schema should be robot-perf/rmsnorm-1.")
    wrong = wrong_in(report)
    if wrong:
        do = "Give the JSON as `robot-perf kernels bench rmsnorm -o NAME.json` wrote it."
        raise UsageError(f"{path} is not a whole RMSNorm bench report", why=f"{wrong}.", do=do)
    return report


def document(report: dict[str, Any], spec_gb_s: float | None = None) -> dict[str, Any]:
    """{"report": raw samples, "summary": …}: the JSON that scripts read. `spec_gb_s` overrides the device table."""
    from robot_perf.measure.kernel_bench.points import HEADLINE
    from robot_perf.measure.kernel_bench.summary import summarise

    spec = spec_gb_s if spec_gb_s is not None else _spec_gb_s(report["gpu"])
    summary = summarise(report, [(p.op, p.m, p.d) for p in HEADLINE], spec)
    for row in summary["rows"]:
        for entry in row["providers"].values():
            entry.pop("samples", None)
    return {"report": report, "summary": summary, "spec_gb_s": spec}


def _spec_gb_s(gpu: dict[str, Any]) -> float | None:
    """The memory bandwidth that the device table gives this GPU; None where the table doesn't know it."""
    from robot_perf.devices.table import matches

    found = matches(gpu["name"], gpu.get("memory_bytes"))
    bandwidth = found[0].bandwidth_bytes_s if len(found) == 1 else None
    return None if bandwidth is None else bandwidth / 1e9


def text(found: dict[str, Any]) -> str:
    """The verdicts and tables for a terminal."""
    from robot_perf.render.kernel_bench.text import kernel_bench_text

    return kernel_bench_text(found["report"], found["summary"])


def markdown(found: dict[str, Any], command: str, chart_name: str = "") -> str:
    """The report as markdown."""
    from robot_perf.render.kernel_bench.text import kernel_bench_markdown

    return kernel_bench_markdown(found["report"], found["summary"], command=command, chart=chart_name)


def chart(found: dict[str, Any]) -> bytes:
    """The chart as PNG."""
    from robot_perf.render.kernel_bench.chart import kernel_bench_chart

    return kernel_bench_chart(found["report"], found["summary"])
