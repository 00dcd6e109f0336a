"""`robot-perf utilisation POLICY --rate HZ`: how busy the GPU is, and which rung of the ladder says why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robot_perf.cli.options import Force, Json, check_output, emit_json
from robot_perf.cli.parsing import parse_pairs, parse_shapes, parse_values
from robot_perf.errors import ExitCode, UsageError
from robot_perf.units import parse_duration_ns

if TYPE_CHECKING:
    from robot_perf.tasks.deadline import DeadlineRequest
    from robot_perf.tasks.profiling.utilisation import Utilised

WATCH = "Without a policy: watch a GPU that something else uses"


# fmt: off
def command(
    policy: Annotated[str | None, typer.Argument(help="As for deadline: a built-in, a file, module:callable, or a name in configs/policies.", show_default=False)] = None,
    rate: Annotated[str | None, typer.Option(help="Control rate in Hz (required with a policy).", show_default=False)] = None,
    backend: Annotated[str | None, typer.Option(help="python, onnxruntime, eager, compile, cuda_graph, …", show_default="by the policy's format")] = None,
    device: Annotated[str, typer.Option(help="Where the policy runs and which GPU is sampled: cpu or cuda:N.")] = "cpu",
    duration: Annotated[str | None, typer.Option(help="Length of the run, such as 30s.", show_default="20s")] = None,
    steps: Annotated[int | None, typer.Option(help="Length of the run in releases.", show_default=False)] = None,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the GPU.")] = 0.5,
    trace_steps: Annotated[int, typer.Option(help="Steps of the second pass, under the profiler; 0 for none.")] = 60,
    seconds: Annotated[float | None, typer.Option(help="How long to watch.", rich_help_panel=WATCH, show_default=False)] = None,
    pid: Annotated[int | None, typer.Option(help="The process to watch: its quota, its run queue, its neighbours.", rich_help_panel=WATCH, show_default=False)] = None,
    backend_option: Annotated[list[str] | None, typer.Option(help="Option of the backend, NAME=VALUE; repeatable.", show_default=False)] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Size of an input or open axis, NAME=1,12; repeatable.", show_default=False)] = None,
    state: Annotated[list[str] | None, typer.Option(help="Carry an output to an input, IN=OUT; repeatable.", show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="Which output is the action.", show_default="the only output")] = None,
    preset: Annotated[str | None, typer.Option(help="Size of a built-in policy.", show_default=False)] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of a factory or built-in, NAME=VALUE; repeatable.", show_default=False)] = None,
    observations: Annotated[Path | None, typer.Option(help="Recorded inputs (.npz).", show_default="seeded random")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Run file.", show_default="runs/<UTC>-<policy>-<backend>-<rate>hz.parquet")] = None,
    json: Json = False,
    force: Force = False,
) -> None:
    # fmt: on
    """Exit codes: 0 when a rung was found or is clean, 3 when none can answer, 2 usage, 4 when the Run is INVALID."""
    from robot_perf.specs.place import parse_device

    if policy is None:
        if seconds is None:
            raise UsageError("no POLICY was given", do="Name one with --rate HZ, or watch with --device cuda:0 --seconds S [--pid PID].")
        from robot_perf.tasks.profiling.utilisation import watch

        _show(watch(_gpu(parse_device(device)), seconds, pid=pid, every_s=every), as_json=json)
        return
    if seconds is not None or pid is not None:
        raise UsageError("--seconds and --pid watch what something else runs", do="Leave POLICY out, or leave them out and give --duration.")
    if rate is None:
        raise UsageError("--rate is required", why="Idle time between steps is slack only at the robot's own rate.", do="Add --rate HZ.")
    if not 0 <= trace_steps <= 10_000:
        raise UsageError(f"--trace-steps {trace_steps} is out of range", why="Allowed: 0 to 10,000.")
    if output is not None:
        check_output(output, force=force)
    from robot_perf.tasks.deadline import DeadlineRequest

    request = DeadlineRequest(
        policy=policy, rate_hz=rate, steps=steps, duration_ns=None if duration is None else parse_duration_ns(duration), backend=backend,
        backend_options={**parse_values("--backend-option", backend_option), "device": parse_device(device)}, shapes=parse_shapes(shape),
        state=tuple(parse_pairs("--state", state)), action=action, preset=preset, policy_options=parse_values("--option", option),
        observations=observations, output=output, force=force,
    )  # fmt: skip
    _measure(request, every, trace_steps, as_json=json)


def _gpu(device: str) -> str:
    return "cuda:0" if device == "cpu" else device


def _measure(request: DeadlineRequest, every_s: float, trace_steps: int, *, as_json: bool) -> None:
    from robot_perf.cli.progress import Watcher
    from robot_perf.tasks.deadline import prepare
    from robot_perf.tasks.profiling.utilisation import check_every, request_of, run_utilisation

    check_every(every_s)
    prepared = prepare(request_of(request))
    with Watcher(opening=not as_json, bar=not as_json and sys.stderr.isatty()) as watcher:
        done = run_utilisation(prepared, every_s=every_s, trace_steps=trace_steps, on_progress=watcher.look)
    _show(done, as_json=as_json)


def _show(done: Utilised, *, as_json: bool) -> None:
    from robot_perf.render.diagnose.utilisation import utilisation_document, utilisation_text

    verdict: Any = None
    if done.run is not None:
        from robot_perf.analyze.verdict import judge

        verdict = judge(done.run)
    if as_json:
        document = utilisation_document(done.ladder, done.evidence, done.readings, done.busy, done.sampling)
        if verdict is not None:
            document |= {"verdict": {"status": verdict.status, "reason": verdict.reason}, "run": str(done.path)}
        emit_json(document)
    else:
        from robot_perf.cli.show import report_width, say, show

        if verdict is not None and verdict.status == "INVALID":
            from robot_perf.render.diagnose.text import invalid_line
            from robot_perf.render.lines import fit

            say(fit(invalid_line(verdict.reason), report_width()) + "\n")
        rate_hz = None if done.evidence.load is None else done.evidence.load.rate_hz
        show(utilisation_text(done.ladder, done.readings, done.busy, done.sampling, rate_hz=rate_hz, width=report_width()))  # fmt: skip
        if verdict is not None:
            from robot_perf.render.lines import fit
            from robot_perf.render.text import verdict_line

            say("\n" + fit(f"deadline   {verdict_line(verdict)}", report_width()))
            say(f"saved      {done.path}\nnext       robot-perf deadline … for a verdict of full length")
    if verdict is not None and verdict.status == "INVALID":
        raise typer.Exit(int(ExitCode.INVALID))
    if not done.ladder.answered:
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))
