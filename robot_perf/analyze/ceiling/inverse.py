"""The ceiling turned round: the largest model, the bits and the context that still fit a rate on a device.

Same bound as `ceiling`: what this says does not fit, can't; what it says fits still needs software that comes near it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robot_perf.analyze.ceiling.bound import require_rate
from robot_perf.analyze.ceiling.decode_bytes import DecodeLoad, Precision, kv_bytes_per_token, streamed_params
from robot_perf.analyze.ceiling.phases import phase_floor
from robot_perf.devices import bandwidth_of, peak_of
from robot_perf.errors import UsageError
from robot_perf.specs.device import DeviceSpec, PowerMode
from robot_perf.specs.model import DecoderSpec, SizedPolicy


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest value that fits, what stops it there, and for a person the sentence. None: nothing fits."""

    what: str  # parameters | weight bits | context | scale
    value: float | None
    limited_by: str  # DRAM | compute | memory size | none
    text: str


@dataclass(frozen=True, slots=True)
class StepBudget:
    """What one decode step may cost at a rate: `tokens` steps of it in each period."""

    ns: float
    bytes: float
    flop: float | None
    memory_bytes: float | None


def step_budget(
    device: DeviceSpec,
    mode: PowerMode | None,
    rate_hz: float,
    *,
    tokens: int = 1,
    accepted: float = 1.0,
    compute: str = "bf16",
) -> StepBudget:
    """Bytes and FLOP that a step may take when `tokens` tokens must fit a period of `rate_hz`."""
    require_rate(rate_hz)
    if tokens < 1 or accepted < 1:
        raise UsageError(
            "tokens and accepted tokens per step must be at least 1", why=f"Got {tokens} and {accepted:g}."
        )
    ns = accepted * 1e9 / (rate_hz * tokens)
    try:
        flop: float | None = peak_of(device, compute, mode) * ns / 1e9
    except UsageError:  # the arithmetic bound is left out, as in `ceiling`, which notes it
        flop = None
    return StepBudget(ns, bandwidth_of(device, mode) * ns / 1e9, flop, device.memory_bytes)


def largest_params(budget: StepBudget, bits: Precision, *, kv_bytes: float = 0.0, batch: int = 1) -> Limit:
    """Most streamed parameters (dense, embedding included) whose weights and cache fit the budget."""
    limits = {"DRAM": (budget.bytes - kv_bytes) * 8 / bits.weight_bits}
    if budget.flop is not None:
        limits["compute"] = budget.flop / (2 * batch)
    if budget.memory_bytes is not None:
        limits["memory size"] = (budget.memory_bytes - kv_bytes) * 8 / bits.expected_bits
    return _least("parameters", limits, lambda v: f"at most {v / 1e9:.3g} B parameters at {bits.weight_bits:g} bits")


def most_bits(budget: StepBudget, model: DecoderSpec, load: DecodeLoad) -> Limit:
    """Most bits per weight that fit: a format of at most this many passes the bound, one of more can't."""
    limits = {"DRAM": (budget.bytes - load.kv_bytes) * 8 / streamed_params(model)}
    if budget.memory_bytes is not None:
        limits["memory size"] = (budget.memory_bytes - load.kv_bytes) * 8 / model.params
    if budget.flop is not None and load.flop > budget.flop:
        limits["compute"] = -1.0
    return _least("weight bits", limits, lambda v: f"at most {v:.3g} bits per weight ({_named_bits(v)})")


def longest_context(budget: StepBudget, model: DecoderSpec, load: DecodeLoad, kv_bits: float = 16) -> Limit:
    """Most tokens of KV cache per stream that fit beside the weights."""
    per_token = kv_bytes_per_token(model, kv_bits) * load.batch
    limits = {"DRAM": (budget.bytes - load.weight_bytes) / per_token}
    if budget.memory_bytes is not None:
        limits["memory size"] = (budget.memory_bytes - (load.resident_bytes - load.kv_bytes)) / per_token
    if budget.flop is not None and load.flop > budget.flop:
        limits["compute"] = -1.0
    limit = _least("context", limits, lambda v: f"at most {math.floor(v):,} tokens of context")
    return limit if limit.value is None else Limit(limit.what, math.floor(limit.value), limit.limited_by, limit.text)


def policy_limits(
    policy: SizedPolicy,
    device: DeviceSpec,
    mode: PowerMode | None,
    budget_ns: float,
    *,
    weight_bits: float,
    compute: str,
) -> tuple[Limit, Limit]:
    """How much larger (or smaller) the policy may be at its precision, and the bits that fit at its size.

    The phase floor is proportional to the parameters, so the scale is budget / floor; fewer bits cut memory time alone,
    so a compute-bound policy may fit at no number of them.
    """
    floor = phase_floor(policy, device, mode, weight_bits=weight_bits, compute=compute).floor_ns
    scale = budget_ns / floor if floor > 0 else math.inf
    size = Limit("scale", scale, "floor", f"a policy {scale:.3g} x as large would still fit at {weight_bits:g} bits")
    fitting = [
        b
        for b in (32.0, 16.0, 8.0, 4.0)
        if phase_floor(policy, device, mode, weight_bits=b, compute=compute).floor_ns <= budget_ns
    ]
    if not fitting:
        return size, Limit(
            "weight bits", None, "compute", "no number of weight bits fits: arithmetic alone is too slow"
        )
    return size, Limit("weight bits", fitting[0], "DRAM", f"{fitting[0]:g}-bit weights or fewer fit")


def _named_bits(value: float) -> str:
    names = [f"{b}-bit" for b in (16, 8, 4) if b <= value]
    return f"{names[0]} and below fit" if names else "not even 4-bit fits"


def _least(what: str, limits: dict[str, float], say: object) -> Limit:
    by = min(limits, key=lambda k: limits[k])
    value = limits[by]
    if value <= 0:
        return Limit(what, None, by, f"no {what} fit: {by} alone exceeds the budget")
    return Limit(what, value, by, f"{say(value)}, limited by {by}")  # type: ignore[operator]
