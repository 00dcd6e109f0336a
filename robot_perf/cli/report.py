"""`robot-perf report RUN…`: saved Runs as text, HTML, markdown, JUnit XML or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robot_perf.cli.options import Force, Json, check_output, emit_json, write_output
from robot_perf.errors import RobotPerfError, UsageError

if TYPE_CHECKING:
    from robot_perf.run.model import Run

Runs = list[tuple[str, "Run"]]


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run files.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Report file: .html, .md, .xml (JUnit), .json or .txt; '-' for stdout.",
            show_default=False,
        ),
    ] = None,
    png: Annotated[bool, typer.Option("--png", help="With a .md file: its figures beside it as PNG.")] = False,
    json: Json = False,
    force: Force = False,
) -> None:
    """Without -o the report is printed. Exit code 0 whatever the verdict says: `deadline` is the command that judges."""
    from robot_perf.render.parts.checked import check_conditions
    from robot_perf.run.parquet import load

    if json and output is not None:
        raise UsageError("--json and -o exclude each other", why="--json prints to stdout.", do="Use -o FILE.json.")
    if output is not None:
        _check(output, png=png, force=force)
    elif png:
        raise UsageError("--png needs -o FILE.md", why="The PNG lies beside the markdown file that shows it.")
    loaded = []
    for path in runs:
        run = load(path)
        with _naming(path):
            check_conditions(run)
        loaded.append((str(path), run))
    if json:
        emit_json(_document(loaded))
    elif output is None or str(output) == "-":
        _print(loaded)
    else:
        images = _draw(loaded, output, force=force) if png else []
        write_output(output, _FORMATS[output.suffix.lower()](loaded, images), force=force)
        typer.echo(f"saved      {output}")


def _check(output: Path, *, png: bool, force: bool) -> None:
    """Refuses what can't be written before the Runs are read."""
    if str(output) == "-":
        return
    if output.suffix.lower() not in _FORMATS:
        raise UsageError(
            f"{output}: {output.suffix or 'no suffix'} is not a report format",
            why=f"Known: {', '.join(_FORMATS)}.",
            do="Name a file such as report.html.",
        )
    if png and output.suffix.lower() != ".md":
        raise UsageError("--png needs -o FILE.md", why="The other formats draw their own figures, or none.")
    check_output(output, force=force)


@contextmanager
def _naming(path: Path | str) -> Iterator[None]:
    """An error about what is in a file says which file."""
    try:
        yield
    except RobotPerfError as error:
        error.what = f"{path}: {error.what}"
        raise


def _print(runs: Runs) -> None:
    from robot_perf.analyze.summary import summarize
    from robot_perf.analyze.verdict import judge
    from robot_perf.cli.show import report_width, show
    from robot_perf.render.text import deadline_text

    width = report_width()
    for i, (path, run) in enumerate(runs):
        if i:
            typer.echo("")
        with _naming(path):
            verdict = judge(run) if run.loop.period_ns else None
            text = deadline_text(run, summarize(run), verdict, width=width, saved=path)
        show(text)


def _document(runs: Runs) -> Any:
    """The document of one Run; of several, one document that holds them in the order asked for."""
    from robot_perf.analyze.document import deadline_document
    from robot_perf.run.model import SCHEMA

    documents = []
    for path, run in runs:
        with _naming(path):
            documents.append(deadline_document(run) | {"run": path})
    return documents[0] if len(documents) == 1 else {"schema": SCHEMA, "runs": documents}


def _draw(runs: Runs, output: Path, *, force: bool) -> list[str]:
    """Writes the drawings beside the report and returns their names for its links."""
    from robot_perf.render.png import report_png

    names = []
    for i, (_, run) in enumerate(runs):
        path = output.with_name(f"{output.stem}{f'-{i + 1}' if len(runs) > 1 else ''}.png")
        drawing = report_png(run)
        if drawing is not None:
            write_output(path, drawing, force=force)
        names.append(path.name.replace(" ", "%20") if drawing is not None else "")
    return names


def _html(runs: Runs, _images: list[str]) -> str:
    from robot_perf.render.html import report_html

    return report_html(runs)


def _markdown(runs: Runs, images: list[str]) -> str:
    from robot_perf.render.markdown import report_markdown

    return report_markdown(runs, images=images)


def _junit(runs: Runs, _images: list[str]) -> str:
    from robot_perf.render.ci.junit import junit_xml

    return junit_xml(runs)


def _json(runs: Runs, _images: list[str]) -> str:
    import json

    return json.dumps(_document(runs), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _text(runs: Runs, _images: list[str]) -> str:
    from robot_perf.render.text import deadline_report

    return "\n\n".join(deadline_report(run, saved=path) for path, run in runs) + "\n"


_FORMATS: dict[str, Callable[[Runs, list[str]], str]] = {
    ".html": _html,
    ".md": _markdown,
    ".xml": _junit,
    ".json": _json,
    ".txt": _text,
}
