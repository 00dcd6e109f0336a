"""`robot-perf launch overhead | busy | in-flight`: what a step pays besides bytes and FLOP, as arithmetic."""

from __future__ import annotations

from typing import Annotated

import typer

from robot_perf.cli.options import Json, emit_json
from robot_perf.cli.subcommands import Subcommands

app = typer.Typer(
    cls=Subcommands,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Launch overhead, busy fraction and concurrency as arithmetic, before anything is measured.",
)


@app.command("overhead")
def overhead_command(
    gpu_ms: Annotated[float, typer.Option(help="GPU work of the step, ms (ceiling prints its bound).")],
    launches: Annotated[int | None, typer.Option(help="Kernel launches per step.", show_default=False)] = None,
    per_layer: Annotated[int | None, typer.Option(help="Kernels per layer, with --layers.", show_default=False)] = None,
    layers: Annotated[int | None, typer.Option(help="Layers.", show_default=False)] = None,
    launch_us: Annotated[float, typer.Option(help="Host cost of one launch, µs.")] = 5.0,
    json: Json = False,
) -> None:
    """Launches x cost per launch against the GPU's work: which of the two sets the step.

    `robot-perf launch overhead --per-layer 15 --layers 32 --gpu-ms 0.6`
    """
    from robot_perf.analyze.ceiling.launch import launch_cost
    from robot_perf.errors import UsageError
    from robot_perf.render.hardware.launch import overhead_text
    from robot_perf.specs import to_json

    if launches is None and (per_layer is None or layers is None):
        raise UsageError("how many launches?", do="Give --launches N, or --per-layer N and --layers N.")
    count = launches if launches is not None else (per_layer or 0) * (layers or 0)
    cost = launch_cost(count, launch_us * 1000, gpu_ms * 1e6)
    if json:
        emit_json({"schema": "robot-perf/launch-1", **to_json(cost), "idle_fraction": cost.idle_fraction})
    else:
        typer.echo(overhead_text(cost, launch_us))


@app.command("busy")
def busy_command(
    gpu_ms: Annotated[float, typer.Option(help="GPU work of a step, ms.")],
    cpu_ms: Annotated[float, typer.Option(help="Host work on the step's path, ms.")],
    json: Json = False,
) -> None:
    """Busy fraction of the GPU when the host's work comes between its steps, and when it is overlapped.

    `robot-perf launch busy --gpu-ms 12 --cpu-ms 28`
    """
    from robot_perf.analyze.ceiling.launch import busy_fraction
    from robot_perf.render.hardware.launch import busy_text
    from robot_perf.specs import to_json

    serial = busy_fraction(gpu_ms * 1e6, cpu_ms * 1e6)
    overlapped = busy_fraction(gpu_ms * 1e6, cpu_ms * 1e6, overlapped=True)
    if json:
        emit_json({"schema": "robot-perf/launch-1", "serial": to_json(serial), "overlapped": to_json(overlapped)})
    else:
        typer.echo(busy_text(serial, overlapped))


@app.command("in-flight")
def in_flight_command(
    rate: Annotated[float, typer.Option(help="Arrivals per second.")],
    duration: Annotated[float, typer.Option(help="Seconds that one takes.")],
    slots: Annotated[int | None, typer.Option(help="Requests that can run at once.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Little's law: in flight = rate x duration.

    `robot-perf launch in-flight --rate 1 --duration 10 --slots 64`
    """
    from robot_perf.analyze.ceiling.launch import in_flight
    from robot_perf.render.hardware.launch import in_flight_text
    from robot_perf.specs import to_json

    result = in_flight(rate, duration, slots)
    if json:
        emit_json({"schema": "robot-perf/launch-1", **to_json(result)})
    else:
        typer.echo(in_flight_text(result, rate, duration))
