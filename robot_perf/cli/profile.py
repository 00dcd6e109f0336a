"""`robot-perf profile POLICY --rate HZ`: a trace of the paced policy, or the nsys and ncu lines for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robot_perf.cli.options import Force, Json, check_output, emit_json
from robot_perf.cli.parsing import parse_pairs, parse_shapes, parse_values
from robot_perf.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from robot_perf.tasks.profiling.profile import Lines

NCU = "With --ncu"


# fmt: off
def command(
    policy: Annotated[str, typer.Argument(help="As for deadline: a built-in, a file, module:callable, or a name in configs/policies.", show_default=False)],
    rate: Annotated[str | None, typer.Option(help="Control rate in Hz (required).", show_default=False)] = None,
    steps: Annotated[int | None, typer.Option(help="Profiled steps, after 20 unprofiled ones.", show_default="100")] = None,
    backend: Annotated[str | None, typer.Option(help="python, onnxruntime, eager, compile, …", show_default="by the policy's format")] = None,
    device: Annotated[str, typer.Option(help="Where the policy runs: cpu or cuda:N.")] = "cpu",
    nsys: Annotated[bool, typer.Option("--nsys", help="Print the Nsight Systems lines instead: one for timing, one for attribution.")] = False,
    ncu: Annotated[bool, typer.Option("--ncu", help="Print the Nsight Compute lines instead: needs --kernels and a count.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Run the printed lines with your own nsys or ncu.")] = False,
    seconds: Annotated[float | None, typer.Option(help="With --nsys: capture this long instead of the marked steps.", show_default=False)] = None,
    kernels: Annotated[str | None, typer.Option(help="Regular expression of kernel names.", rich_help_panel=NCU, show_default=False)] = None,
    trace: Annotated[Path | None, typer.Option(help="Timeline of the same program: matching launches per step are counted in it.", rich_help_panel=NCU, show_default=False)] = None,
    matching_launches: Annotated[int | None, typer.Option(help="Matching launches per step, where no timeline is at hand.", rich_help_panel=NCU, show_default=False)] = None,
    skip_steps: Annotated[int, typer.Option(help="Steps that ncu skips.", rich_help_panel=NCU)] = 20,
    profile_steps: Annotated[int, typer.Option(help="Steps that ncu profiles.", rich_help_panel=NCU)] = 3,
    shape: Annotated[list[str] | None, typer.Option(help="Size of an input or open axis, NAME=1,12; repeatable.", show_default=False)] = None,
    state: Annotated[list[str] | None, typer.Option(help="Carry an output to an input, IN=OUT; repeatable.", show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="Which output is the action.", show_default="the only output")] = None,
    preset: Annotated[str | None, typer.Option(help="Size of a built-in policy.", show_default=False)] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of a factory or built-in, NAME=VALUE; repeatable.", show_default=False)] = None,
    observations: Annotated[Path | None, typer.Option(help="Recorded inputs (.npz).", show_default="seeded random")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Trace (.json or .json.gz); with --nsys or --ncu the stem of their reports.", show_default="trace-<policy>.json.gz")] = None,
    under_profiler: Annotated[bool, typer.Option("--under-profiler", hidden=True)] = False,
    json: Json = False,
    force: Force = False,
) -> None:
    # fmt: on
    """Profiled times are not deployment times: the trace tells causes, `deadline` tells latency."""
    from robot_perf.cli.show import say
    from robot_perf.specs.place import parse_device
    from robot_perf.tasks.deadline import DeadlineRequest
    from robot_perf.tasks.profiling import profile as task

    if rate is None:
        raise UsageError("--rate is required", why="Idle time between steps is slack only at the robot's own rate.", do="Add --rate HZ.")
    if nsys and ncu:
        raise UsageError("--nsys and --ncu exclude each other", do="Timeline first (--nsys), then the one kernel (--ncu).")
    if run and not (nsys or ncu):
        raise UsageError("--run belongs to --nsys or --ncu")
    stem = str(output) if output is not None else f"profile-{Path(policy).stem.replace(':', '-')}"
    if nsys or ncu:
        inner = task.inner_command(sys.argv[1:])
        lines = (
            task.nsys(inner, stem, seconds)
            if nsys
            else task.ncu(inner, stem, task.NcuRequest(kernels, trace, matching_launches, skip_steps, profile_steps))
        )
        _lines(lines, stem, run=run, json=json, force=force)
        return
    request = DeadlineRequest(
        policy=policy, rate_hz=rate, steps=task.DEFAULT_STEPS if steps is None else steps, backend=backend,
        backend_options={"device": parse_device(device)}, shapes=parse_shapes(shape), state=tuple(parse_pairs("--state", state)), action=action,
        preset=preset, policy_options=parse_values("--option", option), observations=observations,
    )  # fmt: skip
    if under_profiler:
        for note in task.run_under_profiler(request)["notes"]:
            say(f"note       {note}", err=True)  # stdout may be the CSV that ncu writes
        return
    target = output or Path(f"trace-{Path(policy).stem.replace(':', '-')}.json.gz")
    check_output(target, force=force)
    facts = task.profile_torch(request, target)
    _summary(target, rate, facts, json=json, on_cpu=device == "cpu")


def _lines(lines: Lines, stem: str, *, run: bool, json: bool, force: bool) -> None:
    from robot_perf.tasks.profiling.profile import check_first_launch, run_lines

    written = run_lines(lines, force=force) if run else []
    wrong = None
    if run and lines.matching is not None and written:
        wrong = check_first_launch(lines.matching, Path(f"{stem}.raw.csv"))
    if json:
        document = {
            "schema": "robot-perf/1", "lines": [{"purpose": x.purpose, "command": x.text} for x in lines.lines], "costs": list(lines.costs),
            **lines.facts, "ran": run, "written": written, "wrong_kernel": wrong,
        }  # fmt: skip
        emit_json(document)
    else:
        for line in lines.lines:
            typer.echo(f"# {line.purpose}\n{line.text}")
        if lines.facts.get("skip") is not None:
            typer.echo("# {matching_launches_per_step} matching launches a step: -s {skip} -c {count}".format(**lines.facts))
        for cost in lines.costs:
            typer.echo(f"# {cost}")
        if wrong:
            typer.echo(f"# {wrong}")
    if wrong:
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))


def _summary(target: Path, rate: str, facts: dict[str, Any], *, json: bool, on_cpu: bool) -> None:
    """What the trace says, by the same diagnosis that `diagnose` makes of it."""
    from robot_perf.cli.show import report_width, say, show
    from robot_perf.render.diagnose.text import diagnose_document, diagnose_text
    from robot_perf.tasks.profiling.diagnose import DiagnoseRequest, diagnose_file

    done = diagnose_file(DiagnoseRequest(target, rate_hz=rate))
    if json:
        emit_json({**diagnose_document(done.diagnosis), "trace": str(target), "run": facts})
        return
    show(diagnose_text(done.diagnosis, width=report_width()))
    for note in facts["notes"]:
        say(f"note       {note}")
    if on_cpu:
        say("note       the policy ran on the CPU: with --device cuda:0 the trace has its kernels too")
    say(f"\ntrace      {target}\nnext       robot-perf diagnose {target} --rate {rate}")
