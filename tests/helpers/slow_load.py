"""Numpy factories whose load takes a while: one that says how far it is, and one that waits for its bus."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np

from robot_perf.backends.shared import progress


class Slow:
    def __init__(self) -> None:
        progress.say("unpacking")
        for i in range(8):
            time.sleep(0.1)
            progress.say("unpacking", (i + 1) / 8)

    def spec(self) -> dict[str, Any]:
        return {"inputs": {"obs": [1, 4]}, "outputs": {"actions": [1, 2]}}

    def step(self, inputs: dict[str, Any]) -> Any:
        return (inputs["obs"][:, :2].astype(np.float32),)


class Talking(Slow):
    """Never stops talking."""

    def step(self, inputs: dict[str, Any]) -> Any:
        progress.say("still here")
        return super().step(inputs)


class Waiting:
    """Holds a bus that answers only after `load_s`: it is asked again and again, or in one `native` call. Says where it is closed."""

    def __init__(self, load_s: float = 60.0, native: bool = False) -> None:
        self.load_s, self.native, self.loader = load_s, native, threading.get_ident()

    def spec(self) -> dict[str, Any]:
        return {"inputs": {"obs": [1, 4]}, "outputs": {"actions": [1, 2]}}

    def reset(self) -> None:
        sys.stderr.write("the bus is asked\n")
        until = time.monotonic() + self.load_s
        while time.monotonic() < until:
            time.sleep(self.load_s if self.native else 0.01)

    def step(self, inputs: dict[str, Any]) -> Any:
        return (inputs["obs"][:, :2].astype(np.float32),)

    def close(self) -> None:
        own = threading.get_ident() == self.loader
        sys.stderr.write(f"closed in {'the thread that loaded it' if own else 'another thread'}\n")


def native() -> Waiting:
    return Waiting(native=True)


def native_for_a_while() -> Waiting:
    return Waiting(3.0, native=True)


class SlowToClose(Waiting):
    """Loads at once, is slow to warm up and to close."""

    def reset(self) -> None: ...

    def step(self, inputs: dict[str, Any]) -> Any:
        Waiting.reset(self)
        return super().step(inputs)

    def close(self) -> None:
        sys.stderr.write("closing\n")
        time.sleep(3.0)
        super().close()


def slow_to_close() -> Waiting:
    return SlowToClose()
