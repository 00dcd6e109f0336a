"""A long run minute by minute: response, temperature, clocks; the first five minutes against the last; where throttling began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from robot_perf.analyze.timeline import timeline
from robot_perf.run.model import Run
from robot_perf.stats import contrast
from robot_perf.stats.ranks import smallest_n

__all__ = ["Minute", "Soak", "Stretch", "soak_of"]

MINUTE_NS = 60 * 10**9
STRETCH_NS = 5 * MINUTE_NS
_MOST_MINUTES = 7 * 24 * 60  # a table longer than a week's is read by nobody
CLOCK_DROP = 0.05  # below the highest clock of the first minute
_P99 = Fraction(99, 100)
_HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute. Response in ns of executed steps; None where there are too few or nothing was read."""

    minute: int
    executed: int
    misses: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    host_c: float | None
    device_c: float | None
    cpu_hz: float | None
    device_hz: float | None
    power_w: float | None
    throttle: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The first stretch against the last: medians, p99, and the interval of the difference of medians, ns."""

    seconds: float
    first_p50_ns: int
    last_p50_ns: int
    first_p99_ns: int | None
    last_p99_ns: int | None
    difference_low_ns: int
    difference_high_ns: int


@dataclass(frozen=True, slots=True)
class Soak:
    """`onset` says when a clock fell or a throttle reason came up first; None when neither was seen in what was `watched`."""

    minutes: tuple[Minute, ...]
    stretch: Stretch | None
    onset: str | None
    onset_s: float | None
    unread: tuple[str, ...]
    watched: tuple[str, ...] = ()  # what would have shown a throttling; empty: nothing could have


def soak_of(run: Run) -> Soak | None:
    """The soak of a Run that was sampled; None for one that was not."""
    kept = run.conditions.get("soak")
    if not isinstance(kept, Mapping):
        return None
    line = timeline(run)
    if not line.executed:
        return Soak((), None, None, None, ("no step finished",))
    origin = int(line.release[0]) - int(line.step[0]) * line.period_ns  # the release of step 0
    samples = [s for s in _samples(kept) if s["at_ns"] >= origin]
    since = line.release - origin
    count = min(int(since[-1] // MINUTE_NS) + 1, _MOST_MINUTES)
    minutes = tuple(_minute(i, line, since, origin, samples) for i in range(count))
    onset = _onset(samples, origin)
    return Soak(minutes, _stretch(line.response_ns, since), *onset, _unread(samples), _watched(samples))


def _samples(kept: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The samples of a Run file, which anybody may have written: those with a time, their throttle reasons a list of text."""
    found = kept.get("samples")
    timed = (
        [s for s in found if isinstance(s, Mapping) and isinstance(s.get("at_ns"), int)]
        if isinstance(found, list)
        else []
    )
    return [{**s, "throttle": s["throttle"] if _words(s.get("throttle")) else None} for s in timed]


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _minute(i: int, line: Any, since: Any, origin: int, samples: Sequence[Mapping[str, Any]]) -> Minute:
    inside = (since >= i * MINUTE_NS) & (since < (i + 1) * MINUTE_NS)
    values = line.response_ns[inside]
    # a release belongs to the minute in which it falls, as its step does: the first at or after the minute's begin
    first, beyond = (-(-at * MINUTE_NS // max(line.period_ns, 1)) for at in (i, i + 1))
    releases = line.miss[first:beyond]
    seen = [s for s in samples if i * MINUTE_NS <= s["at_ns"] - origin < (i + 1) * MINUTE_NS]
    return Minute(
        minute=i + 1,
        executed=len(values),
        misses=int(np.count_nonzero(releases)),
        p50_ns=_quantile(values, _HALF),
        p99_ns=_quantile(values, _P99),
        max_ns=int(values.max()) if len(values) else None,
        host_c=_most(seen, "host_c"),
        device_c=_most(seen, "device_c"),
        cpu_hz=_least(seen, "cpu_hz"),
        device_hz=_least(seen, "device_hz"),
        power_w=_mean(seen, "power_w"),
        throttle=tuple(dict.fromkeys(r for s in seen for r in s["throttle"] or ())),
    )


def _quantile(values: Any, p: Fraction) -> int | None:
    return int(contrast.quantile(values, p)) if len(values) >= smallest_n(p, 0.95) else None


def _known(samples: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [float(s[key]) for s in samples if isinstance(s.get(key), (int, float))]


def _most(samples: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return max(_known(samples, key), default=None)


def _least(samples: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return min(_known(samples, key), default=None)


def _mean(samples: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = _known(samples, key)
    return sum(values) / len(values) if values else None


def _stretch(response: Any, since: Any) -> Stretch | None:
    """Five minutes each, or the two halves of a run shorter than ten."""
    length = min(STRETCH_NS, int(since[-1]) // 2)
    first, last = response[since < length], response[since >= int(since[-1]) - length]
    if min(len(first), len(last)) < smallest_n(_HALF, 0.95):
        return None
    d = contrast.median_difference(first, last)
    return Stretch(
        seconds=length / 1e9,
        first_p50_ns=round(d.a),
        last_p50_ns=round(d.b),
        first_p99_ns=_quantile(first, _P99),
        last_p99_ns=_quantile(last, _P99),
        difference_low_ns=round(d.low),
        difference_high_ns=round(d.high),
    )


def _onset(samples: Sequence[Mapping[str, Any]], origin: int) -> tuple[str | None, float | None]:
    """The first sample with a throttle reason, or with a device clock below 95 % of the first minute's highest."""
    early = _known([s for s in samples if s["at_ns"] - origin < MINUTE_NS], "device_hz")
    highest = max(early, default=None)
    for sample in samples:
        at = (sample["at_ns"] - origin) / 1e9
        if sample["throttle"]:
            return f"throttled: {', '.join(sample['throttle'])}", at
        clock = sample.get("device_hz")
        if highest and isinstance(clock, (int, float)) and clock < (1 - CLOCK_DROP) * highest:
            return f"clock fell to {clock / 1e6:.0f} MHz from {highest / 1e6:.0f} MHz", at
    return None, None


def _watched(samples: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    names = []
    if _known(samples, "device_hz"):
        names.append("the device's clock")
    if any(s["throttle"] is not None for s in samples):
        names.append("its throttle reasons")
    return tuple(names)


def _unread(samples: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    names = {
        "host_c": "host temperature",
        "device_c": "device temperature",
        "cpu_hz": "processor clock",
        "device_hz": "device clock",
    }
    return tuple(words for key, words in names.items() if not _known(samples, key))
