"""numpy factories that no reference can be made of."""

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
