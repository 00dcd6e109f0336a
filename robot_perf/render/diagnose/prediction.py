"""The roofline of a prediction: the predicted and the measured point on one chart."""

from __future__ import annotations

from collections.abc import Sequence

from robot_perf.analyze.prediction.report import Comparison
from robot_perf.errors import BackendUnavailableError, install_line


def prediction_chart(comparisons: Sequence[Comparison]) -> str:
    """A figure as an SVG element for an HTML page. Raises BackendUnavailableError without matplotlib."""
    try:
        from io import StringIO

        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendUnavailableError(
            "the roofline chart needs matplotlib", do=f"Install it: {install_line('report')}"
        ) from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, c in enumerate(comparisons):
        ceiling, expected, colour = c.prediction.ceiling, c.prediction.expectation, f"C{number % 10}"
        ridge = c.prediction.ridge
        grid = [min(0.05, (c.prediction.intensity or 0.05) / 4), ridge, max(4 * ridge, 4 * c.prediction.intensity)]
        axes.loglog(
            grid,
            [min(i * ceiling.bandwidth_bytes_s, ceiling.peak_flop_s) / 1e12 for i in grid],
            color="#888888",
            linewidth=1,
        )
        if not expected.flop:
            continue
        name = expected.name[:40] or f"kernel {number}"
        axes.plot(
            c.prediction.intensity,
            expected.flop / c.prediction.predicted_ns / 1e3,
            "o",
            markerfacecolor="none",
            color=colour,
            label=f"{name} predicted".replace("$", ""),
        )
        moved = c.measured_bytes or expected.bytes
        axes.plot(
            expected.flop / moved,
            expected.flop / c.measured_ns / 1e3,
            "o",
            color=colour,
            label=f"{name} measured".replace("$", ""),
        )
    axes.set_xlabel("FLOP per DRAM byte")
    axes.set_ylabel("TFLOP/s")
    axes.legend(fontsize=8)
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
