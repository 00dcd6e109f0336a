"""The clock of record, CLOCK_MONOTONIC in integer ns, and the three ways to wait for a release on it."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable
from typing import Protocol

from robot_perf.errors import RobotPerfError

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
NS_PER_S = 1_000_000_000
Wait = Callable[[int], int]


class Clock(Protocol):
    """What the loop needs of a clock; tests give it a fake one."""

    def now(self) -> int:
        """CLOCK_MONOTONIC, ns."""
        ...

    def wait(self, until_ns: int) -> int:
        """Returns the reading that ended it, at or after until_ns; earlier only when a stop was asked for."""
        ...


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


def absolute_sleep(stop: list[bool]) -> Wait:
    """A wait on clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME): it sleeps again after an early return.

    The timespec is made once and the call goes through ctypes, which releases the interpreter lock; Python's own
    time.sleep takes a relative float (and on 3.10 goes through select).
    """
    nanosleep = ctypes.CDLL(None).clock_nanosleep
    nanosleep.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    nanosleep.restype = ctypes.c_int
    target = _Timespec()
    address = ctypes.addressof(target)
    now = time.monotonic_ns

    def wait(until_ns: int) -> int:
        target.tv_sec, target.tv_nsec = divmod(until_ns, NS_PER_S)
        while True:
            code = nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, address, None)
            woken = now()  # the first thing after the wake-up: whatever comes before it is in every wake-up latency
            if woken >= until_ns or stop[0]:
                return woken
            if code not in (0, errno.EINTR):
                raise RobotPerfError("clock_nanosleep failed", why=os.strerror(code))

    return wait


def spin(stop: list[bool]) -> Wait:
    """A wait that reads the clock until it is time. It takes a whole core."""
    now = time.monotonic_ns

    def wait(until_ns: int) -> int:
        while True:
            read = now()
            if read >= until_ns or stop[0]:
                return read

    return wait


def hybrid(stop: list[bool], margin_ns: int) -> Wait:
    """Sleeps until `margin_ns` before the release, then spins. It takes margin / period of a core."""
    sleep, busy = absolute_sleep(stop), spin(stop)

    def wait(until_ns: int) -> int:
        sleep(until_ns - margin_ns)
        return busy(until_ns)

    return wait


class MonotonicClock:
    """CLOCK_MONOTONIC with the wait strategy of a LoopSpec."""

    def __init__(self, strategy: str = "sleep", *, spin_margin_ns: int = 0, stop: list[bool] | None = None) -> None:
        flag = [False] if stop is None else stop
        self.now: Callable[[], int] = time.monotonic_ns
        makers: dict[str, Callable[[], Wait]] = {
            "sleep": lambda: absolute_sleep(flag),
            "hybrid": lambda: hybrid(flag, spin_margin_ns),
            "spin": lambda: spin(flag),
        }
        self.wait: Wait = makers[strategy]()


def timer_granularity_ns(clock: Clock, repeats: int = 50) -> int:
    """Shortest wait this clock can express here: the shortest of some waits for 1 µs, ns.

    On Linux under SCHED_OTHER that is the timer slack (50 µs by default) and the wake-up itself. Not the median: on a busy
    machine most waits end in the queue for a processor, which is no property of the timer and which the Run itself shows.
    """
    lengths = []
    for _ in range(repeats):
        begin = clock.now()
        clock.wait(begin + 1000)
        lengths.append(clock.now() - begin)
    return min(lengths)
