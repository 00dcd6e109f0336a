"""The runner of every backend that queues work on a device: pinned arrays on the host side, a `Work` on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from robot_perf.backends.protocol import Array, Arrays
from robot_perf.backends.shared.closed import closed
from robot_perf.specs import PolicySpec


class Work(Protocol):
    """What a device backend supplies. `staged` and `answers` are host arrays that the device's copies read and fill."""

    staged: list[Array]  # one per fed input
    answers: list[Array]  # one per output, by position

    launch: Callable[[], None]  # queues the step: host to device, policy, state, device to host

    wait: Callable[[], None]  # returns when `answers` are complete
    busy: Callable[[], bool]  # True while queued work is unfinished

    def device_ns(self) -> int:
        """Device time of the last step; -1 without marks."""
        ...

    def mark_phases(self, on: bool) -> None:
        """From now on each step carries events between its phases, or no more."""
        ...

    def phases_ns(self) -> tuple[int, int, int]:
        """Device time of the last marked step: host to device, policy, device to host. 0 for a phase that does not exist."""
        ...

    @property
    def keep(self) -> Callable[[], None] | None:
        """Queues a copy of the state aside; None where a step leaves nothing behind."""
        ...

    def put_back(self) -> None:
        """The state as `keep` found it, complete on return."""
        ...

    def poison(self) -> None:
        """Overwrites the device's own output buffers, where they outlive a step."""
        ...

    def reset(self) -> None:
        """The state as after loading, complete on return."""
        ...

    def state(self) -> Mapping[str, Array]:
        """Carried values by name."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Events that must not happen inside the window."""
        ...

    def reasons(self) -> Mapping[str, str]:
        """The latest reason of an event, by its name."""
        ...

    def examine(self) -> Mapping[str, Any]:
        """What is looked up after the last window, because looking disturbs."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """JSON for the report."""
        ...

    def close(self) -> None:
        """Frees device and pinned memory."""
        ...


class QueuedRunner:
    """`Runner`, `DeviceRunner` and `PhasedRunner` of `backends.protocol` over a `Work`.

    The arrays that `finish` returns are the pinned ones: valid until the next call, and no copy is made of them. A rehearsal
    overwrites them while it runs and puts them back.
    """

    def __init__(self, policy: PolicySpec, work: Work) -> None:
        self.spec = policy
        self.work = work
        self._staged = list(work.staged)
        self._answers = list(work.answers)
        self.launch: Callable[[], None] = work.launch
        self.wait: Callable[[], None] = work.wait
        calls = self._calls = _Calls(self._staged, self._answers, work.launch, work.wait)
        # Host prepare: the observation into pinned memory.
        self.prepare: Callable[[Arrays], None] = calls.prepare
        self.enqueue: Callable[[Arrays], None] = calls.enqueue
        self.finish: Callable[[], Arrays] = calls.finish
        self.pending: Callable[[], bool] = work.busy
        self.device_ns: Callable[[], int] = work.device_ns
        self._kept = [array.copy() for array in self._answers]
        self.phases_ns = work.phases_ns
        touch = getattr(work, "touch", None)
        if touch is not None:
            self.touch: Callable[[], None] = touch

    def mark_phases(self, on: bool) -> None:
        """From now on each step carries events between its phases, or no more."""
        self.work.mark_phases(on)
        self.launch = self.work.launch
        self._calls.launch_with(self.launch)

    def collect(self) -> Arrays:
        """The answers of the last step."""
        return self._answers

    def step(self, observation: Arrays) -> Arrays:
        """All outputs by position, on the host and complete."""
        self.enqueue(observation)
        return self.finish()

    def rehearse_on(self, observation: Arrays) -> None:
        """A whole step for keep-warm, through the very calls of a step; the state and the last answers are as before.

        The same calls, graph and buffers on purpose: what is cold after an idle period is the host's path to the device.
        """
        keep, work = self.work.keep, self.work
        for kept, answer in zip(self._kept, self._answers):  # noqa: B905 - made from each other
            kept[...] = answer
        if keep is not None:
            keep()
        self.enqueue(observation)
        self.finish()
        if keep is not None:
            work.put_back()
        for kept, answer in zip(self._kept, self._answers):  # noqa: B905 - made from each other
            answer[...] = kept

    def poison(self) -> None:
        """Overwrites every place an answer could be left over in: a step that writes nothing is then seen."""
        self.work.poison()
        for array in self._answers:
            poison_array(array)

    def reset(self) -> None:
        """The state as after loading."""
        self.work.reset()

    def state(self) -> Mapping[str, Array]:
        """Carried values by name, copied to the host."""
        return self.work.state()

    def counters(self) -> Mapping[str, int]:
        """Events that must not happen inside the window."""
        return self.work.counters()

    def reasons(self) -> Mapping[str, str]:
        """The latest reason of an event, by its name."""
        return self.work.reasons()

    def facts(self) -> Mapping[str, Any]:
        """JSON for the report."""
        return self.work.facts()

    def examine(self) -> Mapping[str, Any]:
        """Facts that are looked up once nothing is measured any more (kernels and launches per step)."""
        return self.work.examine()

    def close(self) -> None:
        """Frees what the work holds; nothing here keeps it alive after that."""
        self._answers = self._staged = []
        self._calls.close()
        self.launch = self.wait = closed
        self.work.close()


class _Calls:
    """`prepare`, `enqueue` and `finish` of a runner: closures over just what they touch, not methods that call methods.

    Woken with cold caches, each frame and object on the way costs: beside a hand-written loop of calls that do nothing, methods
    added 5.4 µs to a step (4.8 to 5.6 in three processes) and these 1.3 (-1.2 to 3.0), by `benchmarks/minimal_graph_loop.py
    --backend stand-in --rates 200 --touch-mb 16`, two processors of a virtual machine, in turn, n 1,200 each.
    """

    def __init__(
        self, staged: Sequence[Array], answers: Arrays, launch: Callable[[], None], wait: Callable[[], None]
    ) -> None:
        places: Any = staged[0] if len(staged) == 1 else staged

        def prepare_one(observation: Arrays) -> None:
            places[...] = observation[0]

        def enqueue_one(observation: Arrays) -> None:
            places[...] = observation[0]
            launch()

        def prepare_all(observation: Arrays) -> None:
            for place, array in zip(places, observation):  # noqa: B905 - lengths are fixed by spec.fed
                place[...] = array

        def enqueue_all(observation: Arrays) -> None:
            for place, array in zip(places, observation):  # noqa: B905 - lengths are fixed by spec.fed
                place[...] = array
            launch()

        def finish() -> Arrays:
            wait()
            return answers

        def launch_with(other: Callable[[], None]) -> None:
            nonlocal launch
            launch = other

        def close() -> None:
            # A step that was made before may still be called: it must find nothing of what is freed.
            nonlocal launch, wait, places, answers
            launch = wait = closed
            places, answers = _Closed(), ()

        self.prepare, self.enqueue = (prepare_one, enqueue_one) if len(staged) == 1 else (prepare_all, enqueue_all)
        self.finish, self.launch_with, self.close = finish, launch_with, close


class _Closed:
    __setitem__ = __iter__ = closed


def poison_array(array: Array) -> None:
    """NaN in floating-point arrays, True in boolean ones, the byte 0xAB elsewhere: what no sound step leaves behind."""
    if array.dtype.kind in "fc":
        array.fill(np.nan)
    else:
        array.view(np.uint8)[...] = 0xAB if array.dtype != np.bool_ else 1
