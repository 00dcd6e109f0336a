"""Torch factories that keep what they are fed until the next step: each answers with the observation less the one before."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

IO = {"inputs": {"obs": [[1, 4], "float32"]}, "outputs": {"change": [[1, 4], "float32"]}}


class _Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1, 4))

    def spec(self) -> dict[str, Any]:
        return IO


class InBuffer(_Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(1, 4))

    def forward(self, obs: Any) -> Any:
        change = (obs - self.last) * self.gain
        self.last = obs
        return change


class Copied(InBuffer):
    """As a policy is advised to do it."""

    def forward(self, obs: Any) -> Any:
        change = (obs - self.last) * self.gain
        self.last.copy_(obs)
        return change


class InAttribute(_Base):
    last: Any = 0.0

    def reset(self) -> None:
        self.last = 0.0

    def forward(self, obs: Any) -> Any:
        change = (obs - self.last) * self.gain
        self.last = obs
        return change


class InView(InAttribute):
    """Another tensor object over the same memory."""

    def forward(self, obs: Any) -> Any:
        change = (obs - self.last) * self.gain
        self.last = obs[0]
        return change


class InList(_Base):
    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.history: list[Any] = []

    def forward(self, obs: Any) -> Any:
        change = (obs - (self.history[-1] if self.history else 0.0)) * self.gain
        self.history = [*self.history[-2:], obs]
        return change


class InDictionary(_Base):
    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.memory: dict[str, Any] = {"last": torch.zeros(1, 4)}

    def forward(self, obs: Any) -> Any:
        change = (obs - self.memory["last"].to(obs.device)) * self.gain
        self.memory["last"] = obs
        return change


class InObject:
    """No torch module: nothing can be searched for its name."""

    def __init__(self) -> None:
        self.reset()

    def spec(self) -> dict[str, Any]:
        return IO

    def reset(self) -> None:
        self.last: Any = 0.0

    def __call__(self, obs: Any) -> Any:
        change = obs - self.last
        self.last = obs
        return change


class OfState(_Base):
    """Keeps the state that it is fed. Answers with the state less the one before, which is the observation before."""

    last: Any = 0.0

    def spec(self) -> dict[str, Any]:
        return {
            "inputs": {"obs": [1, 4], "h_in": [1, 4]},
            "outputs": {"change": [1, 4], "h_out": [1, 4]},
            "action": "change",
        }

    def reset(self) -> None:
        self.last = 0.0

    def forward(self, obs: Any, h_in: Any) -> Any:
        change = (h_in - self.last) * self.gain
        self.last = h_in
        return change, h_in + obs


class Answered(_Base):
    """Its answer is a part of its input: no keeping."""

    def spec(self) -> dict[str, Any]:
        return {"inputs": {"obs": [1, 4]}, "outputs": {"same": [1, 4], "part": [1, 2]}, "action": "same"}

    def forward(self, obs: Any) -> Any:
        return obs, obs[:, :2]


class Cycle(_Base):
    """Leaves a cycle of objects behind that holds the input until the next collection: no keeping either."""

    def forward(self, obs: Any) -> Any:
        def again(n: int) -> Any:
            return obs * self.gain if n == 0 else again(n - 1)

        return again(2)
