"""`robot-perf recover [RUN|MAP]`: a Run of a step map that a killed process left; without argument, the list of them."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from robot_perf.cli.options import Force, Json, emit_json
from robot_perf.errors import ExitCode


def command(
    source: Annotated[
        Path | None,
        typer.Argument(help="A step map, or the Run it was to become. Without it: list.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Run file.", show_default="where it was to lie")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the map where it is.")] = False,
    json: Json = False,
    force: Force = False,
) -> None:
    """A Run of the steps that finished: INVALID (interrupted), but where the measurement was complete and only saving failed."""
    from robot_perf.tasks.recover import orphans, recover

    if source is None:
        entries = orphans()
        if json:
            emit_json([{"map": str(e.path), "steps": e.committed, "damage": e.damage} for e in entries])
        elif not entries:
            typer.echo("no orphaned step map on this machine")
        else:
            for entry in entries:
                typer.echo(f"{entry.path}   {entry.damage or f'{entry.committed:,} rows, warm-up included'}")
            typer.echo("robot-perf recover MAP makes a Run of one of them")
        return
    run, path = recover(source, output, keep=keep, force=force)
    steps = len(run.measured["step"])
    if json:
        emit_json({"run": str(path), "steps": steps, "state": run.conditions["state"]})
    else:
        typer.echo(f"recovered  {steps:,} steps ({run.conditions['state']})")
        taken = run.conditions.get("recovered_from")
        if source.suffix == ".map" and taken not in (None, source.name):
            typer.echo(f"from       {taken}, which has more of its steps than {source.name}")
        typer.echo(f"saved      {path}")
        typer.echo(f"next       robot-perf report {quote(str(path))}")
    raise typer.Exit(int(ExitCode.PASS))
