"""The chart of the RMSNorm bench: µs per call over the bytes that must move. matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from robot_perf.errors import RobotPerfError, install_line
from robot_perf.render.kernel_bench.cells import OURS, SHORT, Summary, measured

__all__ = ["kernel_bench_chart"]


def kernel_bench_chart(report: Mapping[str, Any], summary: Summary) -> bytes:
    """PNG: µs per call over bytes, one panel per op, with the copy's line. Raises RobotPerfError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RobotPerfError(
            f"a drawing needs {error.name}, which is not installed", do=f"Install it: {install_line('report')}"
        ) from None
    figure = Figure(figsize=(13, 5.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(1, 2, sharey=True)
    for axes, op in zip(panels, ("rms_norm", "add_rms_norm"), strict=True):
        rows = sorted(
            (r for r in summary["rows"] if r["op"] == op and r["weight"] == r["dtype"]), key=lambda r: r["bytes"]
        )
        for name in measured(summary):
            points = [
                (r["bytes"] / 1e6, r["providers"][name]["rank"]) for r in rows if "rank" in r["providers"].get(name, {})
            ]
            if points:
                # ours as a ring: a dot of that size would hide the peers that it ties with
                look: Any = (
                    {"s": 60, "facecolors": "none", "edgecolors": "black", "linewidths": 1.2}
                    if name == OURS
                    else {"s": 10}
                )
                axes.scatter(*zip(*points, strict=True), label=SHORT.get(name, name), zorder=3, alpha=0.8, **look)
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
