"""Five policies whose limit is known by construction; `robot-perf profile diagnose_policies:launch_bound --rate 100` from this folder.

Each is an object with step(inputs) and spec(), as a Python factory has to be. They need torch and a CUDA GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch

DEVICE = "cuda"


class Policy:
    """Observation in, action out; `body` is what differs."""

    observation = (1, 48)
    dtype = "float32"

    def spec(self) -> dict[str, Any]:
        """Shapes for the loop."""
        return {"inputs": {"obs": [list(self.observation), self.dtype]}, "outputs": {"action": [1, 12]}}

    @torch.no_grad()
    def step(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """One control step, complete on the host."""
        action = self.body(torch.from_numpy(inputs["obs"]))
        return [action.float().reshape(-1)[:12].reshape(1, 12).cpu().numpy()]

    def body(self, obs: torch.Tensor) -> torch.Tensor:
        """The policy's own work."""
        raise NotImplementedError


class LaunchBound(Policy):
    """24 small layers at batch 1: 72 kernels of a few microseconds, one launch each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        sizes = [48, *[256] * 23, 12]
        self.layers = [torch.nn.Linear(a, b).to(DEVICE) for a, b in pairwise(sizes)]

    def body(self, obs: torch.Tensor) -> torch.Tensor:
        """Matrix product, normalisation, activation, 24 times."""
        x = obs.to(DEVICE)
        for layer in self.layers:
            x = torch.nn.functional.elu(layer(x) * 0.5)
        return x


class MemoryBound(Policy):
    """12 layers of 16384 x 16384 bf16 at batch 1: 6.4 GB of weights a step, each read once."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layers = [torch.randn(16384, 16384, device=DEVICE, dtype=torch.bfloat16) * 0.01 for _ in range(12)]
        self.start = torch.randn(16384, device=DEVICE, dtype=torch.bfloat16)

    def body(self, obs: torch.Tensor) -> torch.Tensor:
        """Matrix-vector products: 1 FLOP per byte."""
        x = self.start + obs.to(DEVICE).sum().to(torch.bfloat16)
        for w in self.layers:
            x = w @ x
        return x


class ComputeBound(Policy):
    """Six products of 8192^3 in bf16: 1.1 TFLOP each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) * 0.01
        self.b = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) * 0.01

    def body(self, obs: torch.Tensor) -> torch.Tensor:
        """2,731 FLOP per byte."""
        x = self.a
        x[0, :48] += obs.to(DEVICE).reshape(-1).to(torch.bfloat16)
        for _ in range(6):
            x = x @ self.b
        return x[0]


class TransferBound(Policy):
    """Four camera images of 3 x 1080 x 1920 uint8 from pageable memory, one pooling each."""

    observation = (4, 3, 1080, 1920)
    dtype = "uint8"

    def __init__(self) -> None:
        torch.manual_seed(0)

    def body(self, obs: torch.Tensor) -> torch.Tensor:
        """24.9 MB up, very little work."""
        return obs.to(DEVICE)[:, :, ::8, ::8].float().mean(dim=(2, 3))


class PlantedItem(Policy):
    """A solver that asks the host after every iteration whether it has converged: .item() drains the queue each time."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.w = torch.randn(1024, 1024, device=DEVICE) * 0.01
        self.start = torch.randn(128, 1024, device=DEVICE)

    def body(self, obs: torch.Tensor) -> torch.Tensor:
        """Eight iterations; the residual never gets small enough."""
        x = self.start + obs.to(DEVICE).sum()
        for _ in range(8):
            x = torch.tanh(x @ self.w)
            if x.abs().max().item() < 1e-9:
                break
        return x[0]


def launch_bound() -> Policy:
    """Factory."""
    return LaunchBound()


def memory_bound() -> Policy:
    """Factory."""
    return MemoryBound()


def compute_bound() -> Policy:
    """Factory."""
    return ComputeBound()


def transfer_bound() -> Policy:
    """Factory."""
    return TransferBound()


def planted_item() -> Policy:
    """Factory."""
    return PlantedItem()
