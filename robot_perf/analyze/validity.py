"""Can the measurement be trusted? Every reason why not: any makes the verdict INVALID (measurement.md §2, §9)."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence

import numpy as np

from robot_perf.analyze.conditions import check_run, mapping, sequence
from robot_perf.errors import RunFileError
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run
from robot_perf.units import format_count, format_duration

__all__ = ["CLOCK_TOLERANCE", "clock_anomaly", "invalid_reasons"]

CLOCK_TOLERANCE = 1e-3  # above the 5e-4 to which clock discipline may slew
_SUSTAINED = 3  # intervals in a row: a step shows in one, a preempted reading in two of opposite sign


def invalid_reasons(run: Run) -> tuple[str, ...]:
    """All reasons: an early end, the recorder's own, what the rows show; empty for a run that can be trusted."""
    check_run(run)
    reasons = [str(reason) for reason in sequence(run, "invalid")]
    reasons = [*_interrupted(run), *(r for r in reasons if r not in str(run.conditions["state"]))]
    reasons += [*_negative(run), *_inconsistent(run), *_gaps(run)]
    anomaly = clock_anomaly(_clock_samples(run))
    if anomaly:
        reasons.append(anomaly)
    return tuple(dict.fromkeys(reasons))


def _interrupted(run: Run) -> Iterator[str]:
    state = str(run.conditions["state"])
    if state != "complete":
        steps = run.columns["step"]
        reached = max(0, int(steps.max()) + 1) if len(steps) else 0
        count = f"{format_count(reached)} of {format_count(run.scheduled)} releases"
        told = any(words in state for words in (" of ", "warm-up", "while the policy was loading"))
        yield state if told else f"{state} after {count}"


def _negative(run: Run) -> Iterator[str]:
    """A stamp before the one that must precede it is an error with both stamps; it is never clamped or dropped."""
    c = run.columns
    finished = c["end_ns"] != NOT_MEASURED
    waited = c["wake_ns"] != NOT_MEASURED
    begun = c["start_ns"] != NOT_MEASURED
    ordered = (
        ("wake_ns", "release_ns", waited),
        ("start_ns", "release_ns", begun),
        ("start_ns", "wake_ns", waited & begun),
        ("end_ns", "start_ns", finished),
    )
    for later, earlier, rows in ordered:
        bad = np.flatnonzero(rows & (c[later] < c[earlier]))
        if len(bad):
            i = bad[0]
            yield (
                f"negative duration: {later} {c[later][i]} lies before {earlier} {c[earlier][i]} at step {c['step'][i]}"
                f" (monotonic clock, ns; {format_count(len(bad))} such steps)"
            )
    both = finished[:-1] & begun[1:]
    overlap = np.flatnonzero(both & (c["start_ns"][1:] < c["end_ns"][:-1]))
    if len(overlap):
        i = overlap[0]
        yield (
            f"negative duration: step {c['step'][i + 1]} starts at {c['start_ns'][i + 1]}, before step {c['step'][i]}"
            f" finished at {c['end_ns'][i]} (monotonic clock, ns)"
        )


def _inconsistent(run: Run) -> Iterator[str]:
    steps = run.columns["step"]
    beyond = int(np.count_nonzero(steps >= run.scheduled))
    if beyond:
        words = "1 step lies" if beyond == 1 else f"{format_count(beyond)} steps lie"
        yield f"{words} beyond the {format_count(run.scheduled)} scheduled releases"
    if np.any(np.diff(steps) <= 0):
        yield "the step numbers do not rise from row to row"
    executed = run.conditions.get("executed")
    seen = int(np.count_nonzero((steps >= 0) & (run.columns["end_ns"] != NOT_MEASURED)))
    if isinstance(executed, int) and executed != seen:
        yield f"the recorder counted {format_count(executed)} executed steps and the Run holds {format_count(seen)}"
    if run.loop.period_ns == 0 or run.loop.shape != "absolute" or not len(steps):
        return
    inside = steps >= 0
    grid = run.columns["release_ns"][inside] - steps[inside] * run.loop.period_ns
    if len(grid) and np.any(grid != grid[0]):
        at = steps[inside][np.flatnonzero(grid != grid[0])[0]]
        yield f"the release of step {at} is off the grid r_0 + k * {format_duration(run.loop.period_ns)}"


