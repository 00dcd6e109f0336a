"""`robot-perf roofline`: one layer, one operation or every operator of a policy under one device's roof."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from robot_perf.analyze.ceiling.bound import RESIDENT_SHARE
from robot_perf.analyze.ceiling.roofline import (
    DTYPE_BYTES,
    Placement,
    Roof,
    Work,
    crossover_tokens,
    decode_attention,
    linear,
    rmsnorm,
)
from robot_perf.devices import FALLBACK_DTYPE, bandwidth_of, peak_of
from robot_perf.errors import UsageError, unknown
from robot_perf.specs import PolicyCost
from robot_perf.specs.device import DeviceSpec, PowerMode
from robot_perf.tasks.ceiling.targets import TargetRequest, one_target

if TYPE_CHECKING:
    from robot_perf.policies.formats.counted import OperatorCount

TOLERANCE = 0.02  # between the sum over operators and the policy's own count
BUILT_IN = ("linear", "rmsnorm", "attention")


@dataclass(frozen=True, slots=True)
class RooflineRequest:
    """What is asked: `what` is linear, rmsnorm, attention or a policy. `dtype` None: bf16, or the policy's own."""

    what: str
    target: TargetRequest
    hidden: int | None = None
    tokens: int | None = None
    dtype: str | None = None
    activations: bool = True
    query_heads_per_kv: int = 4
    bytes_per_element: float | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    action: str | None = None


@dataclass(frozen=True, slots=True)
class RooflineAnswer:
    """The placement of the work as a whole, of its parts, and what a person should know about them."""

    kind: str
    device: DeviceSpec
    mode: PowerMode | None
    placement: Placement
    parts: tuple[Placement, ...] = ()
    hidden: int | None = None
    tokens: int | None = None
    crossover: float | None = None
    crossover_weights: float | None = None
    uncounted: dict[str, int] = field(default_factory=dict)
    resident: bool = False
    notes: tuple[str, ...] = ()
    lower_bound: str = ""  # why the figures are only a lower bound: work that wasn't counted


def place(request: RooflineRequest) -> RooflineAnswer:
    """The answer. Raises UsageError for an unknown device, a missing size, or a policy without a readable graph."""
    device, mode = one_target(request.target)
    if request.what not in BUILT_IN:
        return _policy(request, device, mode)
    roof = _roof(device, mode, request.dtype or "bf16")
    work = _work(request, DTYPE_BYTES[roof.dtype])
    answer = RooflineAnswer(request.what, device, mode, roof.place(work), hidden=request.hidden, tokens=request.tokens)
    if request.what != "linear" or request.hidden is None:
        return answer
    width = DTYPE_BYTES[roof.dtype]
    return RooflineAnswer(
        kind="linear",
        device=device,
        mode=mode,
        placement=answer.placement,
        hidden=request.hidden,
        tokens=request.tokens,
        crossover=crossover_tokens(roof, request.hidden, element_bytes=width),
        crossover_weights=crossover_tokens(roof, request.hidden, element_bytes=width, activations=False),
        notes=_layer_notes(work, device),
    )


def _layer_notes(work: Work, device: DeviceSpec) -> tuple[str, ...]:
    if device.l2_bytes is None or work.bytes >= RESIDENT_SHARE * device.l2_bytes:
        return ()
    return (
        f"this layer alone would fit in L2 ({device.l2_bytes / 2**20:g} MiB); in a model whose other layers push it out, "
        "its weights come from DRAM each step",
    )


def document(answer: RooflineAnswer) -> dict[str, Any]:
    """The answer as JSON: intensity in FLOP/byte, rates in FLOP/s, times in µs. `crossover_tokens` null: never
    crosses. Where work wasn't counted `lower_bound` says which, and whatever would conclude from the rest is null.
    """
    p = answer.placement
    whole = not answer.lower_bound
    crossover = answer.crossover
    return {
        "schema": "robot-perf/roofline-1",
        "lower_bound": answer.lower_bound or None,
        "kind": answer.kind,
        "name": p.work.name,
        "device": answer.device.name,
        "power_mode": answer.mode.name if answer.mode else None,
        "dtype": p.roof.dtype,
        "flop": p.work.flop,
        "bytes": p.work.bytes,
        "intensity": p.work.intensity if whole else None,
        "ridge": p.roof.ridge,
        "limited_by": None if not whole else "launch" if answer.resident else p.limited_by,
        "attainable_flop_s": p.attainable_flop_s if whole else None,
        "share_of_peak": p.peak_share if whole else None,
        "time_us": (p.compute_ns if answer.resident else p.least_ns) / 1000,
        "memory_us": p.memory_ns / 1000,
        "compute_us": p.compute_ns / 1000,
        "bandwidth_bytes_s": p.roof.bandwidth_bytes_s,
        "peak_flop_s": p.roof.peak_flop_s,
        "crossover_tokens": crossover if crossover is not None and math.isfinite(crossover) else None,
        "crossover_tokens_weights_only": answer.crossover_weights,
        "dram_applies": not answer.resident if whole else None,
        "operators": [_part(part) for part in answer.parts],
        "uncounted": answer.uncounted,
        "notes": list(answer.notes),
    }


