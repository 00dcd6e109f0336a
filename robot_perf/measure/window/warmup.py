"""When warm-up ends: at the control rate, at least three calls, then as soon as the call durations have settled."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

MINIMUM = 3
WINDOW = 200  # the newest calls that are looked at: a fault hours ago says nothing about now
_ABSOLUTE_NS = 5_000  # below this, differences are the machine's noise, not a warm-up
_RELATIVE = 0.10


def settled(durations_ns: Sequence[int]) -> bool:
    """Whether the newest calls (ns each, in order) look steady (measurement.md section 12).

    The first remaining value lies within Q3 + 1.5 IQR of the rest, and the two halves agree in median, quartiles and MAD
    to 10 % or 5 µs. The mean is not asked to agree: one preempted call would hold a warm-up for ever.
    """
    if len(durations_ns) < 2 * MINIMUM:
        return False
    values = list(durations_ns[-WINDOW:])
    # Leading slow calls are what warm-up is for: drop them from the look, and ask the rest to be steady.
    while len(values) > 2 * MINIMUM and not _first_fits(values):
        values = values[1:]
    if not _first_fits(values):
        return False
    half = len(values) // 2
    first, second = _shape(values[:half]), _shape(values[half:])
    return all(
        abs(a - b) <= max(_ABSOLUTE_NS, _RELATIVE * max(abs(a), abs(b))) for a, b in zip(first, second, strict=True)
    )


def _first_fits(values: Sequence[int]) -> bool:
    q1, _, q3 = statistics.quantiles(values[1:], n=4)
    return values[0] <= q3 + 1.5 * (q3 - q1) + _ABSOLUTE_NS


def _shape(values: Sequence[int]) -> tuple[float, float, float, float]:
    q1, q2, q3 = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return q2, q1, q3, statistics.median(abs(v - q2) for v in values)


def steady_from(durations_ns: Sequence[int]) -> int | None:
    """1-based number of the first call from which all later ones lie within the steady range, or None if there is none.

    Steady range: up to Q3 + 3 IQR of the second half, plus the noise floor.
    """
    if len(durations_ns) < 2 * MINIMUM:
        return None
    q1, _, q3 = statistics.quantiles(durations_ns[len(durations_ns) // 2 :], n=4)
    limit = q3 + 3 * (q3 - q1) + _ABSOLUTE_NS
    for index in range(len(durations_ns) - 1, -1, -1):
        if durations_ns[index] > limit:
            return None if index == len(durations_ns) - 1 else index + 2
    return 1


def warmup_limit(period_ns: int, maximum: int, seconds: float = 5.0) -> int:
    """Calls after which warm-up stops unsettled: `seconds` at the control rate, at least 60, at most `maximum`."""
    by_rate = int(seconds * 1e9 / period_ns) if period_ns else maximum
    return max(min(by_rate, maximum), min(60, maximum))
