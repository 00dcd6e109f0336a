"""The loop's own thread, interrupted: a called job as by Ctrl-C in a main thread, a started loop never, the thread itself never."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from robot_perf.measure.node.thread import OwnThread


@pytest.fixture
def place() -> Iterator[OwnThread]:
    made = OwnThread()
    yield made
    assert made._thread.is_alive()
    assert made.call(lambda: "usable") == "usable"
    made.close()
    assert not made._thread.is_alive()


def called(place: OwnThread, job: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """`place.call(job)` by another thread, and what became of it."""
    outcome: list[Any] = []

    def call() -> None:
        try:
            outcome.append(place.call(job))
        except KeyboardInterrupt:
            outcome.append(KeyboardInterrupt)

    caller = threading.Thread(target=call)
    caller.start()
    return caller, outcome


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_called_job_is_interrupted_once_so_that_it_can_tidy_up(place: OwnThread) -> None:
    reached: list[str] = []

    def job() -> None:
        try:
            reached.append("working")
            while True:
                time.sleep(0.001)
        finally:
            reached.append("tidying")
            for _ in range(200):
                time.sleep(0.001)
            reached.append("tidy")

    caller, outcome = called(place, job)
    until(lambda: "working" in reached)
    place.interrupt()
    until(lambda: "tidying" in reached)
    place.interrupt()
    caller.join(10)
    assert outcome == [KeyboardInterrupt] and reached == ["working", "tidying", "tidy"]


def test_a_call_into_a_library_returns_first(place: OwnThread) -> None:
    inside = threading.Event()
    begin = time.monotonic()
    caller, outcome = called(place, lambda: (inside.set(), time.sleep(0.5), "returned"))
    inside.wait(10)
    place.interrupt()
    assert not place.join(0.1)
    caller.join(10)
    assert outcome == [KeyboardInterrupt] and time.monotonic() - begin >= 0.5


def test_neither_a_thread_that_waits_nor_a_started_loop_is_interrupted(place: OwnThread) -> None:
    place.interrupt()
    assert place.call(lambda: 1) == 1
    stop, turns = threading.Event(), [0]

    def loop() -> None:
        while not stop.is_set():
            turns[0] += 1
            time.sleep(0.001)

    place.start(loop)
    until(lambda: turns[0] > 5)
    place.interrupt()
    seen = turns[0]
    until(lambda: turns[0] > seen + 5)
    stop.set()
    assert place.join(10)


def test_one_that_comes_as_the_job_ends_hits_the_job_or_nothing(place: OwnThread) -> None:
    """Outside of the job it would end the thread, and nobody could free the policy any more."""
    length_s, outcomes = 2e-4, set()

    def job() -> str:
        end = time.perf_counter() + length_s
        while time.perf_counter() < end:
            pass
        return "done"

    for turn in range(400):
        caller, outcome = called(place, job)
        end = time.perf_counter() + length_s * (0.5 + turn % 40 / 20)
        while time.perf_counter() < end:
            pass
        place.interrupt()
        caller.join(10)
        outcomes.update(outcome)
        assert place.join(10) and place._thread.is_alive(), turn
    assert outcomes <= {"done", KeyboardInterrupt} and "done" in outcomes
