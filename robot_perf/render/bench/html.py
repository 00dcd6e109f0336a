"""A bench report as one HTML page that opens offline: tables, and the pictures inline as SVG. It needs no JavaScript."""

from __future__ import annotations

import re
from pathlib import Path

from robot_perf.errors import RobotPerfError, install_line
from robot_perf.render.bench.picture import bench_picture
from robot_perf.render.bench.tables import head_lines, sections
from robot_perf.run.bench_report import BenchReport

__all__ = ["bench_html"]

_PROLOGUE = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)


def bench_html(report: BenchReport) -> str:
    """The page. Every name is escaped by jinja2; the SVG is matplotlib's, which escapes its texts."""
    try:
        import jinja2
    except ImportError as error:
        raise RobotPerfError(
            f"an HTML report needs {error.name}, which is not installed",
            do=f"Install it: {install_line('report')}",
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = [{"section": section, "picture": _svg(report, section.policy)} for section in sections(report)]
    return environment.get_template("bench.html.j2").render(
        report=report, head=head_lines(report), parts=parts, command="robot-perf " + " ".join(report.argv)
    )


def _svg(report: BenchReport, policy: str) -> str:
    picture = bench_picture(report, policy, "svg")
    if picture is None:
        return ""
    return _PROLOGUE.sub("", picture.decode("utf-8"), count=1)
