"""Blocks of one point that lie far apart by the processor's doing, not the backend's."""

from __future__ import annotations

from collections.abc import Sequence

from robot_perf.run.bench_report import Block
from robot_perf.units import format_us

__all__ = ["WHOSE", "apart_with_ours"]

WHOSE = "the processor's doing (its clock, its caches, a busy hardware thread beside it, another machine on this host)"

_APART = 1.2  # the slowest block's median over the fastest's, of the steps and of our own work


def apart_with_ours(blocks: Sequence[Block]) -> str:
    """`133 to 212 µs (ours 9.30 to 16.0)` where steps and the harness's own work between them were slow in the same block; else empty.

    That work is the same in every step and on no device: where it takes longer, the processor is slower, or its caches are colder.
    """
    known = [(b.p50_ns, b.own_p50_ns) for b in blocks if b.p50_ns is not None and b.own_p50_ns is not None]
    if len(known) < 2:
        return ""
    (fast, own_fast), (slow, own_slow) = min(known), max(known)
    if not (fast > 0 and own_fast > 0 and slow >= _APART * fast and own_slow >= _APART * own_fast):
        return ""
    return f"{format_us(fast)} to {format_us(slow)} µs (ours {format_us(own_fast)} to {format_us(own_slow)})"
