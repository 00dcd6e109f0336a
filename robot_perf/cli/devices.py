"""`robot-perf devices list | show | detect | probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robot_perf.cli.options import Force, Json, Output, check_output, emit_json, write_output
from robot_perf.cli.subcommands import Subcommands
from robot_perf.errors import UsageError

app = typer.Typer(
    cls=Subcommands,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="List, show, detect or probe devices.",
)


@app.command("list")
def list_command(
    device_class: Annotated[
        str | None, typer.Option("--class", help="jetson, desktop, datacenter, cpu or apple.", show_default="all")
    ] = None,
    json: Json = False,
) -> None:
    """Every device of the table with its bandwidth, dense peak and ridge point."""
    from robot_perf.tasks.machine.devices import SCHEMA, device_document, list_devices

    rows = list_devices(device_class)
    if json:
        emit_json({"schema": SCHEMA, "devices": [device_document(d) for d in rows]})
        return
    from robot_perf.cli.show import table_width
    from robot_perf.render.hardware.devices import list_text

    typer.echo(list_text(rows, width=table_width()))


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(help="Exactly a name or alias; case apart.")], json: Json = False
) -> None:
    """One device in full: each number with its source, its power modes, and what is not used."""
    from robot_perf.tasks.machine.devices import device_document, show_device

    device = show_device(name)
    if json:
        emit_json(device_document(device))
        return
    from robot_perf.cli.show import table_width
    from robot_perf.render.hardware.devices import device_text

    typer.echo(device_text(device, width=table_width()))


@app.command("detect")
def detect_command(json: Json = False) -> None:
    """Which device of the table this machine is, with the evidence; several candidates where it does not suffice."""
    from robot_perf.tasks.machine.devices import detect_devices, detection_document

    found = detect_devices()
    if json:
        emit_json(detection_document(found))
        return
    from robot_perf.render.hardware.devices import detection_text

    typer.echo(detection_text(found))


@app.command("probe")
def probe_command(
    device: Annotated[str | None, typer.Option(help="cpu or cuda:N.", show_default="the first GPU, else cpu")] = None,
    seconds: Annotated[float, typer.Option(help="Measuring time; warm-up comes on top.")] = 10.0,
    source: Annotated[
        Path | None, typer.Option("--from", help="Show a saved report instead of measuring.", show_default=False)
    ] = None,
    output: Output = None,
    json: Json = False,
    force: Force = False,
) -> None:
    """Read, copy, write and weight-streaming bandwidth and dense matrix rates that this machine reaches, beside spec.

    `-o FILE.json` saves the report, `-o FILE.md` the page; `--from FILE.json -o FILE.md` makes the page of a saved
    report.
    """
    import json as codec

    if output is not None and str(output) != "-":
        if output.suffix not in (".json", ".md"):
            raise UsageError(f"{output}: unknown format", why="Known: .json, .md.")
        check_output(output, force=force)
    from robot_perf.render.hardware.devices import probe_markdown, probe_text
    from robot_perf.tasks.machine.devices import probe_document, read_probe, run_probe, spec_of

    report = read_probe(source) if source is not None else run_probe(device, seconds)
    if output is not None:
        document = codec.dumps(probe_document(report), indent=2, ensure_ascii=False) + "\n"
        page = probe_markdown(report, spec_of(report)) if output.suffix == ".md" else document
        write_output(output, page, force=force)
    if json:
        emit_json(probe_document(report))
    elif output is None or str(output) != "-":
        typer.echo(probe_text(report, spec_of(report)))