def _gaps(run: Run) -> Iterator[str]:
    """Under `skip` exactly the releases at which the previous job still ran are missing, under `queue` none."""
    if run.loop.period_ns == 0 or run.loop.shape != "absolute" or run.conditions["state"] != "complete":
        return
    inside = run.columns["step"] >= 0
    steps, end = run.columns["step"][inside], run.columns["end_ns"][inside]
    if run.loop.overrun == "queue":
        if len(steps) != run.scheduled:
            yield (
                f"{format_count(len(steps))} steps of {format_count(run.scheduled)} releases under the overrun policy"
                " queue, which drops none"
            )
        return
    if not len(steps):
        return
    period = run.loop.period_ns
    origin = int(run.columns["release_ns"][inside][0]) - int(steps[0]) * period
    following = np.append(steps[1:], run.scheduled)
    # The loop's own rule: the first release at or after the finish. Only the finish counts: own work after it makes
    # the next step start late, it drops nothing. Releases before the first row may belong to the block before.
    due = np.maximum(steps + 1, -((origin - end) // period))
    finished = end != NOT_MEASURED
    lost = np.flatnonzero(finished & (following > due))
    if len(lost):
        i = int(lost[0])
        first, last = int(due[i]), int(following[i]) - 1
        which = f"release {first} has" if first == last else f"releases {first} to {last} have"
        yield f"{which} no step although step {steps[i]} had finished before: rows are missing"
    early = np.flatnonzero((finished & (following < due))[:-1])
    if len(early):
        i = int(early[0])
        yield f"step {following[i]} ran although step {steps[i]} still ran at its release, which skip drops"


def _clock_samples(run: Run) -> Sequence[Sequence[int]]:
    samples = mapping(run, "clock").get("samples")
    if samples is None:
        return ()
    if not isinstance(samples, (list, tuple)) or not all(_is_pair(sample) for sample in samples):
        raise RunFileError("the Run's condition clock.samples is damaged", why="Allowed: pairs of whole nanoseconds.")
    return samples


def _is_pair(sample: object) -> bool:
    whole = isinstance(sample, (list, tuple)) and len(sample) == 2 and all(type(v) is int for v in sample)
    return whole and all(abs(v) < 2**62 for v in typing.cast(Sequence[int], sample))


def clock_anomaly(samples: Sequence[Sequence[int]]) -> str | None:
    """A sustained difference between the rates of the wall clock and the monotonic one; a single step is harmless.

    `samples` holds (monotonic ns, wall ns) about once a second. Sustained: the same sign and more than 1e-3 in three
    intervals in a row.
    """
    if len(samples) < _SUSTAINED + 1:
        return None
    elapsed = np.diff(np.asarray(samples, dtype=np.int64), axis=0)
    if np.any(elapsed[:, 0] <= 0):
        return "clock anomaly: the monotonic clock stood still or ran backwards between two samples"
    rate = (elapsed[:, 1] - elapsed[:, 0]) / elapsed[:, 0]
    sign = np.where(np.abs(rate) > CLOCK_TOLERANCE, np.sign(rate), 0)
    for i in range(len(sign) - _SUSTAINED + 1):
        window = sign[i : i + _SUSTAINED]
        if window[0] and np.all(window == window[0]):
            mean = float(np.mean(rate[i : i + _SUSTAINED]))
            return (
                f"clock anomaly: the wall clock's rate differed by {mean:+.2e} from the monotonic clock's over"
                f" {_SUSTAINED} samples in a row (allowed {CLOCK_TOLERANCE:g})"
            )
    return None
