"""A clock that only moves when told to, a runner of scripted durations, and a recorder that keeps rows in lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


class FakeClock:
    """Waits take exactly `overshoot(k-th wait)` ns too long; work moves the clock by what it takes."""

    def __init__(self, overshoot: Callable[[int], int] = lambda _: 0) -> None:
        self.time_ns = 0
        self.waits = 0
        self._overshoot = overshoot

    def now(self) -> int:
        return self.time_ns

    def wait(self, until_ns: int) -> int:
        assert until_ns > self.time_ns, "the loop must not wait for a release that has passed"
        self.time_ns = until_ns + self._overshoot(self.waits)
        self.waits += 1
        return self.now()


class Rows:
    """The recorder's interface over lists."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []

    def begin(self, step: int, release_ns: int, wake_ns: int, start_ns: int) -> None:
        self.rows.append({"step": step, "release_ns": release_ns, "wake_ns": wake_ns, "start_ns": start_ns})

    def finish(
        self,
        start_ns: int,
        enqueue_end_ns: int,
        end_ns: int,
        device_ns: int = -1,
        stages: Sequence[int] | None = None,
    ) -> None:
        self.rows[-1] |= {
            "start_ns": start_ns,
            "enqueue_end_ns": enqueue_end_ns,
            "end_ns": end_ns,
            "device_ns": device_ns,
        }
        if stages is not None:
            self.rows[-1]["stages"] = tuple(stages)  # type: ignore[assignment]

    def own(self, own_ns: int) -> None:
        self.rows[-1]["own_ns"] = own_ns

    def column(self, name: str) -> list[int]:
        return [row[name] for row in self.rows]


class ScriptedRunner:
    """Each call moves the clock by the next scripted duration."""

    def __init__(self, clock: FakeClock, durations_ns: Callable[[int], int]) -> None:
        self._clock, self._durations, self.calls = clock, durations_ns, 0

    def step(self, observation: object) -> list[np.ndarray]:
        self._clock.time_ns += self._durations(self.calls)
        self.calls += 1
        return [np.zeros((1, 2), np.float32)]


class NoObservations:
    def reader(self) -> Callable[[int], tuple[np.ndarray, ...]]:
        return lambda k: ()
