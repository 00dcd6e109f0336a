"""numpy factories that no reference can be made of, and two that treat what they are given as their own."""

from __future__ import annotations

from typing import Any

import numpy as np


class Draws:
    def spec(self) -> dict[str, Any]:
        return {"inputs": {"obs": [1, 4]}, "outputs": {"actions": [1, 2]}}

    def step(self, inputs: dict[str, Any]) -> Any:
        return (np.random.default_rng().random((1, 2)).astype(np.float32),)


class Raises(Draws):
    def step(self, inputs: dict[str, Any]) -> Any:
        raise RuntimeError("no device here")


class WritesIntoItsInput(Draws):
    def step(self, inputs: dict[str, Any]) -> Any:
        inputs["obs"] *= np.float32(0.25)
        return (inputs["obs"][:, :2].copy(),)


class KeepsItsInputs(Draws):
    """Answers with the change since the call before."""

    def __init__(self) -> None:
        self.last: dict[str, Any] | None = None

    def step(self, inputs: dict[str, Any]) -> Any:
        before, self.last = self.last, inputs
        change = inputs["obs"] - before["obs"] if before is not None else inputs["obs"]
        return (change[:, :2].copy(),)
