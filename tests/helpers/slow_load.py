"""A numpy factory whose construction takes a while and says how far it is."""

from __future__ import annotations

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
