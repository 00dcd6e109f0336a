"""`profile`: run a policy at its rate under torch's profiler, or print (run) the nsys and ncu lines for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_perf.errors import ProfileError, UsageError
from robot_perf.tasks.profiling.lines import NCU_COSTS, NSYS_COSTS, Line, ncu_lines, nsys_lines, refuse_on_a_robot

if TYPE_CHECKING:
    from robot_perf.analyze.prediction.matching import Matching
    from robot_perf.measure.profiling.run import ProfileOrder
    from robot_perf.tasks.deadline import DeadlineRequest

DEFAULT_STEPS = 100


@dataclass(frozen=True)
class NcuRequest:
    """Which launches ncu profiles. m comes from a timeline of the same program, or is given."""

    kernels: str | None = None
    trace: Path | None = None
    matching_launches: int | None = None
    skip_steps: int = 20
    profile_steps: int = 3


@dataclass(frozen=True)
class Lines:
    """Command lines, what they cost, and the launch that ncu's first row must be."""

    lines: tuple[Line, ...]
    costs: tuple[str, ...]
    matching: Matching | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def order_of(request: DeadlineRequest) -> ProfileOrder:
    """The work order of a profile: the policy, its backend and loop settled as for a measurement. Raises RobotPerfError."""
    from robot_perf.measure.profiling.run import ProfileOrder
    from robot_perf.tasks.deadline import prepare

    prepared = prepare(request, saved=False)
    return ProfileOrder(
        prepared.policy,
        prepared.backend,
        prepared.loop,
        request.backend_options,
        str(request.observations) if request.observations else None,
        request.cast,
        request.seed,
    )


def profile_torch(request: DeadlineRequest, trace: Path) -> dict[str, Any]:
    """Runs under torch's profiler and writes the trace. Returns facts of the run."""
    from robot_perf.measure.profiling.run import profile_with_torch

    return profile_with_torch(order_of(request), trace)


def run_under_profiler(request: DeadlineRequest) -> dict[str, Any]:
    """The program that the printed lines start: marked steps between cuProfilerStart and cuProfilerStop."""
    from robot_perf.measure.profiling.run import run_marked

    return run_marked(order_of(request))


def inner_command(argv: list[str]) -> list[str]:
    """The command that nsys or ncu starts: this one with --under-profiler in place of what chose the tool."""
    dropped = {"--nsys", "--ncu", "--run", "--json", "--force"}
    valued = {
        "--kernels",
        "--trace",
        "--matching-launches",
        "--skip-steps",
        "--profile-steps",
        "-o",
        "--output",
        "--seconds",
    }
    kept, skip = [], False
    for word in argv:
        if skip:
            skip = False
        elif word in valued:
            skip = True
        elif word not in dropped and word.split("=")[0] not in valued and not re.match(r"-o.", word):
            kept.append(word)
    return [sys.executable, "-m", "robot_perf.cli", *kept, "--under-profiler"]


def nsys(command: list[str], out: str, seconds: float | None = None) -> Lines:
    """The nsys lines."""
    if seconds is not None and not 0 < seconds <= 3600:
        raise UsageError(f"--seconds {seconds:g} is out of range", why="Allowed: above 0, at most 3600 s.")
    return Lines(tuple(nsys_lines(command, out, seconds=seconds)), NSYS_COSTS)


def ncu(command: list[str], out: str, asked: NcuRequest) -> Lines:
    """The ncu lines, skip and count sized from matching launches per step. Raises UsageError when they can't be."""
    refuse_on_a_robot()
    if asked.skip_steps < 0 or asked.profile_steps < 1:
        raise UsageError("--skip-steps must be 0 or more and --profile-steps 1 or more")
    matching, per_step = None, asked.matching_launches
    if asked.trace is not None and asked.kernels is not None:
        from robot_perf.analyze.prediction.matching import matching_per_step
        from robot_perf.profiles import load

        matching = matching_per_step(load(asked.trace), asked.kernels)
        if per_step is not None and per_step != matching.per_step:
            raise UsageError(
                f"--matching-launches {per_step} contradicts the trace, in which {matching.per_step} launches a step match"
            )
        per_step = matching.per_step
    if per_step is not None and per_step < 1:
        raise UsageError("--matching-launches must be 1 or more")
    skip = None if per_step is None else per_step * asked.skip_steps
    count = None if per_step is None else per_step * asked.profile_steps
    facts = {"matching_launches_per_step": per_step, "skip": skip, "count": count}
    return Lines(
        tuple(ncu_lines(command, out, pattern=asked.kernels, skip=skip, count=count)), NCU_COSTS, matching, facts
    )


