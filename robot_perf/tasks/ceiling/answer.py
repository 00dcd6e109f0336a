"""`robot-perf ceiling`: the bound of a decoder's tokens or of a policy's steps, per device and power mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robot_perf.analyze.ceiling.bound import Ceiling, Launches, check_rate, decode_ceiling
from robot_perf.analyze.ceiling.check import RateVerdict, judge_rate
from robot_perf.analyze.ceiling.decode_bytes import COMPUTE_BITS, DecodeLoad, Precision, decode_load, precision
from robot_perf.analyze.ceiling.inverse import (
    largest_params,
    longest_context,
    most_bits,
    policy_limits,
    step_budget,
)
from robot_perf.analyze.ceiling.meets import probe_bandwidth
from robot_perf.analyze.ceiling.phases import PhaseFloor, phase_floor
from robot_perf.errors import UsageError, unknown
from robot_perf.specs.device import ProbeReport
from robot_perf.specs.model import DecoderSpec, SizedPolicy
from robot_perf.tasks.ceiling.model import ModelRequest, chosen_model
from robot_perf.tasks.ceiling.targets import Target, all_targets
from robot_perf.tasks.ceiling.types import CeilingAnswer, CeilingRequest, Row


def ceilings(request: CeilingRequest) -> CeilingAnswer:
    """The answer. Raises UsageError for an unknown device or model, bad sizes, or a measured rate without a batch."""
    targets = all_targets(request.target)
    several = not (request.target.on or request.target.overridden)
    model = chosen_model(request.model)
    if isinstance(model, SizedPolicy):
        return _policy_answer(request, model, targets, several)
    return _decoder_answer(request, model, targets, several)


def _decoder_answer(
    request: CeilingRequest, model: DecoderSpec, targets: Sequence[Target], several: bool
) -> CeilingAnswer:
    bits = precision(
        request.weight_bits, weight_format=request.weight_format, group=request.group_size, kv_bits=request.kv_bits
    )
    load = decode_load(
        model,
        bits,
        context=request.context,
        batch=request.batch or 1,
        accepted=request.accepted or 1.0,
        state_bytes=request.state_bytes,
        weight_bytes=request.weight_bytes,
    )
    compute = _compute(request.compute)
    probe = _probe_bytes_s(request)
    rows = []
    for device, mode in targets:
        try:
            ceiling = decode_ceiling(
                load, device, mode, compute=compute, launches=_launches(request), probe_bytes_s=probe
            )
        except UsageError as error:
            if not several:
                raise
            rows.append(Row(device, mode, reason=error.what))
            continue
        rows.append(_decoder_row(request, model, bits, load, ceiling, (device, mode), compute))
    return CeilingAnswer(
        name=model.name,
        kind="decoder",
        rows=tuple(rows),
        assumptions=load.assumptions,
        weight_bits=bits.weight_bits,
        compute=compute,
        batch=load.batch,
        rate_hz=request.rate_hz,
        actions=request.executed,
        action_tokens=request.action_tokens,
        notes=_notes(request),
    )


def _decoder_row(
    request: CeilingRequest,
    model: DecoderSpec,
    bits: Precision,
    load: DecodeLoad,
    ceiling: Ceiling,
    target: Target,
    compute: str,
) -> Row:
    device, mode = target
    verdict = None if request.measured is None else _verdict(request, model, bits, load, ceiling)
    if request.rate_hz is None:
        return Row(device, mode, ceiling, verdict=verdict)
    tokens, actions = request.action_tokens, request.executed or 1
    rate = None
    if ceiling.step_ns is not None:
        token_ns = ceiling.step_ns / load.accepted
        rate = check_rate(request.rate_hz, tokens * token_ns, actions=actions, token_ns=token_ns)
    budget = step_budget(
        device, mode, request.rate_hz / actions, tokens=tokens, accepted=load.accepted, compute=compute
    )
    limits = [largest_params(budget, bits, kv_bytes=load.kv_bytes, batch=load.batch), most_bits(budget, model, load)]
    if model.layers is not None:
        limits.append(longest_context(budget, model, load, bits.kv_bits))
    return Row(device, mode, ceiling, rate=rate, limits=tuple(limits), verdict=verdict)


def _verdict(
    request: CeilingRequest, model: DecoderSpec, bits: Precision, load: DecodeLoad, ceiling: Ceiling
) -> RateVerdict:
    """The verdict on the measured rate. Raises UsageError for one below the ceiling without a batch size."""
    assert request.measured is not None
    if not 1e-9 <= request.measured <= 1e15:
        raise UsageError(f"--measured {request.measured:g} is out of range", why="From 1e-9 to 1e15.")
    if not ceiling.dram_applies:
        return RateVerdict("not-checkable", None, None, "DRAM bound not applicable (L2-resident)")
    verdict = judge_rate(
        request.measured,
        step_bytes=load.bound_bytes - load.kv_bytes,
        bandwidth_bytes_s=ceiling.bandwidth_bytes_s,
        batch=request.batch,
        kv_bytes=load.kv_bytes / load.batch,
        accepted=request.accepted,
        speculative=request.speculative,
        policy=request.measured_unit != "tok/s",
        weight_bits=bits.weight_bits,
        mixture=bool(model.experts) or model.active_params is not None,
    )
    if verdict.verdict == "refuse":
        raise UsageError(
            f"{request.measured:g} tok/s without a batch size can't be compared",
            why="Published rates are often the sum over many streams.",
            do="Add --batch N (1 for a single stream).",
        )
    return verdict


def _policy_answer(
    request: CeilingRequest, policy: SizedPolicy, targets: Sequence[Target], several: bool
) -> CeilingAnswer:
    if request.weight_format is not None or request.group_size is not None:
        raise UsageError("a policy's floor leaves scales out", do="Give plain --weight-bits.")
    # `precision` checks the range, as it does for a decoder
    bits = precision(request.weight_bits).weight_bits if request.weight_bits is not None else chosen_bits(request.model)
    compute = _compute(request.compute)
    rows = []
    for device, mode in targets:
        try:
            floor = phase_floor(policy, device, mode, weight_bits=bits, compute=compute, launches=_launches(request))
        except UsageError as error:
            if not several:
                raise
            rows.append(Row(device, mode, reason=error.what))
            continue
        rows.append(_policy_row(request, policy, floor, (device, mode), bits, compute))
    notes = []
    if bits == 32 and compute != "fp32":
        notes.append("TF32 units may run fp32 products, so the bf16 peak bounds them; --compute fp32 for plain cores")
    return CeilingAnswer(
        name=policy.name,
        kind="policy",
        rows=tuple(rows),
        assumptions=(f"{bits:g}-bit weights, {compute} arithmetic", *policy.assumptions),
        weight_bits=bits,
        compute=compute,
        rate_hz=request.rate_hz,
        actions=request.executed or policy.actions,
        documented=policy.documented,
        views=policy.views,
        notes=tuple(notes),
    )


def _policy_row(
    request: CeilingRequest, policy: SizedPolicy, floor: PhaseFloor, target: Target, bits: float, compute: str
) -> Row:
    device, mode = target
    fraction = None
    if request.measured is not None:
        fraction = floor.fraction(_measured_ns(request.measured, request.measured_unit))
    if request.rate_hz is None:
        return Row(device, mode, policy=floor, measured_fraction=fraction)
    actions = request.executed or policy.actions
    if actions is None:
        raise UsageError(
            f"{policy.name}: how many actions of a chunk are executed depends on the task",
            why=f"A chunk predicts {policy.chunk}; --rate is the rate of executed actions." if policy.chunk else "",
            do="Give --executed N.",
        )
    rate = check_rate(request.rate_hz, floor.floor_ns, actions=actions)
    limits = policy_limits(policy, device, mode, rate.budget_ns, weight_bits=bits, compute=compute)
    return Row(device, mode, policy=floor, rate=rate, limits=limits, measured_fraction=fraction)


def chosen_bits(request: ModelRequest) -> float:
    """Bits of the catalogue's own precision of a policy, 16 where it states none."""
    from robot_perf.policies.models.catalogue import PolicyRow, find_model

    row = find_model(request.model) if request.model else None
    return 32.0 if isinstance(row, PolicyRow) and row.dtype == "fp32" else 16.0


