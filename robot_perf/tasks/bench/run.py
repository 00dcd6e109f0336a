"""`bench`: policies over backends, paced at control rates and back to back, blocks interleaved, one report.

One worker process per policy and backend, alive over all its blocks. Per rate the backends take turns forwards, then backwards
(ABBA): a drift of the machine meets all of them alike, and each backend's own blocks give its A/A noise floor.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from robot_perf import __version__
from robot_perf.analyze.bench.advice import advise
from robot_perf.analyze.bench.figures import judged_again, median_answer
from robot_perf.backends.gpu.options import on_cuda
from robot_perf.errors import UsageError
from robot_perf.measure.machine.fingerprint import fingerprint
from robot_perf.measure.processes.process import on_ending, signal_name
from robot_perf.measure.watch.nvml import Meter, open_meter
from robot_perf.measure.watch.watch_device import idle_power
from robot_perf.run.bench_report import FILE_NAME, OK, TIGHT, Answer, BenchReport, PolicyHead, load, save
from robot_perf.specs import PolicySpec
from robot_perf.tasks.bench.machine import machine_of, named_by, slug
from robot_perf.tasks.bench.policy import PolicyBench
from robot_perf.tasks.bench.request import BenchRequest, Target
from robot_perf.tasks.run_files import check_folder, make_folder

__all__ = ["bench", "find_reports", "output_folder", "prepare", "redrawn"]

Say = Callable[[str], None]


def prepare(request: BenchRequest) -> list[tuple[str, PolicySpec]]:
    """The policies, described and named apart. Raises RobotPerfError for whatever can't be measured at all."""
    from robot_perf import policies

    if not request.policies:
        raise UsageError("no POLICY was given", do="Name one or more, for example: robot-perf bench mlp lstm.")
    if not 20 <= request.steps <= 10_000_000:
        raise UsageError(f"--steps {request.steps} is out of range", why="Allowed: 20 to 10,000,000 a point.")
    if not 1 <= request.blocks <= 100 or request.steps // request.blocks < 10:
        raise UsageError(
            f"--blocks {request.blocks} is out of range", why="Allowed: 1 to 100, with at least 10 steps a block."
        )
    if request.keep_warm != ("none",) and all(rate == TIGHT for rate in request.rates):
        raise UsageError(
            "--keep-warm has no idle time to act in",
            why="The only rate is tight.",
            do="Add a control rate, for example --rates 50,tight.",
        )
    found = []
    for text in request.policies:
        spec = policies.describe(
            text,
            shapes=request.shapes,
            state=list(request.state),
            action=request.action,
            preset=request.preset,
            seed=request.seed,
            options=request.policy_options,
            observations=str(request.observations) if request.observations else None,
            ort_library=str(request.ort_library) if request.ort_library else None,
        )
        found.append((text, spec))
    names = [spec.name for _, spec in found]
    # two files of one name (policy.onnx of two robots) are told apart by what was written
    named = [(text if names.count(spec.name) > 1 else spec.name, spec) for text, spec in found]
    if len({name for name, _ in named}) != len(named):
        raise UsageError("a POLICY is named twice", do="Name each once.")
    return named


def output_folder(request: BenchRequest, device_name: str) -> Path:
    """Where the report goes. Raises UsageError where one lies already, before anything is measured."""
    folder = request.output or Path("reports") / slug(device_name)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", do="Name a folder with -o.")
    if (folder / FILE_NAME).exists() and not request.force:
        raise UsageError(f"{folder / FILE_NAME} exists", do="Choose another folder with -o or add --force.")
    check_folder(folder / FILE_NAME)
    return folder


def bench(request: BenchRequest, named: list[tuple[str, PolicySpec]], say: Say) -> tuple[BenchReport, Path]:
    """Measures everything, saves `bench.json` after every policy, and returns the report and its folder.

    An interrupted bench keeps what it has, the blocks of an unfinished policy included, with `state` saying so.
    """
    targets = targets_of(request)
    # Where no backend runs on it, it is not the device whose figures these are.
    device = request.device if any(on_cuda(t.options) for t in targets) else "cpu"
    meter, reason = open_meter(device)
    try:
        host = fingerprint()
        machine = machine_of(device, meter, reason, host)
        folder = output_folder(request, machine.device)
        make_folder(folder)
        report = BenchReport(
            machine=machine,
            policies=(),
            rows=(),
            rates=request.rates,
            steps=request.steps,
            blocks=request.blocks,
            created_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            version=__version__,
            argv=tuple(sys.argv[1:]),
            state="not finished",
            notes=_notes(request, device),
            host=host,
        )
        ones = [PolicyBench(request, name, spec, targets, folder, meter, reason, host, say) for name, spec in named]
        try:
            with _signals_interrupt():
                if request.together:
                    _load_all(ones)
                for one in ones:
                    report = _with_policy(report, request, one, meter)
                    save(report, folder / FILE_NAME)
                report = replace(report, state="complete")
        except KeyboardInterrupt as interrupt:
            report = _interrupted(report, request, ones, str(interrupt))
        finally:
            for one in ones:
                one.close(kill=report.state != "complete")
        save(report, folder / FILE_NAME)
    finally:
        if meter is not None:
            meter.close()
    return report, folder


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM, which a time limit sends, and a closed terminal end a bench as Ctrl-C does: with what it has."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal_name(number))

    undo = on_ending(interrupt)
    try:
        yield
    finally:
        undo()


