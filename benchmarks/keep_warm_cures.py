"""What `keep_warm.py` does in the idle time before a release: the cures, and the variants that tell one suspect from another."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from keep_warm_actor import Actor

NS = 1_000_000_000


def sleeper() -> Callable[[int], None]:
    """clock_nanosleep to an absolute CLOCK_MONOTONIC time."""
    call = ctypes.CDLL(None).clock_nanosleep

    class Timespec(ctypes.Structure):
        _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))

    def sleep(until: int) -> None:
        target = Timespec(*divmod(until, NS))
        while time.monotonic_ns() < until:
            call(1, 1, ctypes.byref(target), None)

    return sleep


def spin(until: int) -> None:
    """Busy-waits until `until`."""
    now = time.monotonic_ns
    while now() < until:
        pass


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """`count` processes that spin on other processors than ours, at the end of the list."""
    cpus = sorted(os.sched_getaffinity(0))[-count:]
    code = "import os,sys; os.sched_setaffinity(0,{int(sys.argv[1])})\nwhile 1: pass"
    running = [subprocess.Popen([sys.executable, "-c", code, str(cpu)]) for cpu in cpus]
    try:
        time.sleep(0.3)
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextmanager
def no_deep_idle() -> Iterator[None]:
    """Holds /dev/cpu_dma_latency at 0: the kernel enters no idle state that takes time to leave."""
    path = Path("/dev/cpu_dma_latency")
    if not path.exists():
        raise FileNotFoundError(path)
    with path.open("wb", buffering=0) as held:
        held.write((0).to_bytes(4, "little"))
        yield


@dataclass(frozen=True)
class Variant:
    """`before(release)` returns when the release has come; `after()` follows each step; `around` holds for a block."""

    before: Callable[[int], None]
    wait: Callable[[], None]
    after: Callable[[], None] = lambda: None
    around: Callable[[], AbstractContextManager] = nullcontext


def variants(actor: Actor, period_us: float) -> dict[str, Variant]:
    """name -> variant: what is done before the release, beside the loop, or while the device is waited for."""
    sleep, wait = sleeper(), actor.wait_default
    slept = sleep

    def at(lead_us: float, act: Callable[[], None], then: Callable[[int], None] = sleep) -> Variant:
        def before(release: int) -> None:
            sleep(release - int(lead_us * 1000))
            act()
            then(release)

        return Variant(before, wait)

    def every(act: Callable[[], None], gap_us: float) -> Variant:
        gap = int(gap_us * 1000)

        def before(release: int) -> None:
            beats = (release - time.monotonic_ns()) // gap
            while beats >= 1:
                sleep(release - beats * gap)
                act()
                beats = min(beats - 1, (release - time.monotonic_ns()) // gap)
            sleep(release)

        return Variant(before, wait)

    def again_and_again(lead_us: float, act: Callable[[], object], first: Callable[[], None] = lambda: None) -> Variant:
        def before(release: int) -> None:
            sleep(release - int(lead_us * 1000))
            first()
            begin, took = time.monotonic_ns(), 0
            while begin + 2 * took < release:
                act()
                end = time.monotonic_ns()
                begin, took = end, end - begin
            spin(release)

        return Variant(before, wait)

    def occupied(lead_us: float) -> Callable[[], None]:
        return lambda: actor.occupy(lead_us + 100)  # past the release: the step meets a GPU that is not idle

    found = {
        "sleep": Variant(slept, wait),
        "sleep (again)": Variant(slept, wait),
        "sleep, blocking wait": Variant(slept, actor.wait_block),
        "sleep, polling wait": Variant(slept, actor.wait_poll),
        "processor: no deep idle state": Variant(slept, wait, around=no_deep_idle),
        "processor: 1 neighbour spins": Variant(slept, wait, around=lambda: neighbours(1)),
        "processor: 8 neighbours spin": Variant(slept, wait, around=lambda: neighbours(8)),
        "processor: spin 2 ms before": at(2000, lambda: None, spin),
        "processor: spin the whole period": Variant(spin, wait),
        "GPU: occupied all the time": Variant(slept, wait, after=lambda: actor.occupy(period_us)),
        "GPU: occupied all the time, processor spins": Variant(spin, wait, after=lambda: actor.occupy(period_us)),
        "GPU: occupied from 1 ms before": at(1000, occupied(1000)),
        "tiny kernel 300 µs before": at(300, actor.nudge),
        "tiny kernel every 1 ms": every(actor.nudge, 1000),
        "touch the weights 300 µs before": at(300, actor.touch),
        "rehearse the kernels 300 µs before": at(300, actor.rehearse_kernels),
        "replay the graph 300 µs before": at(300, actor.rehearse),
        "replay the graph again and again from 600 µs before": again_and_again(600, actor.rehearse),
        "whole step 1000 µs before": at(1000, actor.whole_step),
        "whole step 300 µs before": at(300, actor.whole_step),
        "whole step 300 µs before, then spin": at(300, actor.whole_step, spin),
        "whole step again and again from 300 µs before": again_and_again(300, actor.whole_step),
        "whole step again and again from 600 µs before": again_and_again(600, actor.whole_step),
        "whole step again and again from 1000 µs before": again_and_again(1000, actor.whole_step),
        "whole step from 600 µs before, GPU occupied": again_and_again(600, actor.whole_step, occupied(600)),
        "whole step every 1 ms": every(actor.whole_step, 1000),
        "whole step every 5 ms": every(actor.whole_step, 5000),
        "whole step without a pause": again_and_again(period_us, actor.whole_step),
    }
    if not os.access("/dev/cpu_dma_latency", os.W_OK):
        print("/dev/cpu_dma_latency can't be written: 'no deep idle state' is left out")
        del found["processor: no deep idle state"]
    return found
