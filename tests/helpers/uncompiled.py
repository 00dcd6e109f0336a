"""Torch factories whose own code keeps torch from what was asked of it: from compiling, or from the arithmetic."""

from __future__ import annotations

from typing import Any

import torch
from cuda_policies import Plain
from torch import nn


class StaysEager(Plain):
    """Its forward is kept from being compiled."""

    @torch.compiler.disable
    def forward(self, obs: Any) -> Any:
        return self.head(torch.tanh(self.dense(obs)))


class PartlyEager(Plain):
    """Is compiled from where its own half returns."""

    def forward(self, obs: Any) -> Any:
        return 2 * self.half(obs)

    @torch.compiler.disable
    def half(self, obs: Any) -> Any:
        return self.head(torch.tanh(self.dense(obs)))


class TurnsCompilingOff(Plain):
    """Sets torch's own switch as it is made."""

    def __init__(self) -> None:
        super().__init__()
        torch._dynamo.config.disable = True


class Line(nn.Linear):
    """A module whose forward is torch's own."""

    def __init__(self) -> None:
        super().__init__(8, 4)

    def spec(self) -> dict[str, Any]:
        return {"inputs": {"obs": [[1, 8], "float32"]}, "outputs": {"actions": [[1, 4], "float32"]}}


class WantsTf32(Plain):
    """Turns TF32 on as it is made, as training code does."""

    def __init__(self) -> None:
        super().__init__()
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
