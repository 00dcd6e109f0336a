"""Policies that misbehave once they run for real: after the resets of configure and of activation, and a number of calls."""

from __future__ import annotations

import os
import threading
import time
from typing import ClassVar

import numpy as np


class Policy:
    def __init__(self, what: str, after: int = 100) -> None:
        self.what, self.after, self.calls, self.resets = what, after, 0, 0

    def spec(self):
        return {"inputs": {"obs": [1, 4]}, "outputs": {"action": [1, 2]}}

    def reset(self):
        self.calls = 0
        self.resets += 1

    def step(self, inputs):
        self.calls += 1
        action = (inputs["obs"][:, :2] * 2).astype(np.float32)
        if self.resets >= 2 and self.calls > self.after:
            if self.what == "raise":
                raise ValueError("motor table has no entry 7")
            if self.what == "nan" and self.calls <= self.after + 20:
                action[:] = np.nan
            if self.what == "hang":
                time.sleep(30)
        return (action,)


def fine():
    return Policy("fine")


def raises():
    return Policy("raise")


def nan():
    return Policy("nan")


def hangs():
    return Policy("hang")


class Aborting(Policy):
    """Crashes as it frees what it holds."""

    def close(self):
        os.abort()


def aborts_as_it_closes():
    return Aborting("fine")


class SlowAtFirst(Policy):
    """Its first thirty calls after a reset take 20 ms each, the others 0.2."""

    def step(self, inputs):
        time.sleep(0.02 if self.calls < 30 else 0.0002)
        return super().step(inputs)


def slow_at_first():
    return SlowAtFirst("fine")


class Counted(Policy):
    """Notes the threads in which they were made and closed; `fault` is what goes wrong."""

    fault = ""
    made: ClassVar[list[int]] = []
    closed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__("fine")
        Counted.made.append(threading.get_ident())

    def step(self, inputs):
        if "warm-up" in self.fault and self.calls == 5:
            raise ValueError("motor table has no entry 7")
        (action,) = super().step(inputs)
        return (action[:, :1] if "size" in self.fault else action,)

    def close(self):
        Counted.closed.append(threading.get_ident())
        if "close" in self.fault:
            raise OSError("the bus is gone")
