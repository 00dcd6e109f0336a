"""Several policies on one machine at the same time, each at its own rate, a verdict each: `deadline A@50 B@10`.

Each has its own worker and its own Run. They begin together: a worker that has loaded waits for the others. All windows last as
long as the longest one planned, so that no verdict rests on a machine that had gone quiet; what part of a window the others
covered is recorded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf.errors import RobotPerfError, UsageError
from robot_perf.measure.processes.process import on_ending, signal_name
from robot_perf.run.model import Run
from robot_perf.tasks.beside import with_conditions
from robot_perf.tasks.deadline import DeadlineRequest, Prepared, measure_deadline, prepare
from robot_perf.tasks.run_files import make_folder
from robot_perf.tasks.saving import keep, keep_or_discard

__all__ = ["prepare_together", "requests_of", "run_together", "split_rate"]

_AT_RATE = re.compile(r"^(?P<policy>.+)@(?P<rate>[0-9]+(?:\.[0-9]+)?(?:/[0-9]+)?)$")


def split_rate(text: str) -> tuple[str, str | None]:
    """`mlp@50` as (mlp, 50); a file of that very name is a policy without a rate."""
    match = None if Path(text).exists() else _AT_RATE.match(text)
    return (match["policy"], match["rate"]) if match else (text, None)


def requests_of(base: DeadlineRequest, policies: Sequence[str], rate: str | None) -> list[DeadlineRequest]:
    """One request per policy; `rate` serves those without @RATE. Raises UsageError where a rate is missing."""
    found = []
    for text in policies:
        policy, own = split_rate(text)
        chosen = own or rate
        if chosen is None:
            raise UsageError(
                f"{policy}: --rate is required",
                why="It is never in the policy file, and no default fits every robot.",
                do=f"Write {policy}@HZ, or add --rate HZ for all.",
            )
        found.append(replace(base, policy=policy, rate_hz=chosen))
    return found


def prepare_together(requests: Sequence[DeadlineRequest]) -> list[Prepared]:
    """Every policy settled; all windows as long as the longest. `output` of the first names a folder. Raises RobotPerfError."""
    folder = requests[0].output
    if folder is not None and folder.suffix:
        raise UsageError(f"-o {folder} names one file for {len(requests)} policies", do="Name a folder.")
    ones = [prepare(replace(request, output=None)) for request in requests]
    if folder is not None:
        make_folder(folder)
    longest = max(one.loop.steps * one.loop.period_ns for one in ones)
    taken: set[Path] = set()
    settled = []
    for one in ones:
        output = (folder or one.output.parent) / one.output.name
        number = 2
        while output in taken:
            output = output.with_name(f"{one.output.stem}-{number}{one.output.suffix}")
            number += 1
        taken.add(output)
        steps = -(-longest // one.loop.period_ns)
        settled.append(replace(one, loop=replace(one.loop, steps=steps), output=output))
    return settled


class _Gate:
    """Opens when every policy is loaded; closes for good when one of them can't be."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._loaded: set[int] = set()
        self.reason: str | None = None

    def ready(self, i: int) -> bool:
        """Whether policy i, which is loaded, may begin."""
        with self._lock:
            self._loaded.add(i)
            return len(self._loaded) == self._count

    def stop(self, reason: str) -> None:
        """Ends every policy."""
        with self._lock:
            self.reason = self.reason or reason


def run_together(ones: Sequence[Prepared]) -> list[tuple[Run, Path]]:
    """Measures all at once and saves every Run. Raises the first error of a policy that could not be loaded."""
    gate = _Gate(len(ones))
    runs: list[Run | None] = [None] * len(ones)
    errors: list[BaseException] = []

    def measure(i: int) -> None:
        try:
            runs[i] = measure_deadline(ones[i], ready=lambda: gate.ready(i), stop=lambda: gate.reason)
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread and raised there
            errors.append(error)
            gate.stop(f"{ones[i].policy.name} could not be loaded")

    threads = [threading.Thread(target=measure, args=(i,)) for i in range(len(ones))]
    undo = on_ending(lambda number, _frame: gate.stop(signal_name(number)))
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    finally:
        undo()
    if errors:
        for one, run in zip(ones, runs, strict=True):
            if run is not None:
                keep_or_discard(run, one.output, force=one.request.force)
        first = next((e for e in errors if not isinstance(e, RobotPerfError)), errors[0])
        raise first
    done = [run for run in runs if run is not None]
    return [
        (run, keep(run, one.output, force=one.request.force))
        for one, run in zip(ones, _told_of_each_other(ones, done), strict=True)
    ]


def _told_of_each_other(ones: Sequence[Prepared], runs: Sequence[Run]) -> list[Run]:
    """Each Run with who ran beside it, its stream's priority, and what part of its window that other one covered."""
    spans = [_span(run) for run in runs]
    found = []
    for i, run in enumerate(runs):
        others: list[dict[str, Any]] = []
        for j, other in enumerate(runs):
            if j == i:
                continue
            facts = other.conditions.get("backend_facts") or {}
            others.append(
                {
                    "policy": ones[j].policy.name,
                    "backend": ones[j].backend,
                    "rate_hz": ones[j].request.rate_hz,
                    "stream_priority": facts.get("stream_priority"),
                    "covered": _covered(spans[i], spans[j]),
                }
            )
        words = ", ".join(
            f"{o['policy']} at {o['rate_hz']} Hz ({o['backend']}"
            + ("" if o["stream_priority"] is None else f", stream priority {o['stream_priority']}")
            + f"; it covered {o['covered'] * 100:.0f} % of the window)"
            for o in others
        )
        found.append(with_conditions(run, {"beside": others}, notes=[f"ran beside {words}"]))
    return found


def _span(run: Run) -> tuple[int, int, int]:
    """First call of the warm-up, begin and end of the window, ns of CLOCK_MONOTONIC; zeros where nothing ran."""
    start, end, step = run.columns["start_ns"], run.columns["end_ns"], run.columns["step"]
    inside = step >= 0
    if not np.any(inside):
        return 0, 0, 0
    return int(start.min()), int(run.columns["release_ns"][inside].min()), int(end[inside].max())


def _covered(mine: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Share of my window in which the other one ran, its warm-up included: that is at its rate as well."""
    begin, end = mine[1], mine[2]
    if end <= begin:
        return 0.0
    return max(0, min(end, other[2]) - max(begin, other[0])) / (end - begin)
