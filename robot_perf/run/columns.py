"""The columns of a step row. All int64; -1 = not measured. Later columns append; readers take columns by name."""

from __future__ import annotations

NOT_MEASURED = -1

STEP_COLUMNS: tuple[str, ...] = (
    "step",  # index on the release grid; negative in warm-up
    "release_ns",  # CLOCK_MONOTONIC, intended
    "wake_ns",  # first instruction after the wait; -1 where the loop was late and did not wait
    "start_ns",  # the policy call begins; written before the call, so that a hang is seen
    "enqueue_end_ns",  # device work queued
    "end_ns",  # the action is usable on the host
    "device_ns",  # device time of the step
    "nvcsw",  # voluntary context switches of the loop thread during the step (getrusage, RUSAGE_THREAD)
    "nivcsw",  # involuntary ones
    "minflt",  # minor page faults
    "majflt",  # major page faults
    "gc_ns",  # Python garbage collection inside the period
    "cpu",  # processor that the step ended on
    "own_ns",  # the harness's own work: wake to start plus end to ready
)


def stage_column(name: str) -> str:
    """The column with the time at which a pipeline's stage ended, ns of CLOCK_MONOTONIC."""
    return f"stage_end_ns.{name}"