def _interrupted(report: BenchReport, request: BenchRequest, ones: Sequence[PolicyBench], by: str) -> BenchReport:
    """The report of a bench that was ended early: the policy that was being measured with the blocks that it has."""
    words = f"interrupted by {by} after {len(report.policies)} of {len(ones)} policies"
    if len(report.policies) < len(ones):
        one = ones[len(report.policies)]
        if blocks := one.drop_unmeasured():
            words += f"; {one.name} has {blocks} of {one.planned_blocks()} blocks"
            report = _with_rows(report, request, one, report.machine.idle_power_w)
    return replace(report, state=words)


def _notes(request: BenchRequest, device: str) -> tuple[str, ...]:
    notes = ["execution: observation on the host to action on the host, copies and waiting included"]
    if device != request.device:
        notes.append(f"no backend here runs on {request.device}: these are figures of the processor")
    if request.together:
        notes.append("all workers loaded at the same time: their cold starts and builds disturbed one another")
    for rate in request.rates:
        if rate == TIGHT:
            notes.append(
                "back to back a block has as many steps as fill a quarter of a second, where those are more; at most 20,000"
            )
        if (steps := request.steps_at(rate)) < request.steps:
            notes.append(f"at {rate} Hz {steps} steps a point were run instead of {request.steps}, to keep it short")
    return tuple(notes)


def _load_all(ones: list[PolicyBench]) -> None:
    for one in ones:
        one.prepare()
    for one in ones:
        one.load()


def _with_policy(report: BenchReport, request: BenchRequest, one: PolicyBench, meter: Meter | None) -> BenchReport:
    if not request.together:
        one.prepare()
        one.load()
    idle = [idle_power(meter)]
    done = [b.order for r in report.rows for p in r.points for b in p.blocks]
    one.run(first_order=max(done, default=-1) + 1)
    idle.append(idle_power(meter))
    one.close()
    # before and after: a device that has just loaded policies cools down for a minute
    watts = [w for w in idle if w is not None]
    idle_w = sum(watts) / len(watts) if watts else None
    if report.machine.idle_power_w is None:
        report = replace(report, machine=replace(report.machine, idle_power_w=idle_w))
    return _with_rows(report, request, one, idle_w)


def _with_rows(report: BenchReport, request: BenchRequest, one: PolicyBench, idle_w: float | None) -> BenchReport:
    rows = tuple(one.rows(idle_w))
    answers, advice = _compared(one.name, request, one, rows)
    return replace(
        report,
        machine=named_by(report.machine, rows),
        policies=(*report.policies, _head(one.name, one.spec)),
        rows=(*report.rows, *rows),
        answers=(*report.answers, *answers),
        advice=(*report.advice, *advice),
    )


def targets_of(request: BenchRequest) -> tuple[Target, ...]:
    """The targets asked for, or every backend of the table, each with the device in its options."""
    from robot_perf.backends import BACKENDS

    asked = request.backends or tuple(Target(name, name) for name in BACKENDS)
    return tuple(replace(t, options={**_defaults(t, request.device), **t.options}) for t in asked)


def _defaults(target: Target, device: str) -> dict[str, Any]:
    """The device, and no marks on it: events around a step cost an eager one a quarter of its latency, a graph 6 µs."""
    if target.name == "python":
        return {}  # it is numpy: it has no device, and a row that claimed one would lie
    return {"device": device, "marks": False} if device.startswith("cuda") else {"device": device}


def _head(name: str, spec: PolicySpec) -> PolicyHead:
    def shapes(tensors: Any) -> str:
        return ", ".join(f"{t.name} {t.dtype} {list(t.shape)}" for t in tensors)

    return PolicyHead(
        name=name,
        sha256=spec.sha256,
        inputs=shapes(spec.inputs),
        outputs=shapes(spec.outputs),
        parameters=spec.cost.parameters if spec.cost else None,
        state=spec.state_note,
    )


def _compared(name: str, request: BenchRequest, one: PolicyBench, rows: Any) -> tuple[list[Answer], list[Any]]:
    """Per rate: every backend against the next faster one, and the advice."""
    answers, advice = [], []
    for rate in request.rates:
        ranked = sorted(
            (
                (row.backend, point)
                for row in rows
                if (point := row.point(rate)) is not None and point.status == OK and point.p("p50") is not None
            ),
            key=lambda pair: pair[1].p("p50") or 0,
        )
        for (a, point_a), (b, point_b) in itertools.pairwise(ranked):
            runs_a, runs_b = one.runs_of(a, rate), one.runs_of(b, rate)
            answers.append(median_answer(name, rate, (a, point_a, runs_a), (b, point_b, runs_b)))
        if rate != TIGHT:
            advice.append(advise(name, rate, rows))
    return answers, advice


def redrawn(folder: Path) -> BenchReport:
    """The report of a folder with its floors, answers and advice by today's rules; saved. Nothing is measured."""
    if not (folder / FILE_NAME).is_file():
        raise UsageError(f"{folder} holds no {FILE_NAME}", do=f"Make one: robot-perf bench POLICY -o {folder}")
    report = judged_again(load(folder / FILE_NAME))
    rates = [rate for rate in report.rates if rate != TIGHT]
    advice = tuple(advise(head.name, rate, report.rows) for head in report.policies for rate in rates)
    report = replace(report, advice=advice)
    save(report, folder / FILE_NAME)
    return report


def find_reports(folder: Path) -> list[tuple[str, BenchReport]]:
    """Every `bench.json` under a folder with its path. Raises UsageError where there is none, RunFileError for a damaged one."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", do="Name the folder that holds the reports: --merge reports.")
    paths = sorted(folder.rglob(FILE_NAME))
    if not paths:
        raise UsageError(f"{folder} holds no {FILE_NAME}", do="Make one: robot-perf bench POLICY -o FOLDER.")
    return [(str(path.relative_to(folder)), load(path)) for path in paths]
