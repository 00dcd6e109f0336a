"""A built-in network as a torch module, with the weights of its ONNX and numpy forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_perf.policies.builtin import layers
from robot_perf.policies.builtin.networks import weights


def build(builtin: Mapping[str, Any], seed: int) -> Any:
    """An `nn.Module` in evaluation mode: `forward(obs, *state) -> (actions, *state)`."""
    import torch
    from torch import nn

    name = builtin["name"]
    if name == "act":
        from robot_perf.policies.builtin import act_torch

        return act_torch.build(builtin, seed)

    class Network(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            if name == "gru":
                self.encoder = nn.Linear(builtin["obs"], builtin["encoder"])
                self.memory = nn.GRUCell(builtin["encoder"], builtin["memory"])
            elif name == "lstm":
                self.memory = nn.LSTM(builtin["obs"], builtin["memory"])
            self.head = nn.ModuleList(nn.Linear(a, b) for a, b in layers(name, builtin))

        def _head(self, x: Any) -> Any:
            last = len(self.head) - 1
            for i, layer in enumerate(self.head):
                x = layer(x) if i == last else nn.functional.elu(layer(x))
            return x

        def forward(self, obs: Any, *state: Any) -> tuple[Any, ...]:
            """One control step."""
            if name == "mlp":
                return (self._head(obs),)
            if name == "gru":
                h = self.memory(torch.relu(self.encoder(obs)), state[0])
                return self._head(h), h
            out, (h, c) = self.memory(obs.unsqueeze(0), (state[0], state[1]))
            return self._head(out.squeeze(0)), h, c

    module = Network()
    suffix = "_l0" if name == "lstm" else ""
    values = {
        (k + suffix if k.startswith("memory.") else k): torch.from_numpy(v) for k, v in weights(builtin, seed).items()
    }
    module.load_state_dict(values)
    return module.eval()
