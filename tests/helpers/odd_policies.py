"""Policies that misbehave once they run for real: after the resets of configure and of activation, and a number of calls."""

from __future__ import annotations

import os
import time

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
