"""The four arrangements of `ros_arrangements.py`: who waits for the release, and who takes the messages.

Each is `run(asked, node, executor, subscription, inbox, step, period, place)` and returns after `asked.seconds` and one more,
which is warm-up.
"""

from __future__ import annotations

import time
from typing import Any


def grid(asked: Any, period: int, step: Any, before: Any, until: float) -> None:
    """The library's absolute grid with skip, as `robot_perf.measure.loop` runs it."""
    from robot_perf.measure.clock import absolute_sleep

    stop = [False]
    wait = absolute_sleep(stop)
    origin, k = time.monotonic_ns() + period, 0
    while time.monotonic() < until:
        release = origin + k * period
        wait(release)
        before()
        end = step(release)
        k = max(k + 1, -((origin - end) // period))


def run_timer(
    asked: Any, node: Any, executor: Any, subscription: Any, inbox: Any, step: Any, period: int, place: Any
) -> None:
    """A steady ROS timer; rcl keeps an absolute grid of its own, whose phase `timer_releases` finds afterwards."""
    from rclpy.clock import Clock, ClockType

    settle(asked, executor, inbox)
    node.create_timer(period / 1e9, lambda: step(time.monotonic_ns()), clock=Clock(clock_type=ClockType.STEADY_TIME))
    until = time.monotonic() + asked.seconds + 1
    while time.monotonic() < until:
        executor.spin_once(timeout_sec=0.1)


def timer_releases(called: Any, period: int) -> Any:
    """The grid points of the calls. The grid's phase is that of the earliest calls (p1), so the timer's own latency is a lower bound."""
    import numpy as np

    angle = np.angle(np.exp(2j * np.pi * ((called - called[0]) % period) / period).mean()) / (2 * np.pi)
    middle = called[0] + round(angle * period)
    residual = (called - middle + period // 2) % period - period // 2
    phase = middle + int(np.percentile(residual, 1))
    releases = phase + np.floor((called - phase) / period + 0.05).astype(np.int64) * period
    return np.minimum(releases, called)


def run_thread(
    asked: Any, node: Any, executor: Any, subscription: Any, inbox: Any, step: Any, period: int, place: Any
) -> None:
    """The loop in a thread, the executor in the main one."""
    settle(asked, executor, inbox)
    until = time.monotonic() + asked.seconds + 1
    place.start(lambda: grid(asked, period, step, lambda: None, until))
    while not place.join(0):
        executor.spin_once(timeout_sec=0.1)


def run_polled(
    asked: Any, node: Any, executor: Any, subscription: Any, inbox: Any, step: Any, period: int, place: Any
) -> None:
    """One thread."""
    settle(asked, executor, inbox)
    grid(asked, period, step, lambda: executor.spin_once(timeout_sec=0), time.monotonic() + asked.seconds + 1)


def run_direct(
    asked: Any, node: Any, executor: Any, subscription: Any, inbox: Any, step: Any, period: int, place: Any
) -> None:
    """Takes from the subscription's own handle: what the executor does, without its wait set."""
    kind = subscription.msg_type

    def take() -> None:
        with subscription.handle:
            while (found := subscription.handle.take_message(kind, False)) is not None:
                inbox.put(found[0], time.monotonic_ns())

    until = time.monotonic() + 20
    while not inbox.received and time.monotonic() < until:
        take()
        time.sleep(0.01)
    grid(asked, period, step, take, time.monotonic() + asked.seconds + 1)


def settle(asked: Any, executor: Any, inbox: Any) -> None:
    """Until observations flow."""
    until = time.monotonic() + 20
    while not inbox.received and time.monotonic() < until:
        executor.spin_once(timeout_sec=0.1)


RUNS = {"timer": run_timer, "thread": run_thread, "polled": run_polled, "direct": run_direct}
