"""`robot-perf kernels bench rmsnorm`: the shipped kernel beside its peers, correctness first."""

from __future__ import annotations

import json as json_module
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from robot_perf.cli.options import Force, Json, Output, check_output, emit_json, write_output
from robot_perf.cli.subcommands import Subcommands
from robot_perf.errors import UsageError

app = typer.Typer(
    cls=Subcommands, add_completion=False, no_args_is_help=True, help="Benchmarks of the kernels that robot-perf ships."
)
bench = typer.Typer(
    cls=Subcommands,
    add_completion=False,
    no_args_is_help=True,
    help="Measure a kernel beside its peers on this machine's GPU.",
)
app.add_typer(bench, name="bench")

KEEP_EVERY_S = 2.0  # a wide report is megabytes
SUFFIXES = (".json", ".md", ".png")


# fmt: off
@bench.command("rmsnorm")
def rmsnorm(
    sweep: Annotated[str, typer.Option(help="headline (15 shapes, both ops), wide (164 other points) or all.")] = "headline",
    provider: Annotated[list[str] | None, typer.Option(help="Only this provider beside ours; repeatable.", show_default="all that are installed")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved turns per point, in a rotating order.")] = 3,
    replays: Annotated[int, typer.Option(min=1, help="Graph replays per turn.")] = 5,
    ahead: Annotated[int, typer.Option(min=0, help="Extra processes that compile sixteen points ahead at a time; 0 compiles at each point.")] = 0,
    budget_s: Annotated[float | None, typer.Option(min=1, help="Start no further point after this many seconds.", show_default="none")] = None,
    spec_gb_s: Annotated[float | None, typer.Option(min=1, help="The memory's bandwidth, GB/s.", show_default="the device table's")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on from this report, or the NAME.partial.json of a bench that was stopped.", show_default=False)] = None,
    read: Annotated[Path | None, typer.Option("--from", help="Render an earlier report instead of measuring.", show_default=False)] = None,
    output: Output = None,
    json: Json = False,
    force: Force = False,
) -> None:
    """RMSNorm and the fused residual add: eager, F.rms_norm, torch.compile, ours, and liger, fla, quack where installed.

    Each provider is checked against FP64 first and runs in a process of its own; they are timed in turn in CUDA graphs, with a
    warm and a cold cache, and on the host. -o NAME.json, NAME.md or NAME.png writes that form; NAME without a suffix all three.
    """
    # fmt: on
    paths = _paths(output)
    for path in paths:
        if str(path) != "-":
            check_output(path, force=force)
    from robot_perf.tasks import kernels as task

    keeper = _Keeper(paths)
    if read is not None:
        report = task.read_report(read)
    else:
        request = task.RmsNormRequest(sweep, tuple(provider or ()), rounds, replays, ahead, budget_s, resume)
        report = task.bench_rmsnorm(request, _say, keeper.keep)
        keeper.write(report)
    found = task.document(report, spec_gb_s)
    command = report.setdefault("command", _command())
    for path in paths:
        write_output(path, _form(path, paths, found, command), force=True)
    keeper.drop()
    if json:
        emit_json(found)
    elif Path("-") not in paths:
        sys.stdout.write(task.text(found))


def _paths(output: Path | None) -> list[Path]:
    if output is None:
        return []
    if str(output) == "-" or output.suffix in SUFFIXES:
        return [output]
    if output.suffix:
        raise UsageError(f"{output}: no such form", why=f"Known: {', '.join(SUFFIXES)}, or no suffix for all three.")
    return [output.with_suffix(suffix) for suffix in SUFFIXES]


def _form(path: Path, paths: list[Path], found: dict[str, Any], command: str) -> str | bytes:
    from robot_perf.tasks import kernels as task

    if path.suffix == ".json":
        return json_module.dumps(found, allow_nan=False) + "\n"
    if path.suffix == ".png":
        return task.chart(found)
    picture = path.with_suffix(".png")
    return task.markdown(found, command, picture.name if picture in paths else "")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


class _Keeper:
    """The report so far beside the JSON that was asked for: a bench that is ended keeps its points. Gone once the JSON is there."""

    def __init__(self, paths: list[Path]) -> None:
        target = next((p for p in paths if p.suffix == ".json"), None)
        self._path = None if target is None else target.with_suffix(".partial.json")
        self._last = -KEEP_EVERY_S
        self._wrote = False

    def keep(self, report: dict[str, Any]) -> None:
        """Writes it, if the last time is a while ago."""
        if time.monotonic() - self._last > KEEP_EVERY_S:
            self.write(report)

    def write(self, report: dict[str, Any]) -> None:
        """Writes it, whole or not at all: one that is cut in the middle can't be gone on from."""
        if self._path is None:
            return
        self._last, self._wrote = time.monotonic(), True
        whole = self._path.with_suffix(".tmp")
        whole.write_text(json_module.dumps(report), encoding="utf-8")
        whole.replace(self._path)

    def drop(self) -> None:
        """Removes what it wrote."""
        if self._path is not None and self._wrote:
            self._path.unlink(missing_ok=True)


def _command() -> str:
    words = ["robot-perf", *sys.argv[1:]]
    return " ".join(w if w.replace("-", "").replace(".", "").replace("/", "").replace("_", "").isalnum() else repr(w) for w in words).replace(os.sep + os.sep, os.sep)
