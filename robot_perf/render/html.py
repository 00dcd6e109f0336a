"""A Run's report as one HTML page that opens offline: no network, nothing but this file.

Every name and every piece of metadata is hostile until escaped: jinja2 escapes all of it, figures hold numbers and our own
words alone, and the page's own policy forbids it to load anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robot_perf import __version__
from robot_perf.errors import RobotPerfError, install_line
from robot_perf.render.parts.glossary import GLOSSARY
from robot_perf.render.parts.sheet import PERCENTILES, WORST_HEAD, sheet_of
from robot_perf.run.model import Run

__all__ = ["report_html"]


def report_html(runs: Sequence[tuple[str, Run]]) -> str:
    """One page of `(file name, run)` pairs. Raises RobotPerfError with the install line if the extra is absent."""
    try:
        import jinja2
        from plotly.offline import get_plotlyjs

        from robot_perf.render.parts.figures import figures_of
    except ImportError as error:
        raise RobotPerfError(
            f"an HTML report needs {error.name}, which is not installed", do=f"Install it: {install_line('report')}"
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [
        {
            "sheet": sheet_of(run, file),
            "figures": [(title, words, _json(figure)) for title, words, figure in figures_of(run)],
        }
        for file, run in runs
    ]
    return environment.get_template("report.html").render(
        sections=sections,
        percentiles=PERCENTILES,
        worst_head=WORST_HEAD,
        glossary=GLOSSARY,
        version=__version__,
        plotly=get_plotlyjs() if any(s["figures"] for s in sections) else "",
    )


_LAYOUT = {
    "template": "none",
    "height": 360,
    "margin": {"l": 70, "r": 20, "t": 34, "b": 52},
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "legend": {"orientation": "h", "y": 1.12, "x": 0},
    "hovermode": "closest",
}


def _json(figure: Any) -> str:
    """The figure for a script element: `<` can't end it early."""
    figure.update_layout(_LAYOUT)
    text: str = figure.to_json()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
