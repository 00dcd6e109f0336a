"""A measurement beside something: under a stated load, and as a soak. Each adds its conditions to the Run and saves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.measure.conductor import Progress
from robot_perf.measure.disturb.disturbance import Disturbance
from robot_perf.measure.disturb.load import LoadSpec, parse_load
from robot_perf.measure.watch.nvml import open_meter
from robot_perf.measure.watch.soak import HostReader, SoakSampler
from robot_perf.run.model import Run
from robot_perf.tasks.deadline import DeadlineRequest, Prepared, measure_deadline, run_deadline
from robot_perf.tasks.interrupted import interrupted
from robot_perf.tasks.saving import keep

__all__ = ["load_specs", "run_soak", "run_under_load", "soak_request", "with_conditions"]


def with_conditions(run: Run, more: dict[str, Any], *, notes: Sequence[str] = (), invalid: Sequence[str] = ()) -> Run:
    """The same Run with further conditions."""
    old = dict(run.conditions)
    old["notes"] = [*old.get("notes", []), *notes]
    old["invalid"] = [*old["invalid"], *invalid]
    return Run(dict(run.columns), {**old, **more})


def load_specs(texts: Sequence[str], device: str) -> tuple[LoadSpec, ...]:
    """The disturbances asked for; `gpu:` runs on the policy's device, or on the first."""
    index = int(device.partition(":")[2] or 0) if device.startswith("cuda") else 0
    specs = tuple(parse_load(text, device=index) for text in texts)
    if len({s.kind for s in specs}) != len(specs):
        raise UsageError("--load names a kind twice", do="Give each kind once, with its whole amount.")
    return specs


def run_under_load(
    prepared: Prepared, loads: Sequence[LoadSpec], on_progress: Progress | None = None
) -> list[tuple[str, Run, Path]]:
    """Alone first, then with the loads: (label, Run, file) each. A load that ended early makes its Run INVALID.

    Where the first one was interrupted there is no second: Ctrl-C means all of it.
    """
    with Disturbance(loads):
        pass  # a load that can't run here is refused before anything is measured
    _loaded_output(prepared.output, force=prepared.request.force)
    run, path = run_deadline(prepared, on_progress)
    found = [("alone", run, path)]
    if interrupted(run):
        return found
    words = ", ".join(spec.text for spec in loads)
    loaded = replace(prepared, output=_loaded_output(path, force=prepared.request.force))
    disturbance = Disturbance(loads)
    with disturbance:
        second = measure_deadline(loaded, on_progress)
    second = with_conditions(
        second,
        {"load": disturbance.conditions()},
        notes=[f"measured under the stated load {words}", *(f"load {line}" for line in disturbance.words())],
        invalid=disturbance.ended_early,
    )
    return [*found, (f"under {words}", second, keep(second, loaded.output, force=prepared.request.force))]


def _loaded_output(alone: Path, *, force: bool) -> Path:
    """Where the Run under the loads goes, beside the one without. Raises UsageError where a file is there."""
    output = alone.with_name(f"{alone.stem}-load{alone.suffix}")
    if output.exists() and not force:
        raise UsageError(f"{output} exists", do="Choose another name with -o or add --force.")
    return output


def soak_request(request: DeadlineRequest, duration_ns: int) -> DeadlineRequest:
    """The request with the soak's length. Raises UsageError where another length was asked for as well."""
    if request.steps is not None or request.duration_ns is not None:
        raise UsageError("--soak is the length of the run", do="Leave out --steps and --duration.")
    if duration_ns < 20 * 10**9:
        raise UsageError("--soak is shorter than 20 s", why="It compares stretches of minutes.", do="For example 30m.")
    return replace(request, duration_ns=duration_ns)


def run_soak(prepared: Prepared, on_progress: Progress | None = None) -> tuple[Run, Path]:
    """One long run with a sample of temperatures and clocks every second in its conditions."""
    meter, reason = open_meter(str(prepared.request.backend_options.get("device", "cpu")))
    sampler = SoakSampler(HostReader.find(), meter, reason)

    def look(stepmap: Any) -> None:
        sampler.look(stepmap)
        if on_progress is not None:
            on_progress(stepmap)

    try:
        run = with_conditions(measure_deadline(prepared, look), {"soak": sampler.conditions()})
    finally:
        if meter is not None:
            meter.close()
    return run, keep(run, prepared.output, force=prepared.request.force)