def _part(p: Placement) -> dict[str, Any]:
    return {
        "name": p.work.name,
        "flop": p.work.flop,
        "bytes": p.work.bytes,
        "intensity": p.work.intensity,
        "limited_by": p.limited_by,
        "time_us": p.least_ns / 1000,
    }


def _roof(device: DeviceSpec, mode: PowerMode | None, dtype: str) -> Roof:
    if dtype not in DTYPE_BYTES:
        raise unknown("dtype", dtype, DTYPE_BYTES)
    used = dtype
    if dtype not in device.peaks and FALLBACK_DTYPE.get(dtype) in device.peaks:
        used = FALLBACK_DTYPE[dtype]  # chips without bf16: the fp16 rate, said by name
    return Roof(bandwidth_of(device, mode), peak_of(device, dtype, mode), device.name, used)


def _work(request: RooflineRequest, width: float) -> Work:
    if request.what == "attention":
        return decode_attention(request.query_heads_per_kv, context=request.tokens or 4096, kv_bytes=width)
    if request.hidden is None or request.tokens is None:
        raise UsageError(f"{request.what} needs --hidden and --tokens", do="For example --hidden 4096 --tokens 1.")
    if request.what == "rmsnorm":
        moved = 2 * width if request.bytes_per_element is None else request.bytes_per_element
        return rmsnorm(request.tokens, request.hidden, bytes_per_element=moved)
    return linear(request.hidden, request.tokens, element_bytes=width, activations=request.activations)


def _policy(request: RooflineRequest, device: DeviceSpec, mode: PowerMode | None) -> RooflineAnswer:
    from robot_perf.policies import describe
    from robot_perf.policies.formats.operators import count_operators

    spec = describe(request.what, shapes=request.shapes, action=request.action)
    count = count_operators(spec)
    if not count.operators:
        raise UsageError(
            f"{spec.name}: none of its operators could be counted",
            why=f"Shapes unknown: {', '.join(f'{n} {k}' for k, n in count.uncounted.items()) or 'no operators'}.",
            do="Give the sizes of its open axes with --shape."
            if any(any(t.symbols) for t in spec.inputs)
            else "Write its shapes into the file: onnx.save(onnx.shape_inference.infer_shapes(onnx.load(FILE)), NEW_FILE).",
        )
    roof = _roof(device, mode, request.dtype or count.dtype)
    whole = Work(count.flop, max(1, count.least_bytes), spec.name)
    parts = tuple(roof.place(Work(o.flop, o.bytes, f"{o.name} ({o.kind})")) for o in count.operators if o.bytes)
    resident = device.l2_bytes is not None and whole.bytes < RESIDENT_SHARE * device.l2_bytes
    notes = ["element-wise operators count about 1 FLOP per element", "whole: each weight, input and output moved once"]
    lower_bound, differences = _against_cost(count, spec.cost)
    notes += differences
    if resident and not lower_bound and device.l2_bytes is not None:
        notes.append(
            f"DRAM bound not applicable (L2-resident): {whole.bytes / 1e6:.2f} MB a call, L2 "
            f"{device.l2_bytes / 2**20:g} MiB; launches bound it (robot-perf launch overhead)"
        )
    return RooflineAnswer(
        kind="policy",
        device=device,
        mode=mode,
        placement=roof.place(whole),
        parts=parts,
        uncounted=count.uncounted,
        resident=resident,
        notes=tuple(notes),
        lower_bound=lower_bound,
    )


def _against_cost(count: OperatorCount, cost: PolicyCost | None) -> tuple[str, list[str]]:
    """Why the count is only a lower bound ("" where it is whole), and where it and the policy's own count differ."""
    reasons: list[str] = []
    notes: list[str] = []
    if count.missing:
        reasons.append(f"not counted: {', '.join(f'{n} {kind}' for kind, n in count.missing.items())}")
    own = cost or PolicyCost(0)
    for what, counted, known in (
        ("FLOP of products", count.product_flop, own.flop),
        ("weight bytes", count.weight_bytes, own.bytes_read),
    ):
        if known is None or abs(counted - known) <= TOLERANCE * known:
            continue
        text = f"{what} of its operators {counted:,}, by the policy's own count {known:,}"
        # Weights that no counted operator reads (tables of sizes, say) are no work left out; products are.
        (reasons if what.startswith("FLOP") and counted < known else notes).append(text)
    return "; ".join(reasons), notes
