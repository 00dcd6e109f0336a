"""Diagnose a profile or a Run: read it, add what the device table and a policy know, name the limit."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from robot_perf.errors import ProfileError, UsageError
from robot_perf.profiles.model import Profile
from robot_perf.tasks.profiling.inputs import predictions, step_cost
from robot_perf.units import period_ns

if TYPE_CHECKING:
    from robot_perf.analyze.diagnose import Diagnosis, Thresholds
    from robot_perf.analyze.prediction.report import Comparison
    from robot_perf.run.model import Run
    from robot_perf.specs import DeviceSpec

PARQUET = b"PAR1"


@dataclass(frozen=True)
class DiagnoseRequest:
    """What a person asked for."""

    path: Path
    on: str | None = None
    rate_hz: str | None = None
    steps_pattern: str | None = None
    counters: Path | None = None
    probed_gb_s: float | None = None
    predict: tuple[str, ...] = ()
    cache_control: str | None = None
    clock_control: str | None = None
    export: bool = False
    thresholds: dict[str, float] | None = None
    cost: str | None = None
    policy: str | None = None


@dataclass(frozen=True)
class Diagnosed:
    """The diagnosis, and what it was made from, for exports."""

    diagnosis: Diagnosis
    profile: Profile | None
    run: Run | None
    predictions: tuple[Comparison, ...] = ()


def diagnose_file(request: DiagnoseRequest) -> Diagnosed:
    """Reads and diagnoses one file. Raises ProfileError, RunFileError or UsageError."""
    from robot_perf.analyze.diagnose import diagnose
    from robot_perf.profiles import load

    limits = thresholds(request.thresholds or {})
    if _is_run(request.path):
        return _of_run(request, limits)
    device = None if request.on is None else _device(request.on)
    profile = _with_modes(load(request.path, export=request.export), request)
    counters = None if request.counters is None else _counters(request)
    diagnosis = diagnose(
        profile,
        device=device,
        period_ns=None if request.rate_hz is None else period_ns(request.rate_hz),
        pattern=request.steps_pattern,
        counters=counters,
        probed_bytes_s=None if request.probed_gb_s is None else request.probed_gb_s * 1e9,
        limits=limits,
        cost=step_cost(request.cost, request.policy),
    )
    measured = counters or profile
    compared = tuple(p for text in request.predict for p in predictions(text, measured, device, limits))
    return Diagnosed(diagnosis, profile, None, compared)


def thresholds(given: dict[str, float]) -> Thresholds:
    """The thresholds with some replaced. Raises UsageError for an unknown name or a value that is not a number."""
    from robot_perf.analyze.diagnose import Thresholds

    known = {f.name: f for f in fields(Thresholds)}
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(f"threshold {unknown[0]!r} is unknown", why=f"Known: {', '.join(known)}.")
    if bad := [k for k, v in given.items() if not 0 <= v < 1e18]:
        raise UsageError(f"threshold {bad[0]} of {given[bad[0]]} is out of range")
    return replace(Thresholds(), **{k: type(getattr(Thresholds(), k))(v) for k, v in given.items()})


def _is_run(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == PARQUET
    except OSError:
        return False


def _of_run(request: DiagnoseRequest, limits: Thresholds) -> Diagnosed:
    from robot_perf.analyze.diagnose.of_run import diagnose_run
    from robot_perf.run.parquet import load

    run = load(request.path)
    return Diagnosed(diagnose_run(run, request.path.name, limits), None, run)


def _device(name: str) -> DeviceSpec:
    from robot_perf.devices import find

    return find(name)


def _with_modes(profile: Profile, request: DiagnoseRequest) -> Profile:
    """Cache and clock control as the person states them, where the file doesn't say."""
    header = profile.header
    for option, given, allowed in (
        ("--cache-control", request.cache_control, ("none", "all")),
        ("--clock-control", request.clock_control, ("none", "base", "boost")),
    ):
        if given is not None and given not in allowed:
            raise UsageError(f"{option} {given!r} is unknown", why=f"Allowed: {', '.join(allowed)}.")
    known = replace(
        header,
        cache_control=header.cache_control or request.cache_control,
        clock_control=header.clock_control or request.clock_control,
    )
    return replace(profile, header=known)


def _counters(request: DiagnoseRequest) -> Profile:
    from robot_perf.profiles import load

    path = request.counters
    assert path is not None
    profile = load(path, export=request.export)
    if profile.header.shape != "counters":
        raise ProfileError(
            f"{path.name}: no ncu report",
            why=f"It is a {profile.header.format} file.",
            do="Give --counters an ncu CSV.",
        )
    return _with_modes(profile, request)


def trace_of(done: Diagnosed, pattern: str | None = None) -> str:
    """The Chrome trace of what was diagnosed, with the steps that the diagnosis found."""
    from robot_perf.render.diagnose.perfetto import profile_trace, run_trace

    if done.run is not None:
        return run_trace(done.run)
    from robot_perf.analyze.diagnose import Thresholds
    from robot_perf.analyze.diagnose.steps import find_steps
    from robot_perf.analyze.diagnose.work import devices_of

    assert done.profile is not None
    works = devices_of(done.profile) if done.profile.header.shape == "timeline" else []
    if not works:
        return profile_trace(done.profile)
    steps = find_steps(done.profile, works[0], Thresholds(), pattern)
    return profile_trace(done.profile, (steps.window_start, steps.window_end), steps.name or "capture")
