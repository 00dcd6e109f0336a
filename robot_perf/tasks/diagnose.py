"""Diagnose a profile or a Run: read it, add what the device table and a policy know, name the limit."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_perf.errors import ProfileError, UsageError
from robot_perf.profiles.model import Profile
from robot_perf.units import period_ns

if TYPE_CHECKING:
    from robot_perf.analyze.diagnose import Diagnosis, Thresholds
    from robot_perf.analyze.predict import Ceiling, Expectation
    from robot_perf.analyze.predict_report import Comparison
    from robot_perf.run.model import Run
    from robot_perf.specs import DeviceSpec

PARQUET = b"PAR1"
_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


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
    )
    measured = counters or profile
    predictions = tuple(p for text in request.predict for p in _predictions(text, measured, device, limits))
    return Diagnosed(diagnosis, profile, None, predictions)


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
        ("--clock-control", request.clock_control, ("none", "base")),
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


def parse_expectation(text: str) -> tuple[re.Pattern[str], Expectation]:
    """`PATTERN@linear=64x1024x4096,dtype=bf16` or `PATTERN@flop=…,read=…,write=…,dtype=…[,working_set=…][,grid=…]`.

    PATTERN is matched against the kernel's name or its NVTX range. Raises UsageError.
    """
    from robot_perf.analyze import predict

    pattern, at, rest = text.rpartition("@")
    pairs = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    dtype = pairs.pop("dtype", "")
    if not at or dtype not in _BYTES:
        raise UsageError(
            f"--predict {text!r} can't be read",
            why=f"dtype is one of {', '.join(_BYTES)}.",
            do="Write PATTERN@linear=ROWSxINNERxOUTER,dtype=bf16 or PATTERN@flop=N,read=BYTES,write=BYTES,dtype=fp32.",
        )
    try:
        extra = {
            "working_set_bytes": float(pairs.pop("working_set")) if "working_set" in pairs else None,
            "grid": int(pairs.pop("grid")) if "grid" in pairs else None,
        }
        if "linear" in pairs:
            rows, inner, outer = (int(n) for n in pairs.pop("linear").split("x"))
            expected = predict.linear(rows, inner, outer, dtype, _BYTES[dtype])
        elif "elements" in pairs:
            expected = predict.elementwise(
                int(pairs.pop("elements")), dtype, _BYTES[dtype], reads=int(pairs.pop("reads", "1"))
            )
        else:
            expected = predict.Expectation(
                float(pairs.pop("flop")), float(pairs.pop("read")), float(pairs.pop("write")), dtype
            )
        if pairs:
            raise ValueError(f"unknown keys {', '.join(pairs)}")
        return re.compile(pattern), replace(expected, name=pattern, **extra)  # type: ignore[arg-type]
    except (KeyError, ValueError, re.error) as error:
        raise UsageError(
            f"--predict {text!r} can't be read", detail=str(error), do="Example: nvjet@linear=64x1024x4096,dtype=bf16"
        ) from None


def ceiling_of(profile: Profile, device: DeviceSpec | None, dtype: str) -> Ceiling:
    """Peaks of the file's device, completed by --on. Raises UsageError when one is unknown."""
    from robot_perf.analyze.predict import PEAK_CLOCK_HZ, Ceiling
    from robot_perf.devices import find, matches

    facts = profile.header.devices[0] if profile.header.devices else None
    if device is None and facts is not None and facts.name and len(matches(facts.name)) == 1:
        device = find(facts.name)
    bandwidth = (facts.bandwidth_bytes_s if facts else None) or (device.bandwidth_bytes_s if device else None)
    peak = device.peaks.get(dtype) if device else None
    if not bandwidth or not peak:
        lacking = "bandwidth" if not bandwidth else f"{dtype} peak"
        raise UsageError(
            f"no {lacking} for a prediction",
            why="No peak for the device: the file doesn't hold it.",
            do="Name the device: --on DEVICE.",
        )
    assert device is not None
    l2 = (facts.l2_bytes if facts else None) or device.l2_bytes
    return Ceiling(
        device.name, float(bandwidth), peak, l2, PEAK_CLOCK_HZ.get(device.name, {}).get(dtype), device.sm_count
    )


def _predictions(text: str, profile: Profile, device: DeviceSpec | None, limits: Thresholds) -> list[Comparison]:
    """The expectation against every launch that it matches."""
    from robot_perf.analyze.diagnose.kernel_class import kernel_classes
    from robot_perf.analyze.predict import predict
    from robot_perf.analyze.predict_report import compare

    if profile.header.shape != "counters":
        raise UsageError("--predict needs an ncu report", why="Give an ncu CSV, or one with --counters.")
    pattern, expected = parse_expectation(text)
    prediction = predict(expected, ceiling_of(profile, device, expected.dtype))
    table = profile.kernels
    rows = [
        i for i in range(len(table)) if pattern.search(table.text("name", i)) or pattern.search(table.text("nvtx", i))
    ]
    if not rows:
        raise UsageError(
            f"no kernel matches {pattern.pattern!r}",
            why="wrong kernel matched: the prediction can't be held against this report.",
        )
    classes = kernel_classes(profile, limits, device)
    launches = [_launch(profile, i, classes) for i in rows]
    return [compare(prediction, launch) for launch in launches if launch is not None]


def _launch(profile: Profile, row: int, classes: list[Any]) -> Any:
    """A launch with what is known of those of the same name and grid."""
    import numpy as np

    from robot_perf.analyze.predict_report import Launch

    kernel, table = classes[row], profile.kernels
    if kernel is None or not kernel.dur_ns:
        return None
    same = np.ones(len(table), bool)
    for column in ("name", "grid_x", "grid_y", "grid_z"):
        same &= table[column] == table[column][row]
    rows = np.flatnonzero(same)
    median = float(np.median(table["dur_ns"][rows]))
    return Launch(
        kernel.name,
        float(kernel.dur_ns),
        kernel.kind,
        kernel.numbers,
        profile.header.cache_control,
        len(rows),
        median,
        int(rows[0]) == row,
    )


def trace_of(done: Diagnosed, pattern: str | None = None) -> str:
    """The Chrome trace of what was diagnosed, with the steps that the diagnosis found."""
    from robot_perf.render.perfetto import profile_trace, run_trace

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
