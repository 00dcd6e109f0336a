"""`robot-perf deadline POLICY --rate HZ`: the verdict, and `--plan`: how long a run must be."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robot_perf.cli.options import Force, Json, check_output, emit_json, in_range, write_output
from robot_perf.cli.parsing import (
    parse_cpus,
    parse_interpreters,
    parse_m_in_k,
    parse_pairs,
    parse_percentile_limits,
    parse_shapes,
    parse_values,
)
from robot_perf.errors import ExitCode, UsageError, unknown
from robot_perf.units import parse_duration_ns

if TYPE_CHECKING:
    from robot_perf.run.model import Run
    from robot_perf.tasks.deadline import DeadlineRequest

RUNNING = "The run"
BUDGET = "The budget"
POLICY = "The policy"
LOOP = "The loop and the machine"
OUTPUT = "Output"


# fmt: off
# One option, one line: the table of options reads as a table.
def command(
    policy: Annotated[list[str] | None, typer.Argument(help="One policy, or several at once as POLICY@RATE: a built-in (null, spin:<µs>, mlp, gru, lstm, act), a file (.onnx, TorchScript .pt, .pt2, pipeline .yaml), module:callable, or a name in configs/policies.", show_default=False)] = None,
    rate: Annotated[str | None, typer.Option(help="Control rate in Hz (required; fractions such as 83.3 are exact).", rich_help_panel=RUNNING, show_default=False)] = None,
    deadline_ms: Annotated[float | None, typer.Option(help="Relative deadline in ms.", rich_help_panel=BUDGET, show_default="the period")] = None,
    backend: Annotated[str | None, typer.Option(help="python, onnxruntime, eager, compile, …", rich_help_panel=RUNNING, show_default="by the policy's format")] = None,
    device: Annotated[str, typer.Option(help="Where the policy runs: cpu or cuda:N.", rich_help_panel=RUNNING)] = "cpu",
    duration: Annotated[str | None, typer.Option(help="Length of the run, such as 90s or 30m.", rich_help_panel=RUNNING, show_default="the plan")] = None,
    steps: Annotated[int | None, typer.Option(help="Length of the run in releases.", rich_help_panel=RUNNING, show_default="the plan for at most one overrun")] = None,
    miss_rate: Annotated[float, typer.Option(help="Allowed share of releases that miss the deadline.", rich_help_panel=BUDGET)] = 0.001,
    confidence: Annotated[float, typer.Option(help="Confidence of the verdict in each direction.", rich_help_panel=BUDGET)] = 0.95,
    assume_burst: Annotated[float | None, typer.Option(help="Mean misses per overrun that the verdict assumes at least.", rich_help_panel=BUDGET, show_default="1 + max(1, deadline // period) under skip, 1 under queue")] = None,
    m_in_k: Annotated[str | None, typer.Option(help="At most m misses in any K consecutive releases, as m,K.", rich_help_panel=BUDGET, show_default=False)] = None,
    max_consecutive: Annotated[int | None, typer.Option(help="At most this many misses in a row.", rich_help_panel=BUDGET, show_default=False)] = None,
    limit: Annotated[list[str] | None, typer.Option(help="Limit on a percentile of response time in ms, such as p99=12; repeatable.", rich_help_panel=BUDGET, show_default=False)] = None,
    release_jitter_ms: Annotated[float | None, typer.Option(help="Limit on max - min wake-up latency in ms.", rich_help_panel=BUDGET, show_default=False)] = None,
    overrun: Annotated[str, typer.Option(help="After a late step: skip the releases that it covered, or queue them.", rich_help_panel=LOOP)] = "skip",
    wait: Annotated[str, typer.Option(help="sleep, hybrid (sleep, then spin --spin-margin-us) or spin (a whole core).", rich_help_panel=LOOP)] = "sleep",
    spin_margin_us: Annotated[float, typer.Option(help="How long hybrid spins before each release, µs.", rich_help_panel=LOOP)] = 200.0,
    loop: Annotated[str, typer.Option(help="absolute, or the shape you ship: sleep-rest, sleep-after.", rich_help_panel=LOOP)] = "absolute",
    shape: Annotated[list[str] | None, typer.Option(help="Size of an input or open axis, NAME=1,12; repeatable.", rich_help_panel=POLICY, show_default=False)] = None,
    state: Annotated[list[str] | None, typer.Option(help="Carry an output to an input, IN=OUT by name or position; repeatable.", rich_help_panel=POLICY, show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="Which output is the action, by position or name.", rich_help_panel=POLICY, show_default="the only output")] = None,
    counter: Annotated[list[str] | None, typer.Option(help="An input that counts steps (advanced by 1 each), by name or position; 'none' for none; repeatable.", rich_help_panel=POLICY, show_default="found by name")] = None,
    preset: Annotated[str | None, typer.Option(help="Size of a built-in policy.", rich_help_panel=POLICY, show_default=False)] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of a factory or built-in, NAME=VALUE; repeatable.", rich_help_panel=POLICY, show_default=False)] = None,
    backend_option: Annotated[list[str] | None, typer.Option(help="Option of the backend, NAME=VALUE (docs/backends.md); repeatable.", rich_help_panel=RUNNING, show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(help="Threads inside the policy's runtime.", rich_help_panel=RUNNING, show_default="1 below 5 M parameters")] = None,
    ort_library: Annotated[Path | None, typer.Option(help="Custom operators for ONNX Runtime (.so).", rich_help_panel=POLICY, show_default=False)] = None,
    observations: Annotated[Path | None, typer.Option(help="Recorded inputs (.npz, one array per input with a leading step axis).", rich_help_panel=POLICY, show_default="seeded random")] = None,
    cast: Annotated[bool, typer.Option(help="Convert a recording to the policy's dtypes.", rich_help_panel=POLICY)] = False,
    seed: Annotated[int, typer.Option(help="Seed of observations and built-in weights.", rich_help_panel=POLICY)] = 0,
    config: Annotated[Path | None, typer.Option(help="The deployment's YAML: the rate that it states (control_dt, dt with decimation, …) is compared with --rate; all else in it is left alone.", rich_help_panel=POLICY, show_default=False)] = None,
    fifo: Annotated[int | None, typer.Option(help="SCHED_FIFO priority of the loop, 1-99.", rich_help_panel=LOOP, show_default=False)] = None,
    cpus: Annotated[str | None, typer.Option(help="Processors of the loop, such as 3 or 2-3.", rich_help_panel=LOOP, show_default=False)] = None,
    mlock: Annotated[bool, typer.Option("--mlock", help="Lock all memory.", rich_help_panel=LOOP)] = False,
    keep_warm: Annotated[str, typer.Option(help="Before each release: none, spin:US, tiny-kernel:US, touch:US, rehearse:US, rehearse-loop:US, spin-sync (docs/bench.md).", rich_help_panel=LOOP)] = "none",
    load: Annotated[list[str] | None, typer.Option(help="Measure alone and under a stated load: cpu:N, mem:40%, gpu:60%, camera:2x1080p30; repeatable.", rich_help_panel=RUNNING, show_default=False)] = None,
    soak: Annotated[str | None, typer.Option(help="A long run, such as 30m, with temperatures, clocks and p99 by the minute.", rich_help_panel=RUNNING, show_default=False)] = None,
    hold_cpu_dma_latency: Annotated[bool, typer.Option("--hold-cpu-dma-latency", help="Hold /dev/cpu_dma_latency at 0: no deep idle states.", rich_help_panel=LOOP)] = False,
    gc: Annotated[str, typer.Option(help="Python's garbage collector in the loop: freeze, off or default.", rich_help_panel=LOOP)] = "freeze",
    python: Annotated[list[str] | None, typer.Option(help="Interpreter of a backend, BACKEND=PATH; repeatable.", rich_help_panel=RUNNING, show_default=False)] = None,
    hang_s: Annotated[float, typer.Option(help="A step that takes longer is taken for hung, seconds; at least 20 periods are waited.", rich_help_panel=RUNNING)] = 20.0,
    flush_s: Annotated[float, typer.Option(help="How often the steps are copied to disk, seconds.", rich_help_panel=OUTPUT)] = 10.0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Run file.", rich_help_panel=OUTPUT, show_default="runs/<UTC>-<policy>-<backend>-<rate>hz.parquet")] = None,
    junit: Annotated[Path | None, typer.Option(help="JUnit XML for CI.", rich_help_panel=OUTPUT, show_default=False)] = None,
    github: Annotated[bool, typer.Option("--github", help="GitHub Actions annotations.", rich_help_panel=OUTPUT)] = False,
    inconclusive_is: Annotated[str | None, typer.Option(help="fail or pass: what CI makes of INCONCLUSIVE.", rich_help_panel=OUTPUT, show_default=False)] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say how long a run must be; no POLICY needed.", rich_help_panel=RUNNING)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="The verdict line alone.", rich_help_panel=OUTPUT)] = False,
    json: Json = False,
    force: Force = False,
) -> None:
    # fmt: on
    """Exit codes: 0 PASS, 1 FAIL, 2 usage or unusable policy, 3 INCONCLUSIVE, 4 INVALID measurement."""
    from robot_perf.tasks.deadline import DeadlineRequest
    from robot_perf.tasks.run_files import refuse_report_name

    policies = tuple(policy or ())
    several, asked_rate = len(policies) > 1, rate
    first, rate = _rate_of(policies, rate)
    one_of("--overrun", overrun, ("skip", "queue"))
    one_of("--wait", wait, ("sleep", "hybrid", "spin"))
    one_of("--loop", loop, ("absolute", "sleep-rest", "sleep-after"))
    one_of("--gc", gc, ("freeze", "off", "default"))
    if inconclusive_is is not None:
        one_of("--inconclusive-is", inconclusive_is, ("fail", "pass"))
    from robot_perf.backends import BACKENDS
    from robot_perf.specs import RealTime
    from robot_perf.specs.place import parse_device

    backend_options = parse_values("--backend-option", backend_option)
    backend_options |= {
        k: v
        for k, v in (("threads", threads), ("ort_library", str(ort_library) if ort_library else None))
        if v is not None
    }
    backend_options["device"] = parse_device(device)
    request = DeadlineRequest(
        policy=first,
        rate_hz=rate,
        deadline_ns=None if deadline_ms is None else milliseconds("--deadline-ms", deadline_ms),
        steps=steps,
        duration_ns=None if duration is None else parse_duration_ns(duration),
        miss_rate=miss_rate,
        confidence=confidence,
        assumed_burst=assume_burst,
        m_in_k=parse_m_in_k(m_in_k),
        max_consecutive_misses=None if max_consecutive is None else int(in_range("--max-consecutive", max_consecutive, 0, 1e9)),
        percentile_limits_ns=parse_percentile_limits(limit),
        release_jitter_limit_ns=None
        if release_jitter_ms is None
        else milliseconds("--release-jitter-ms", release_jitter_ms),
        backend=backend,
        backend_options=backend_options,
        python=parse_interpreters(python, list(BACKENDS)),
        overrun=overrun,
        wait=wait,
        shape=loop,
        spin_margin_ns=round(in_range("--spin-margin-us", spin_margin_us, 0, 1e6) * 1000),
        gc=gc,
        keep_warm=keep_warm,
        real_time=RealTime(
            fifo_priority=None if fifo is None else int(in_range("--fifo", fifo, 1, 99)),
            cpus=parse_cpus(cpus),
            mlock=mlock,
            hold_cpu_dma_latency=hold_cpu_dma_latency,
        ),
        shapes=parse_shapes(shape),
        state=tuple(parse_pairs("--state", state)),
        action=action,
        counters=None if counter is None else tuple(counter),
        preset=preset,
        policy_options=parse_values("--option", option),
        observations=observations,
        cast=cast,
        seed=int(in_range("--seed", seed, 0, 2**63 - 1)),
        config=config,
        output=output,
        force=force,
        hang_s=in_range("--hang-s", hang_s, 0.1, 86400),
        flush_s=in_range("--flush-s", flush_s, 0.1, 86400),
    )
    if plan:
        _print_plan(request, as_json=json)
        return
    if not policies:
        raise UsageError(
            "no POLICY was given", do="Name one, for example: robot-perf deadline mlp --rate 50. Or ask for --plan."
        )
    if several + bool(load) + (soak is not None) > 1:
        raise UsageError("several policies, --load and --soak exclude each other", do="Run them one after another.")
    if output is not None and not several:
        refuse_report_name(output)
    for path in (junit,) if several else (output, junit):
        if path is not None:
            check_output(path, force=force)
    show: dict[str, Any] = {"junit": junit, "github": github, "inconclusive_is": inconclusive_is, "quiet": quiet, "as_json": json}
    if not several and not load and soak is None:
        sys.exit(_measure(request, **show))
    from robot_perf.cli import deadline_beside

    show["force"] = force
    if several:
        sys.exit(deadline_beside.several(request, policies, asked_rate, **show))
    if load:
        sys.exit(deadline_beside.loaded(request, load, **show))
    sys.exit(deadline_beside.soaked(request, parse_duration_ns(soak or ""), **show))


def _rate_of(policies: tuple[str, ...], rate: str | None) -> tuple[str, str]:
    """The first policy without its @RATE, and the rate that it shall have. Raises UsageError where none is given, or two."""
    from robot_perf.tasks.together import split_rate

    first, own = split_rate(policies[0]) if policies else ("", None)
    several = len(policies) > 1
    if rate is not None and own is not None and not several:
        raise UsageError(f"{policies[0]} and --rate both give a rate", do="Give one of them.")
    if rate is None and own is None:
        example = f"robot-perf deadline {first or 'mlp'} --rate {policies[1] if several else 50}"
        raise UsageError(
            "--rate is required",
            why="It is never in the policy file, and no default fits every robot.",
            do=f"Write {first}@HZ, or add --rate HZ for all."
            if several and not policies[1].replace(".", "", 1).isdecimal()
            else f"Add --rate HZ, for example: {example}.",
        )
    return first, rate or own or ""


def _print_plan(request: DeadlineRequest, *, as_json: bool) -> None:
    from robot_perf.cli.show import report_width, say
    from robot_perf.render.plan import plan_document, plan_text
    from robot_perf.tasks.deadline import budget_of

    period, budget = budget_of(request)
    if as_json:
        emit_json(plan_document(period, budget))
    else:
        say(plan_text(period, budget, width=report_width()))


def _measure(
    request: DeadlineRequest,
    *,
    junit: Path | None,
    github: bool,
    inconclusive_is: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    from robot_perf.analyze.summary import summarize
    from robot_perf.analyze.verdict import judge
    from robot_perf.cli.progress import Watcher
    from robot_perf.cli.show import report_width, say, show
    from robot_perf.render import text
    from robot_perf.tasks.deadline import prepare, run_deadline

    prepared = prepare(request)
    talk = not quiet and not as_json
    with Watcher(opening=talk, bar=talk and sys.stderr.isatty()) as watcher:
        run, path = run_deadline(prepared, watcher.look)
    verdict = judge(run)
    if as_json:
        from robot_perf.analyze.document import deadline_document

        emit_json(deadline_document(run) | {"run": str(path)})
    elif quiet:
        say(text.verdict_line(verdict))
    else:
        show(text.result_text(run, summarize(run), verdict, width=report_width(), saved=path))
    if junit is not None:  # after the verdict has been told: a file that can't be written must not cost it
        from robot_perf.render.ci.junit import junit_xml

        write_output(junit, junit_xml([(path.name, run)], inconclusive_is=inconclusive_is), force=request.force)
    if github:
        tell_github(path.name, run, inconclusive_is, to_stderr=as_json)
    code = verdict.exit_code
    if code == ExitCode.INCONCLUSIVE and inconclusive_is is not None:
        code = ExitCode.PASS if inconclusive_is == "pass" else ExitCode.FAIL
    return int(code)


def tell_github(name: str, run: Run, inconclusive_is: str | None, *, to_stderr: bool) -> None:
    """Annotations on the log, and the report on the job's summary page where GitHub Actions offers one."""
    from robot_perf.cli.show import say
    from robot_perf.render.ci.github import annotations
    from robot_perf.render.markdown import step_summary

    say(annotations([(name, run)], inconclusive_is=inconclusive_is), err=to_stderr)
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page:
        try:
            with Path(page).open("a", encoding="utf-8") as file:
                file.write(step_summary([(name, run)]))
        except OSError as error:
            raise UsageError(f"GITHUB_STEP_SUMMARY {page} can't be written", detail=error.strerror or "") from None


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuses a word that is not one of the allowed ones."""
    if value not in allowed:
        raise unknown(name, value, allowed)


def milliseconds(name: str, value: float) -> int:
    """Milliseconds to ns, within (0, 1 day]."""
    ns = round(value * 1_000_000) if 0 < value <= 86_400_000 else 0
    if ns <= 0:
        raise UsageError(f"{name} {value:.10g} ms is out of range", why="Allowed: 0.000001 to 86,400,000 ms (a day).")
    return ns
