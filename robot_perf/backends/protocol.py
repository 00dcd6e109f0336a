"""The contract between a backend and the loop.

A backend is a module with three functions:

    unavailable() -> str | None            why it can't run here, with the install line; None when it can
    takes(policy: PolicySpec) -> str | None     why it can't take this policy's format; None when it can
    load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner

It never reads a clock around a policy: only `robot_perf.measure.step` does. It never falls back to another backend,
provider or device: it raises `PolicyError` or `BackendUnavailableError`. The measured worker imports it, so a backend imports
nothing but numpy, its own runtime and `robot_perf.errors|specs|policies` pieces that import no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robot_perf.specs import PolicySpec

# Among `reasons()`: why torch has compiled nothing of a policy by now, though that was asked for. No event that is counted.
NOTHING_COMPILED = "nothing compiled"

Array = NDArray[Any]
Arrays = Sequence[Array]


class Runner(Protocol):
    """A loaded policy. One thread uses it: the one that loaded it."""

    spec: PolicySpec  # resolved: inputs, outputs, action and state are known

    def step(self, observation: Arrays) -> Arrays:
        """All outputs by position, on the host and complete, for one control step.

        `observation` holds the arrays of `spec.fed` in that order, each of its declared dtype and shape. Nobody writes into them
        afterwards: the policy may keep them. State is carried inside. The returned arrays are valid until the next call.
        """
        ...

    def reset(self) -> None:
        """Puts the state back to what it was right after loading."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Events that must not happen inside the measured window (compiles, graph breaks, fallbacks); empty if none can."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """JSON for the report: versions, threads, provider, what was captured, what the action is waited for with."""
        ...

    def close(self) -> None:
        """Frees what the runner holds."""
        ...


@runtime_checkable
class DeviceRunner(Protocol):
    """A runner whose work is queued on a device: `step` is `enqueue` then `finish`."""

    def enqueue(self, observation: Arrays) -> None:
        """Queues copies and kernels of one step; returns without waiting."""
        ...

    def finish(self) -> Arrays:
        """Waits until the action is usable on the host and returns all outputs by position."""
        ...

    def device_ns(self) -> int:
        """Device time of the last finished step from adjacent event pairs, ns; -1 if marks are off."""
        ...

    def pending(self) -> bool:
        """True while device work of the last step is unfinished: after `finish` it makes the Run INVALID."""
        ...


@runtime_checkable
class PhasedRunner(Protocol):
    """A device runner that can be taken apart: `enqueue` is `prepare` then `launch`, `finish` is `wait` then `collect`.

    `measure.step` stamps between these calls in a pass of its own, after the measured window: the marks on the device cost a
    few µs, which the window shall not carry. Further, optional attributes of a device runner: `rehearse_on(observation)` and `touch()`
    for keep-warm, `poison()` for the truth gate, `examine()` for facts that are looked up when nothing is measured any more.
    """

    def prepare(self, observation: Arrays) -> None:
        """Host prepare: the observation into pinned memory."""
        ...

    def launch(self) -> None:
        """Queues the copies and the policy."""
        ...

    def wait(self) -> None:
        """Returns when the answers are on the host."""
        ...

    def collect(self) -> Arrays:
        """Host finish: the outputs by position."""
        ...

    def mark_phases(self, on: bool) -> None:
        """Turns the events between the phases on or off; may capture a second, marked graph."""
        ...

    def phases_ns(self) -> tuple[int, int, int]:
        """Device time of the last marked step from adjacent event pairs: host to device, policy, device to host."""
        ...


@runtime_checkable
class StagedRunner(Protocol):
    """A pipeline: `measure.step` calls the stages in order and stamps between them; together they are one step.

    Optional attributes, for stages on a device: `poison()`, `pending()`, `reasons()`, `examine()`. It has no marks and no phases.
    """

    stage_names: tuple[str, ...]

    def run_stage(self, index: int, observation: Arrays) -> None:
        """Runs one stage on the host; stage 0 reads the observation."""
        ...

    def outputs(self) -> Arrays:
        """All outputs of the last stage run, by position of `spec.outputs`."""
        ...


def empty_outputs(policy: PolicySpec) -> list[Array]:
    """One zeroed array per output of a resolved policy."""
    return [np.zeros(t.shape, t.dtype) for t in policy.outputs]
