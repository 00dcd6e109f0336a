"""A policy that a runtime stops running as it was asked to, after some steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_perf.errors import InvalidMeasurementError


class GivesUp:
    def __init__(self) -> None:
        self.calls = 0

    def spec(self) -> dict[str, Any]:
        return {"inputs": {"obs": [1, 4]}, "outputs": {"actions": [1, 2]}}

    def step(self, inputs: dict[str, Any]) -> Any:
        self.calls += 1
        if self.calls > 5:
            raise InvalidMeasurementError("p: torch stopped compiling it", do="Use --backend eager.")
        return (np.zeros((1, 2), np.float32),)
