"""Policies whose durations and faults are written down: for calibrating the harness and testing what it survives.

Reached as factories, for example `robot_perf.policies.scripted:stalls` with the options every=100, stall_us=5000.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SPEC = {"inputs": {"obs": [1, 48]}, "outputs": {"actions": [1, 12]}}


class Scripted:
    """Busy-waits `base_ns` in each step, then does what `script(step)` says: a number of ns more, or an event."""

    def __init__(self, script: Any, base_us: float = 0.0) -> None:
        self._script = script
        self._base_ns = round(base_us * 1000)
        self._outputs = (np.zeros((1, 12), np.float32),)
        self.calls = 0

    def spec(self) -> Mapping[str, Any]:
        """One observation, one action."""
        return SPEC

    def step(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The same zeros after the scripted busy-wait."""
        start = time.monotonic_ns()
        call, self.calls = self.calls, self.calls + 1
        until = start + self._base_ns + self._script(call)
        while time.monotonic_ns() < until:
            pass
        return self._outputs


def stalls(
    every: int = 100, stall_us: float = 5000.0, base_us: float = 100.0, first: int = 0, burst: int = 1
) -> Scripted:
    """Stalls for `stall_us` in calls first, first + every, …, each time for `burst` calls in a row. Calls count from 0, warm-up included."""
    extra = round((stall_us - base_us) * 1000)
    return Scripted(lambda call: extra if call >= first and (call - first) % every < burst else 0, base_us)


def durations(us: list[float]) -> Scripted:
    """Takes the listed durations in turn, again and again."""
    listed = [round(float(u) * 1000) for u in us]
    return Scripted(lambda call: listed[call % len(listed)])


def raises(at: int = 100, base_us: float = 100.0, message: str = "scripted failure") -> Scripted:
    """Raises ValueError in call `at`."""

    def script(call: int) -> int:
        if call == at:
            raise ValueError(message)
        return 0

    return Scripted(script, base_us)


def hangs(at: int = 100, base_us: float = 100.0, seconds: float = 3600.0) -> Scripted:
    """Sleeps for `seconds` in call `at`, as a policy that waits for an answer would."""

    def script(call: int) -> int:
        if call == at:
            time.sleep(seconds)
        return 0

    return Scripted(script, base_us)


def exits(at: int = 100, base_us: float = 100.0, how: str = "segfault") -> Scripted:
    """Ends the interpreter in call `at`: `segfault`, `abort` or `kill` by signal, `exit` by os._exit(3), `system_exit` by raising."""
    numbers = {"segfault": signal.SIGSEGV, "abort": signal.SIGABRT, "kill": signal.SIGKILL}

    def script(call: int) -> int:
        if call == at:
            if how == "exit":
                os._exit(3)
            if how == "system_exit":
                raise SystemExit(3)
            os.kill(os.getpid(), numbers[how])
        return 0

    return Scripted(script, base_us)


def prints(every: int = 1, text: str = "latent -0.1 0.2 0.3", base_us: float = 50.0, fd: bool = False) -> Scripted:
    """Writes `text` to stdout in every so-many calls: through sys.stdout, or to file descriptor 1 as C++ would."""

    def script(call: int) -> int:
        if call % every == 0:
            if fd:
                os.write(1, (text + "\n").encode())
            else:
                print(text)  # noqa: T201 - a policy that prints is what this is
        return 0

    return Scripted(script, base_us)


def not_finite(at: int = 100, base_us: float = 50.0, value: float = float("nan")) -> Scripted:
    """Answers NaN (or `value`) from call `at` on."""
    policy = Scripted(lambda call: 0, base_us)

    def script(call: int) -> int:
        if call >= at:
            policy._outputs[0].fill(value)
        return 0

    policy._script = script
    return policy


def witness(path: str, base_us: float = 100.0) -> Scripted:
    """Counts its completed calls in the first 8 bytes of the file `path`, which survives a SIGKILL of the process."""
    file = Path(path)
    file.write_bytes(struct.pack("<q", 0))
    with file.open("r+b") as stream:
        memory = mmap.mmap(stream.fileno(), 8)

    def script(call: int) -> int:
        memory[:8] = struct.pack("<q", call + 1)
        return 0

    return Scripted(script, base_us)


def witnessed(path: str) -> int:
    """The count that a `witness` policy kept."""
    return int(struct.unpack("<q", Path(path).read_bytes()[:8])[0])
