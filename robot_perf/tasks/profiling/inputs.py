"""What a person adds to a profile: the cost of a step, expectations of kernels, and the peaks they are held against."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from robot_perf.errors import UsageError
from robot_perf.profiles.model import Profile

if TYPE_CHECKING:
    from robot_perf.analyze.diagnose import StepCost, Thresholds
    from robot_perf.analyze.prediction.predict import Ceiling, Expectation
    from robot_perf.analyze.prediction.report import Comparison
    from robot_perf.policies.formats.products import Product
    from robot_perf.specs import DeviceSpec

_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


def step_cost(given: str | None, policy: str | None) -> StepCost | None:
    """Bytes and FLOP of a step: given as --cost, or read from the policy. Raises UsageError or PolicyError."""
    from robot_perf.analyze.diagnose import StepCost

    if given is not None:
        pairs = dict(part.partition("=")[::2] for part in given.split(","))
        dtype = pairs.pop("dtype", "fp32")
        try:
            values = {key: float(pairs.pop(key)) for key in ("bytes", "flop") if key in pairs}
        except ValueError:
            values = {}
        if pairs or not values or dtype not in _BYTES or any(not 0 < v < 1e20 for v in values.values()):
            raise UsageError(
                f"--cost {given!r} can't be read",
                do="Write bytes=604618752,flop=7.7e10,dtype=bf16; one of bytes and flop may be left out.",
            )
        return StepCost(values.get("bytes"), values.get("flop"), dtype)
    if policy is None:
        return None
    from robot_perf import policies

    spec = policies.describe(policy)
    if spec.cost is None or not (spec.cost.bytes_read or spec.cost.flop):
        raise UsageError(f"{spec.name} does not say what a call costs", do="Give --cost bytes=N,flop=N,dtype=fp32.")
    names = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
    dtype = next((names[t.dtype] for t in spec.inputs if t.dtype in names), "fp32")
    return StepCost(spec.cost.bytes_read, spec.cost.flop, dtype)


def parse_expectation(text: str) -> tuple[re.Pattern[str], Expectation]:
    """`PATTERN@linear=64x1024x4096,dtype=bf16`, `PATTERN@policy=mlp,layer=2,dtype=fp32`, or
    `PATTERN@flop=…,read=…,write=…,dtype=…[,working_set=…][,grid=…]`.

    PATTERN is matched against the kernel's name or its NVTX range. Raises UsageError.
    """
    from robot_perf.analyze.prediction import predict

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
        elif "policy" in pairs:
            one = _product(pairs.pop("policy"), int(pairs.pop("layer", "1")))
            expected = predict.linear(one.rows, one.inner, one.outer, dtype, _BYTES[dtype])
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


def _product(policy: str, layer: int) -> Product:
    """The matrix product of a layer, counted from 1. Raises UsageError or PolicyError."""
    from robot_perf import policies
    from robot_perf.policies.formats.products import products

    found = products(policies.describe(policy))
    if not 1 <= layer <= len(found):
        listed = "; ".join(f"{i} {p.text}" for i, p in enumerate(found[:12], 1))
        raise UsageError(f"{policy} has no layer {layer}", why=f"It has {len(found)}: {listed}.")
    return found[layer - 1]


def ceiling_of(profile: Profile, device: DeviceSpec | None, dtype: str) -> Ceiling:
    """Peaks of the file's device, completed by --on. Raises UsageError when one is unknown."""
    from robot_perf.analyze.prediction.predict import PEAK_CLOCK_HZ, Ceiling
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


def predictions(text: str, profile: Profile, device: DeviceSpec | None, limits: Thresholds) -> list[Comparison]:
    """The expectation against every launch that it matches."""
    from robot_perf.analyze.diagnose.kernel_class import kernel_classes
    from robot_perf.analyze.prediction.predict import predict
    from robot_perf.analyze.prediction.report import compare

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

    from robot_perf.analyze.prediction.report import Launch

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
