"""Torch factories that provoke what a device backend must handle or refuse by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

IO = {"inputs": {"obs": [[1, 8], "float32"]}, "outputs": {"actions": [[1, 4], "float32"]}}


class _Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dense = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def spec(self) -> dict[str, Any]:
        return IO


class Plain(_Base):
    def forward(self, obs: Any) -> Any:
        return self.head(torch.tanh(self.dense(obs)))


class AssignedBuffer(_Base):
    """Puts a new tensor into its buffer at each call: a naive capture would freeze it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(1, 8))

    def forward(self, obs: Any) -> Any:
        self.memory = torch.tanh(self.dense(obs) + 0.9 * self.memory)
        return self.head(self.memory)


class WrittenBuffer(AssignedBuffer):
    """Writes into its buffer."""

    def forward(self, obs: Any) -> Any:
        self.memory.copy_(torch.tanh(self.dense(obs) + 0.9 * self.memory))
        return self.head(self.memory)


class HiddenState(_Base):
    """Keeps its state in a plain attribute, which no graph can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: Any = None

    def reset(self) -> None:
        self.memory = None

    def forward(self, obs: Any) -> Any:
        x = torch.tanh(self.dense(obs) + (0 if self.memory is None else 0.9 * self.memory))
        self.memory = x
        return self.head(x)


class Waits(_Base):
    """Asks the device for a number inside its step."""

    def forward(self, obs: Any) -> Any:
        x = self.dense(obs)
        return self.head(x) if x.sum().item() < 1e9 else x


class MakesOnHost(_Base):
    """Makes a tensor on the host and sends it over in each step."""

    def forward(self, obs: Any) -> Any:
        return self.head(self.dense(obs) + torch.ones(8).to(obs.device))


class StaysOnCpu(_Base):
    """Keeps part of itself on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.ones(1, 4)

    def forward(self, obs: Any) -> Any:
        return self.head(self.dense(obs)) + self.offset


class AnswersOnCpu(_Base):
    def forward(self, obs: Any) -> Any:
        return self.head(self.dense(obs)).cpu()


class Breaks(_Base):
    """A graph break in the middle."""

    def forward(self, obs: Any) -> Any:
        x = self.dense(obs)
        torch._dynamo.graph_break()
        return self.head(x)


class Recompiles(_Base):
    """Takes another path, and a compile, once `late` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.late = False

    def forward(self, obs: Any) -> Any:
        x = self.head(self.dense(obs))
        return 2 * x if self.late else x


class CountsUp(_Base):
    """A Python number on the module that is another one in each call: torch compiles each time, until its limit."""

    def __init__(self) -> None:
        super().__init__()
        self.k, self.table = 0, [0.0] * 100

    def forward(self, obs: Any) -> Any:
        self.k = self.k + 1
        return self.head(self.dense(obs)) + self.table[self.k]


class CompiledWrong(_Base):
    """Twice the answer once it is compiled."""

    def forward(self, obs: Any) -> Any:
        x = self.head(self.dense(obs))
        return 2 * x if torch.compiler.is_compiling() else x


class TurnsNan(_Base):
    def forward(self, obs: Any) -> Any:
        return self.head(self.dense(obs)) / torch.zeros_like(obs[:, :4])


class WritesItsInput(_Base):
    """Writes into what it is given: torch.compile captures no CUDA graph then."""

    def forward(self, obs: Any) -> Any:
        obs.mul_(0.5)
        return self.head(torch.tanh(self.dense(obs)))
