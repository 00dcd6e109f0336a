"""`robot-perf bench POLICY…`: backends compared at the control rates and back to back; `--merge`: one table over devices."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from robot_perf.cli.options import Force, Json, emit_json, in_range, write_output
from robot_perf.cli.parsing import parse_interpreters, parse_pairs, parse_shapes, parse_values
from robot_perf.errors import ExitCode, UsageError
from robot_perf.units import parse_duration_ns

if TYPE_CHECKING:
    from robot_perf.run.bench_report import BenchReport

BENCH = "The bench"
POLICY = "The policies"
OUTPUT = "Output"


# fmt: off
# One option, one line: the table of options reads as a table.
def command(
    policy: Annotated[list[str] | None, typer.Argument(help="One or more policies: built-ins, files, module:callable, names in configs/policies.", show_default=False)] = None,
    backends: Annotated[str | None, typer.Option(help="Backends with commas, options in brackets: eager,onnxruntime[threads=2].", rich_help_panel=BENCH, show_default="every backend")] = None,
    rates: Annotated[str, typer.Option(help="Control rates in Hz, and tight for back to back.", rich_help_panel=BENCH)] = "50,200,tight",
    steps: Annotated[int, typer.Option(help="Steps of each point, over all its blocks; back to back as many as fill 0.25 s a block, if more.", rich_help_panel=BENCH)] = 500,
    blocks: Annotated[int, typer.Option(help="Interleaved blocks of each point; with one there is no A/A noise floor, and so no answers.", rich_help_panel=BENCH)] = 2,
    longest: Annotated[str | None, typer.Option(help="Longest a point may take, such as 5s: fewer steps at low rates, said so.", rich_help_panel=BENCH, show_default=False)] = None,
    keep_warm: Annotated[str | None, typer.Option(help="all, or cures with commas: spin:US, tiny-kernel:US, touch:US, rehearse:US, rehearse-loop:US, spin-sync, +spin.", rich_help_panel=BENCH, show_default="none")] = None,
    device: Annotated[str | None, typer.Option(help="Where the policies run: cpu or cuda:N.", rich_help_panel=BENCH, show_default="cuda:0 where there is one")] = None,
    python: Annotated[list[str] | None, typer.Option(help="Interpreter of a backend, BACKEND=PATH; repeatable.", rich_help_panel=BENCH, show_default=False)] = None,
    together: Annotated[bool, typer.Option("--load-together", help="Load all workers at the same time: sooner begun, cold starts not comparable.", rich_help_panel=BENCH)] = False,
    shape: Annotated[list[str] | None, typer.Option(help="Size of an input or open axis, NAME=1,12; repeatable.", rich_help_panel=POLICY, show_default=False)] = None,
    state: Annotated[list[str] | None, typer.Option(help="Carry an output to an input, IN=OUT; repeatable.", rich_help_panel=POLICY, show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="Which output is the action, by position or name.", rich_help_panel=POLICY, show_default="the only output")] = None,
    preset: Annotated[str | None, typer.Option(help="Size of a built-in policy.", rich_help_panel=POLICY, show_default=False)] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of a factory or built-in, NAME=VALUE; repeatable.", rich_help_panel=POLICY, show_default=False)] = None,
    observations: Annotated[Path | None, typer.Option(help="Recorded inputs (.npz).", rich_help_panel=POLICY, show_default="seeded random")] = None,
    cast: Annotated[bool, typer.Option(help="Convert a recording to the policy's dtypes.", rich_help_panel=POLICY)] = False,
    ort_library: Annotated[Path | None, typer.Option(help="Custom operators for ONNX Runtime (.so).", rich_help_panel=POLICY, show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of observations and built-in weights.", rich_help_panel=POLICY)] = 0,
    hang_s: Annotated[float, typer.Option(help="A step that takes longer is taken for hung, seconds; at least 20 periods are waited.", rich_help_panel=BENCH)] = 20.0,
    load_s: Annotated[float, typer.Option(help="A policy that takes longer to load is given up, seconds.", rich_help_panel=BENCH)] = 600.0,
    merge: Annotated[Path | None, typer.Option(help="Only make one table of the bench.json files under this folder.", rich_help_panel=OUTPUT, show_default=False)] = None,
    redraw: Annotated[Path | None, typer.Option(help="Only draw the folder's bench.json again: text, markdown, pictures, page, answers, advice.", rich_help_panel=OUTPUT, show_default=False)] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder of the report; with --merge a .md or .json file.", rich_help_panel=OUTPUT, show_default="reports/<device>")] = None,
    json: Json = False,
    force: Force = False,
) -> None:
    # fmt: on
    """Exit codes: 0 measured, 2 usage or unusable policy, 4 no point gave a valid measurement, or interrupted."""
    for name, folder in (("--merge", merge), ("--redraw", redraw)):
        if folder is not None and (policy or (merge is not None and redraw is not None)):
            raise UsageError(f"{name} takes a folder and no POLICY", do=f"robot-perf bench {name} {folder}")
    if redraw is not None:
        from robot_perf.tasks.bench.run import redrawn

        _finish(redrawn(redraw), redraw, as_json=json)
    if merge is not None:
        _merge(merge, output, as_json=json, force=force)
        return
    from robot_perf.backends import BACKENDS
    from robot_perf.specs.place import parse_device
    from robot_perf.tasks.bench.machine import default_device
    from robot_perf.tasks.bench.request import BenchRequest, parse_keep_warms, parse_rates, parse_targets
    from robot_perf.tasks.bench.run import bench, output_folder, prepare

    request = BenchRequest(
        policies=tuple(policy or ()),
        backends=parse_targets(backends, list(BACKENDS)),
        rates=parse_rates(rates),
        steps=steps,
        blocks=blocks,
        longest_ns=None if longest is None else parse_duration_ns(longest),
        keep_warm=parse_keep_warms(keep_warm),
        device=default_device() if device is None else parse_device(device),
        python=parse_interpreters(python, list(BACKENDS)),
        together=together,
        shapes=parse_shapes(shape),
        state=tuple(parse_pairs("--state", state)),
        action=action,
        preset=preset,
        policy_options=parse_values("--option", option),
        observations=observations,
        cast=cast,
        ort_library=ort_library,
        seed=int(in_range("--seed", seed, 0, 2**63 - 1)),
        output=output,
        force=force,
        hang_s=in_range("--hang-s", hang_s, 0.1, 86400),
        load_s=in_range("--load-s", load_s, 1, 86400),
    )
    if output is not None:
        output_folder(request, "")
    named = prepare(request)
    _finish(*bench(request, named, _say(quiet=json)), as_json=json)


def _finish(report: BenchReport, folder: Path, *, as_json: bool) -> NoReturn:
    """Writes what is drawn from a report, shows it and ends."""
    files = _write(report, folder)
    if as_json:
        from robot_perf.run.bench_report import to_document

        emit_json(to_document(report) | {"folder": str(folder)})
    else:
        from robot_perf.cli.show import report_width, show, table_width
        from robot_perf.render.bench.text import bench_text

        saved = f"{folder}: {', '.join(files)}"
        show(bench_text(report, saved=saved, width=report_width(), screen=table_width()))
    sys.exit(int(_code(report)))


def _code(report: BenchReport) -> ExitCode:
    from robot_perf.run.bench_report import OK

    measured = any(point.status == OK for row in report.rows for point in row.points)
    return ExitCode.PASS if measured and report.state == "complete" else ExitCode.INVALID


def _say(*, quiet: bool) -> Any:
    """One line that is rewritten on a terminal; nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        return lambda words: None

    from rich.console import Console

    from robot_perf.render.lines import clean, shorten

    console = Console(stderr=True)

    def say(words: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that was closed is no reason to end a bench
            # A line that wraps is not rewritten but piles up; the width is asked anew, for a terminal can be resized.
            sys.stderr.write(f"\r\x1b[K{shorten(clean(words), min(100, console.width - 1))}")
            sys.stderr.flush()

    return say


def _write(report: BenchReport, folder: Path) -> list[str]:
    """Markdown, pictures and the page beside `bench.json`; what an absent extra leaves out is said."""
    from robot_perf.errors import RobotPerfError
    from robot_perf.render.bench.html import bench_html
    from robot_perf.render.bench.markdown import bench_markdown
    from robot_perf.render.bench.picture import bench_picture
    from robot_perf.tasks.bench.machine import slug

    files, pictures = ["bench.json"], {}
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    try:
        for head in report.policies:
            picture, name = bench_picture(report, head.name), f"bench-{slug(head.name)}.png"
            if picture is not None:
                pictures[head.name] = name
                write_output(folder / name, picture, force=True)
            else:  # one of an earlier report would show figures that this one has not
                (folder / name).unlink(missing_ok=True)
        page = bench_html(report)
    except RobotPerfError as error:
        sys.stderr.write(f"robot-perf: {error}\n")
    else:
        write_output(folder / "bench.html", page, force=True)
        files.append("bench.html")
    write_output(folder / "bench.md", bench_markdown(report, pictures), force=True)
    return [*files, "bench.md", *pictures.values(), *(["runs/"] if (folder / "runs").is_dir() else [])]


def _merge(folder: Path, output: Path | None, *, as_json: bool, force: bool) -> None:
    from robot_perf.analyze.bench.merge import merge
    from robot_perf.render.bench.markdown import merged_markdown
    from robot_perf.specs import to_json
    from robot_perf.tasks.bench.run import find_reports

    merged = merge(find_reports(folder))
    document = {"schema": "robot-perf/bench-merge-1", **to_json(merged)}
    if output is not None:
        if output.suffix not in (".md", ".json"):
            raise UsageError(f"{output} is neither .md nor .json", do="Name the file that --merge shall write.")
        import json as codec

        text = merged_markdown(merged) if output.suffix == ".md" else codec.dumps(document, indent=1) + "\n"
        write_output(output, text, force=force)
    if as_json:
        emit_json(document)
    elif output is None or str(output) != "-":
        from robot_perf.cli.show import report_width, show, table_width
        from robot_perf.render.bench.text import merged_text

        show(merged_text(merged, width=report_width(), screen=table_width()))
