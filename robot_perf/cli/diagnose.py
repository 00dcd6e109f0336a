"""`robot-perf diagnose FILE|RUN`: which of the known reasons makes a step slow, with the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robot_perf.cli.options import Force, Json, check_output, emit_json, in_range, write_output
from robot_perf.cli.show import say
from robot_perf.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from robot_perf.tasks.profiling.diagnose import Diagnosed


# fmt: off
def command(
    file: Annotated[Path, typer.Argument(help="A profile (Kineto .json, nsys .sqlite or stats .csv, ncu .csv; each also .gz), a .nsys-rep or .ncu-rep with --export, or a Run.", show_default=False)],
    on: Annotated[str | None, typer.Option("--on", help="Device of the table: SM count and peaks that the file lacks.", show_default=False)] = None,
    rate: Annotated[str | None, typer.Option(help="Control rate in Hz: says whether the deadline holds, with its slack.", show_default=False)] = None,
    steps: Annotated[str | None, typer.Option(help="Regular expression of the ranges that are steps.", show_default="found by rule")] = None,
    counters: Annotated[Path | None, typer.Option(help="ncu CSV of the same kernels: classes for the device part.", show_default=False)] = None,
    predict: Annotated[list[str] | None, typer.Option(help="Prediction against an ncu report, PATTERN@linear=64x1024x4096,dtype=bf16, or PATTERN@policy=mlp,layer=2,dtype=fp32; repeatable.", show_default=False)] = None,
    cost: Annotated[str | None, typer.Option(help="Bytes and FLOP of a step, bytes=N,flop=N,dtype=bf16: floors against the kernel time of a timeline.", show_default=False)] = None,
    policy: Annotated[str | None, typer.Option(help="Read that cost from a policy instead.", show_default=False)] = None,
    probed_gb_s: Annotated[float | None, typer.Option("--probed-gb-s", help="Bandwidth that a probe reached: kernels at 90 % of it are done.", show_default=False)] = None,
    cache_control: Annotated[str | None, typer.Option("--cache-control", help="ncu's cache control where the file doesn't say: none or all.", show_default=False)] = None,
    clock_control: Annotated[str | None, typer.Option("--clock-control", help="ncu's clock control where the file doesn't say: none, base or boost.", show_default=False)] = None,
    threshold: Annotated[list[str] | None, typer.Option(help="Replace a threshold, NAME=VALUE (docs/diagnose.md); repeatable.", show_default=False)] = None,
    export: Annotated[bool, typer.Option("--export", help="Let your own nsys or ncu export a .nsys-rep or .ncu-rep.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Report as .md, .html or .json; '-' for stdout.", show_default=False)] = None,
    trace: Annotated[Path | None, typer.Option(help="Chrome trace (.json) for the Perfetto UI: steps, kernels and calls on one time line.", show_default=False)] = None,
    json: Json = False,
    force: Force = False,
) -> None:
    # fmt: on
    """Exit codes: 0 when a rule found something or is clean, 3 when none can answer, 2 when the file can't be read."""
    from robot_perf.render.lines import clean
    from robot_perf.tasks.profiling.diagnose import DiagnoseRequest, diagnose_file, trace_of

    for target in (output, trace):
        if target is not None and str(target) != "-":
            check_output(target, force=force)
    if output is not None and output.suffix not in ("", ".md", ".html", ".json"):
        raise UsageError(f"{output}: a report is .md, .html or .json")
    if probed_gb_s is not None:
        in_range("--probed-gb-s", probed_gb_s, 0.001, 1e6)
    done = diagnose_file(
        DiagnoseRequest(
            file, on, rate, steps, counters, probed_gb_s, tuple(predict or ()), cache_control, clock_control, export,
            _thresholds(threshold), cost, policy,
        )
    )  # fmt: skip
    if trace is not None:
        write_output(trace, trace_of(done, steps), force=force)
    if output is not None:
        write_output(output, _report(done, output), force=force)
    if json:
        from robot_perf.render.diagnose.text import diagnose_document

        emit_json(diagnose_document(done.diagnosis, done.predictions))
    elif output is None or str(output) != "-":
        from robot_perf.cli.show import report_width, show
        from robot_perf.render.diagnose.text import diagnose_text

        show(diagnose_text(done.diagnosis, done.predictions, width=report_width()))
    if not json:
        for target in (output, trace):
            if target is not None and str(target) != "-":
                say(f"saved      {clean(target)}")
    if not done.diagnosis.answered:
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))


def _thresholds(items: list[str] | None) -> dict[str, float]:
    found = {}
    for item in items or ():
        name, _, value = item.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise UsageError(f"--threshold {item!r} is not NAME=NUMBER") from None
    return found


def _report(done: Diagnosed, path: Path) -> str:
    from robot_perf.render.diagnose import text as render

    if path.suffix == ".json":
        import json

        return json.dumps(render.diagnose_document(done.diagnosis, done.predictions), indent=1, allow_nan=False) + "\n"
    if path.suffix == ".html":
        from robot_perf.render.diagnose.prediction import prediction_chart

        chart = prediction_chart(done.predictions) if done.predictions else ""
        return render.diagnose_html(done.diagnosis, done.predictions, chart=chart)
    return render.diagnose_markdown(done.diagnosis, done.predictions)
