"""Seeded weights of the built-in networks, in torch's layout, and the same network in plain numpy.

Weights are uniform in ±1/sqrt(fan-in), as torch draws them, so that activations keep a natural size. One seed gives the same
weights to every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.policies.builtin import layers

F32 = NDArray[np.float32]


def weights(builtin: Mapping[str, Any], seed: int) -> dict[str, F32]:
    """Weights by torch's names: `head.0.weight` [rows, columns], `memory.weight_ih` [gates*H, in], …"""
    rng = np.random.default_rng(seed)
    name, found = builtin["name"], {}

    def draw(key: str, shape: tuple[int, ...], fan_in: int) -> None:
        bound = 1.0 / np.sqrt(fan_in)
        found[key] = rng.uniform(-bound, bound, size=shape).astype(np.float32)

    taken = builtin["obs"]
    if name == "gru":
        draw("encoder.weight", (builtin["encoder"], taken), taken)
        draw("encoder.bias", (builtin["encoder"],), taken)
        taken = builtin["encoder"]
    if name in ("gru", "lstm"):
        hidden, gates = builtin["memory"], 3 if name == "gru" else 4
        draw("memory.weight_ih", (gates * hidden, taken), hidden)
        draw("memory.weight_hh", (gates * hidden, hidden), hidden)
        draw("memory.bias_ih", (gates * hidden,), hidden)
        draw("memory.bias_hh", (gates * hidden,), hidden)
    for i, (columns, rows) in enumerate(layers(name, builtin)):
        draw(f"head.{i}.weight", (rows, columns), columns)
        draw(f"head.{i}.bias", (rows,), columns)
    return found


def numpy_forward(builtin: Mapping[str, Any], w: Mapping[str, F32]) -> Callable[..., tuple[F32, ...]]:
    """`forward(obs, *state) -> (actions, *state)` in plain numpy."""
    name = builtin["name"]
    count = len(layers(name, builtin))

    def head(x: F32) -> F32:
        for i in range(count):
            x = x @ w[f"head.{i}.weight"].T + w[f"head.{i}.bias"]
            if i < count - 1:
                x = np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0))))  # ELU
        return x

    def mlp(obs: F32) -> tuple[F32, ...]:
        return (head(obs),)

    def lstm(obs: F32, h: F32, c: F32) -> tuple[F32, ...]:
        gates = (
            obs @ w["memory.weight_ih"].T + w["memory.bias_ih"] + h[0] @ w["memory.weight_hh"].T + w["memory.bias_hh"]
        )
        i, f, g, o = np.split(gates, 4, axis=1)  # torch's order
        c_next = _sigmoid(f) * c[0] + _sigmoid(i) * np.tanh(g)
        h_next = _sigmoid(o) * np.tanh(c_next)
        return head(h_next), h_next[None], c_next[None]

    def gru(obs: F32, h: F32) -> tuple[F32, ...]:
        x = np.maximum(obs @ w["encoder.weight"].T + w["encoder.bias"], np.float32(0))
        from_x = np.split(x @ w["memory.weight_ih"].T + w["memory.bias_ih"], 3, axis=1)
        from_h = np.split(h @ w["memory.weight_hh"].T + w["memory.bias_hh"], 3, axis=1)
        r, z = _sigmoid(from_x[0] + from_h[0]), _sigmoid(from_x[1] + from_h[1])
        n = np.tanh(from_x[2] + r * from_h[2])
        h_next = (1 - z) * n + z * h
        return head(h_next), h_next

    forms: dict[str, Callable[..., tuple[F32, ...]]] = {"mlp": mlp, "lstm": lstm, "gru": gru}
    return forms[name]


def _sigmoid(x: F32) -> F32:
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)