def run_lines(lines: Lines, *, force: bool = False) -> list[str]:
    """Runs the lines with the user's own tools, in order; stops at the first that fails. Returns what was written.

    Raises ProfileError, and UsageError before anything runs where a file that a line writes is there already.
    """
    for tool in {line.words[0] for line in lines.lines}:
        if shutil.which(tool) is None:
            raise ProfileError(
                f"{tool} is not on the PATH",
                do=f"Install NVIDIA's {tool}, or run the printed line on a machine that has it.",
            )
    old = [path for path in map(written_by, lines.lines) if path is not None and path.exists()]
    if old and not force:
        raise UsageError(f"{old[0]} exists", do="Choose another name with -o or add --force.")
    for path in old:
        path.unlink()  # nsys would keep an old report, and its export would read that one
    written = []
    environment = {**os.environ, "LC_ALL": "C"}
    for line in lines.lines:
        tool = line.words[0]
        if line.stdout is None:
            done = subprocess.run(
                line.words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
            output = done.stdout
        else:
            with Path(line.stdout).open("wb") as target:
                done = subprocess.run(line.words, env=environment, stdout=target, stderr=subprocess.PIPE, check=False)
            output = done.stderr + Path(line.stdout).read_bytes()[:4096]
            written.append(line.stdout)
        _refuse_failure(tool, done.returncode, output.decode("utf-8", "replace"))
        _refuse_absent_report(line, output.decode("utf-8", "replace"))
    return written


def _refuse_failure(tool: str, code: int, output: str) -> None:
    from robot_perf.profiles.names import redact

    if "ERR_NVGPUCTRPERM" in output:
        raise ProfileError(
            "ncu may not read this GPU's counters (ERR_NVGPUCTRPERM)",
            why="Counters are restricted to administrators; kernel classes stay unanswered: counters not permitted.",
            do="Run as root; or give the container SYS_ADMIN; or have the machine's owner set NVreg_RestrictProfilingToAdminUsers=0. The timeline needs none of it.",
        )
    if code != 0:
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        raise ProfileError(
            f"{tool} failed (exit {code})", do="Run the printed line by hand to see its output.", detail=redact(last)
        )


def written_by(line: Line) -> Path | None:
    """The file that a line writes, None where it only prints."""
    words = line.words
    if line.stdout is not None:
        return Path(line.stdout)
    if "-o" not in words[: words.index("--") if "--" in words else None]:
        return None
    stem = words[words.index("-o") + 1]
    return Path(stem if "export" in words[:2] else f"{stem}.{words[0]}-rep")


def _refuse_absent_report(line: Line, output: str) -> None:
    """ncu and nsys can exit with 0 and write nothing: no kernel matched, or the range never opened."""
    words, target = line.words, written_by(line)
    if target is None or target.is_file():
        return
    from robot_perf.profiles.names import redact

    said = [
        x
        for x in output.splitlines()
        if x.startswith(("==WARNING==", "==ERROR==")) or "No kernels" in x or "no reports" in x.lower()
    ]
    raise ProfileError(
        f"{words[0]} ended without a report",
        why="No launch matched the filter inside the range, or the policy uses no GPU.",
        do="Check --kernels against the names in a trace, and that there are more steps than --skip-steps and --profile-steps.",
        detail=redact(said[-1] if said else ""),
    )


def check_first_launch(matching: Matching, csv: Path) -> str | None:
    """Why ncu's first row is not the expected launch, None when it is (section 14)."""
    from robot_perf.profiles import load
    from robot_perf.profiles.names import short_name

    table = load(csv).kernels
    name = table.text("name", 0)
    grid = tuple(int(table[f"grid_{a}"][0]) for a in "xyz")
    # ncu drops namespaces from the middle of a name (its --rename-kernels is on): only the last part of both is compared
    own, expected = (short_name(n).rsplit("::", 1)[-1] for n in (name, matching.name))
    if own != expected or (matching.grid is not None and grid != matching.grid):
        return f"can't answer: wrong kernel matched: {short_name(name)} {grid}, expected {short_name(matching.name)} {matching.grid}"
    return None
