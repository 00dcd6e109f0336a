"""Factories whose object owns something (a bus, a camera) and counts how often it is closed; `fault` is what goes wrong while loading."""

from __future__ import annotations

from typing import Any

import numpy as np

closed: list[str] = []


class InNumpy:
    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def spec(self) -> dict[str, Any]:
        sizes = {"inputs": {"obs": [1, 4]}}
        return sizes if self.fault == "first call" else {**sizes, "outputs": {"action": [1, 4]}}

    def reset(self) -> None:
        if self.fault == "reset":
            raise ValueError("no answer from the bus")

    def step(self, inputs: dict[str, Any]) -> Any:
        if self.fault == "first call":
            raise ValueError("no answer from the bus")
        return (np.array(inputs["obs"]),)

    def close(self) -> None:
        closed.append(type(self).__name__)


def in_torch(fault: str = "", module: bool = True) -> Any:
    """An nn.Module, or an object that computes with torch and is none."""
    import torch

    class InTorch(torch.nn.Module if module else object):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            if module:
                self.gain = torch.nn.Parameter(torch.ones(1, 4))

        spec, reset = InNumpy.spec, InNumpy.reset

        def step(self, inputs: dict[str, Any]) -> Any:
            if fault == "first call":
                raise ValueError("no answer from the bus")
            return (inputs["obs"] * 2,)

        def close(self) -> None:
            closed.append(type(self).__name__)

    made = InTorch()
    made.fault = fault
    return made