def _measured_ns(value: float, unit: str) -> float:
    if not 1e-9 <= value <= 1e15:
        raise UsageError(f"--measured {value:g} is out of range", why="From 1e-9 to 1e15.")
    if unit == "ms":
        return value * 1e6
    if unit == "Hz":
        return 1e9 / value
    raise UsageError("a policy's measured value is in ms or Hz", do="Add --unit ms or --unit Hz.")


def _compute(dtype: str | None) -> str:
    chosen = dtype or "bf16"
    if chosen not in COMPUTE_BITS:
        raise unknown("--compute", chosen, COMPUTE_BITS)
    return chosen


def _launches(request: CeilingRequest) -> Launches | None:
    if request.launches is None:
        return None
    if not 1 <= request.launches <= 10**9 or not 0 < request.launch_us <= 1e9:
        raise UsageError("--launches from 1 to 1e9, --launch-us above 0 and at most 1e9")
    return Launches(request.launches, request.launch_us * 1000)


def _probe_bytes_s(request: CeilingRequest) -> float | None:
    if request.probe is None:
        return None
    from robot_perf.tasks.machine.devices import read_probe

    found = _usable(read_probe(request.probe), request.probe)
    return found[1]


def _usable(report: ProbeReport, path: Path) -> tuple[str, float]:
    found = probe_bandwidth(report)
    if found is None:
        raise UsageError(f"{path}: the probe holds no bandwidth reading")
    return found


def _notes(request: CeilingRequest) -> tuple[str, ...]:
    notes = []
    if request.probe is not None:
        from robot_perf.tasks.machine.devices import read_probe

        report = read_probe(request.probe)
        kind, value = _usable(report, request.probe)
        notes.append(f"expected from the {kind} probe of {report.device}: {value / 1e9:.4g} GB/s")
    else:
        notes.append("expected from 0.8 of spec bandwidth; --probe FILE takes what devices probe reached")
    if request.speculative and request.accepted is None:
        notes.append("speculative: accepted tokens per step unknown, so the rate can't be compared; --accepted N")
    return tuple(notes)


def document(answer: CeilingAnswer) -> dict[str, Any]:
    """The answer as JSON. Times in ms, rates per second, bytes; null is unknown or not applicable, `notes` say why."""
    from robot_perf.tasks.ceiling.document import answer_document

    return answer_document(answer)
