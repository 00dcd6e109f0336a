"""A ceiling's answer as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from robot_perf.analyze.ceiling.bound import Ceiling, RateCheck
from robot_perf.analyze.ceiling.phases import PhaseFloor
from robot_perf.specs.codec import to_json

if TYPE_CHECKING:
    from robot_perf.tasks.ceiling.types import CeilingAnswer, Row

SCHEMA = "robot-perf/ceiling-1"


def answer_document(answer: CeilingAnswer) -> dict[str, Any]:
    """The answer's rows and what they assume."""
    return {
        "schema": SCHEMA,
        "model": answer.name,
        "kind": answer.kind,
        "weight_bits": answer.weight_bits,
        "compute": answer.compute,
        "batch": answer.batch,
        "assumptions": list(answer.assumptions),
        "notes": list(answer.notes),
        "rows": [_row(row, answer) for row in answer.rows],
    }


def documented_factors(row: Row, answer: CeilingAnswer) -> list[dict[str, Any]]:
    """Published latencies of this device, views and bits, each as a multiple of the floor; above 3 asks for a cause."""
    if row.policy is None:
        return []
    found = []
    for item in answer.documented:
        same = item.device == row.device.name and item.views in (None, answer.views)
        if same and item.bits in (None, answer.weight_bits):
            factor = item.ms * 1e6 / row.policy.floor_ns
            found.append({"ms": item.ms, "what": item.what, "source": item.source, "times_the_floor": factor})
    return found


def _row(row: Row, answer: CeilingAnswer) -> dict[str, Any]:
    common: dict[str, Any] = {
        "device": row.device.name,
        "power_mode": row.mode.name if row.mode else None,
        "tokens_per_s": None,
        "expected_tokens_per_s": None,
        "step_ms": None,
        "bytes": None,
        "limited_by": "unknown",
        "fits_memory": None,
        "notes": [row.reason] if row.reason else [],
    }
    if row.decode is not None:
        common |= _decode(row.decode)
        chunk = _chunk(row.decode, answer)
        common |= {"chunk": chunk} if chunk is not None else {}
    if row.policy is not None:
        common |= _policy(row.policy, answer.actions) | {"documented": documented_factors(row, answer)}
    if row.rate is not None:
        common["at_rate"] = _rate(row.rate) | {"tokens_asked": answer.action_tokens if row.decode else None}
    if row.limits:
        common["largest_that_fits"] = [to_json(limit) for limit in row.limits]
    if row.verdict is not None:
        common["measured"] = to_json(row.verdict)
    if row.measured_fraction is not None:
        common["measured"] = {"verdict": "phase-wise", "fraction": row.measured_fraction}
    return common


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _decode(c: Ceiling) -> dict[str, Any]:
    return {
        "tokens_per_s": c.tokens_per_s,
        "tokens_per_s_per_stream": c.tokens_per_s_per_stream,
        "expected_tokens_per_s": c.expected_tokens_per_s,
        "step_ms": _ms(c.step_ns),
        "bytes": c.bytes,
        "limited_by": c.limited_by,
        "fits_memory": c.fits_memory,
        "memory_ms": _ms(c.memory_ns),
        "compute_ms": _ms(c.compute_ns),
        "launch_ms": _ms(c.launch_ns),
        "bandwidth_bytes_s": c.bandwidth_bytes_s,
        "dram_applies": c.dram_applies,
        "notes": list(c.notes),
    }


def _chunk(c: Ceiling, answer: CeilingAnswer) -> dict[str, Any] | None:
    """A decoder's action chunk as n decode reads (bytes only, the prefill left out); None where no chunk was asked
    for.
    """
    if c.step_ns is None or (answer.action_tokens == 1 and answer.actions is None):
        return None
    chunk_ns = answer.action_tokens * c.step_ns / c.accepted
    executed = answer.actions or 1
    return {
        "tokens": answer.action_tokens,
        "executed": executed,
        "chunk_ms": _ms(chunk_ns),
        "replan_hz": 1e9 / chunk_ns,
        "action_hz": executed * 1e9 / chunk_ns,
    }


def _policy(f: PhaseFloor, actions: int | None) -> dict[str, Any]:
    return {
        "step_ms": _ms(f.floor_ns),
        "bytes": f.bytes,
        "limited_by": f.limited_by,
        "fits_memory": f.fits_memory,
        "bytes_only_ms": _ms(f.bytes_only_ns),
        "at_least": list(f.at_least),
        "replan_hz": 1e9 / f.floor_ns if f.floor_ns else None,
        "action_hz": actions * 1e9 / f.floor_ns if actions and f.floor_ns else None,
        "phases": [
            {
                "name": p.name,
                "repeats": p.repeats,
                "tokens": p.tokens,
                "bytes": p.bytes,
                "flop": p.flop,
                "memory_ms": _ms(p.memory_ns),
                "compute_ms": _ms(p.compute_ns),
                "ms": _ms(p.least_ns),
                "limited_by": p.limited_by,
            }
            for p in f.phases
        ],
        "notes": list(f.notes),
    }


def _rate(r: RateCheck) -> dict[str, Any]:
    return {
        "rate_hz": r.rate_hz,
        "budget_ms": _ms(r.budget_ns),
        "needed_ms": _ms(r.needed_ns),
        "fits": r.fits,
        "headroom": r.headroom,
        "tokens_in_budget": r.tokens_in_budget,
    }
