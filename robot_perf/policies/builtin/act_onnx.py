"""`act` as ONNX nodes (opset 17)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.policies.builtin import act
from robot_perf.policies.onnxfile.encode import Node, model


def render(dims: act.Dims, seed: int) -> bytes:
    """The serialized model; inputs and outputs are those of `act.signature`."""
    graph = _Graph(dims, act.weights(dims, seed))
    graph.build()
    inputs, outputs = act.signature(dims)
    return model(
        graph.nodes,
        graph.weights,
        [(n, "float32", s) for n, s in inputs],
        [(n, "float32", s) for n, s in outputs],
        name="act",
    )


class _Graph:
    def __init__(self, dims: act.Dims, w: dict[str, NDArray[np.float32]]) -> None:
        self.dims, self.w = dims, w
        self.nodes: list[Node] = []
        self.weights: dict[str, NDArray[Any]] = {}

    def build(self) -> None:
        """Trunk, encoder, decoder, head."""
        d, e = self.dims, self.dims["hidden"]
        cells = math.prod(act.projection(d).size)
        x = self._reshape("images", (d["cameras"], 3, d["height"], d["width"]), "cameras")
        x = self._trunk(x)
        x = self._reshape(x, (d["cameras"], e, cells), "cells")
        x = self._add(Node("Transpose", [x], ["cells.t"], {"perm": [0, 2, 1]}))
        x = self._reshape(x, (1, d["cameras"] * cells, e), "image.tokens")
        self.weights["latent.zero"] = np.zeros((1, d["latent"]), np.float32)
        latent = self._reshape(self._linear("latent", "latent.zero"), (1, 1, e), "latent.token")
        state = self._reshape(self._linear("state", "state"), (1, 1, e), "state.token")
        x = self._add(Node("Concat", [latent, state, x], ["tokens"], {"axis": 1}))
        self.weights["positions"] = act.positions(d, self.w)[None]
        for i in range(d["encoder_layers"]):
            x = self._encoder(f"encoder.{i}", x)
        memory, placed = x, self._sum(x, "positions", "memory.placed")
        self.weights["query"] = self.w["query"][None]
        self.weights["start"] = np.zeros((1, d["chunk"], e), np.float32)
        y = "start"
        for i in range(d["decoder_layers"]):
            y = self._decoder(f"decoder.{i}", y, memory, placed)
        y = self._norm("decoder.norm", y)
        self._linear("head", y, out="actions")

    def _trunk(self, x: str) -> str:
        x = self._relu(self._conv(act.stem(self.dims), x))
        pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
        x = self._add(Node("MaxPool", [x], ["stem.pool"], pool))
        for a, b, around in act.blocks(self.dims):
            inner = self._conv(b, self._relu(self._conv(a, x)))
            x = self._relu(self._sum(inner, self._conv(around, x) if around else x, f"{b.name}.sum"))
        return self._conv(act.projection(self.dims), x)

    def _encoder(self, name: str, x: str) -> str:
        placed = self._sum(x, "positions", f"{name}.placed")
        x = self._norm(
            f"{name}.norm1", self._sum(x, self._attention(f"{name}.attention", placed, placed, x), f"{name}.sum1")
        )
        return self._norm(f"{name}.norm2", self._sum(x, self._feedforward(name, x), f"{name}.sum2"))

    def _decoder(self, name: str, y: str, memory: str, placed: str) -> str:
        asked = self._sum(y, "query", f"{name}.asked1")
        y = self._norm(f"{name}.norm1", self._sum(y, self._attention(f"{name}.self", asked, asked, y), f"{name}.sum1"))
        asked = self._sum(y, "query", f"{name}.asked2")
        crossed = self._attention(f"{name}.cross", asked, placed, memory)
        y = self._norm(f"{name}.norm2", self._sum(y, crossed, f"{name}.sum2"))
        return self._norm(f"{name}.norm3", self._sum(y, self._feedforward(name, y), f"{name}.sum3"))

    def _attention(self, name: str, queries: str, keys: str, values: str) -> str:
        heads, e = self.dims["heads"], self.dims["hidden"]
        q = self._heads(self._linear(f"{name}.q", queries), [0, 2, 1, 3])
        k = self._heads(self._linear(f"{name}.k", keys), [0, 2, 3, 1])
        v = self._heads(self._linear(f"{name}.v", values), [0, 2, 1, 3])
        self.weights.setdefault("scale", np.array(1 / math.sqrt(e // heads), np.float32))
        q = self._add(Node("Mul", [q, "scale"], [f"{name}.q.scaled"]))
        x = self._add(Node("MatMul", [q, k], [f"{name}.scores"]))
        x = self._add(Node("Softmax", [x], [f"{name}.shares"], {"axis": -1}))
        x = self._add(Node("MatMul", [x, v], [f"{name}.mixed"]))
        x = self._add(Node("Transpose", [x], [f"{name}.joined"], {"perm": [0, 2, 1, 3]}))
        return self._linear(f"{name}.out", self._reshape(x, (1, -1, e), f"{name}.flat"))

    def _heads(self, x: str, order: list[int]) -> str:
        heads, e = self.dims["heads"], self.dims["hidden"]
        split = self._reshape(x, (1, -1, heads, e // heads), f"{x}.heads")
        return self._add(Node("Transpose", [split], [f"{x}.t"], {"perm": order}))

    def _feedforward(self, name: str, x: str) -> str:
        return self._linear(f"{name}.narrow", self._relu(self._linear(f"{name}.wide", x)))

    def _conv(self, c: act.Convolution, x: str) -> str:
        self._take(c.name)
        pad = c.kernel // 2
        attributes = {"kernel_shape": [c.kernel] * 2, "strides": [c.stride] * 2, "pads": [pad] * 4}
        return self._add(Node("Conv", [x, f"{c.name}.weight", f"{c.name}.bias"], [c.name], attributes))

    def _linear(self, name: str, x: str, out: str | None = None) -> str:
        self.weights[f"{name}.weight"] = np.ascontiguousarray(self.w[f"{name}.weight"].T)
        self.weights[f"{name}.bias"] = self.w[f"{name}.bias"]
        product = self._add(Node("MatMul", [x, f"{name}.weight"], [f"{name}.product"]))
        return self._sum(product, f"{name}.bias", out or f"{name}.out")

    def _norm(self, name: str, x: str) -> str:
        self._take(name)
        attributes = {"axis": -1, "epsilon": 1e-5}
        return self._add(Node("LayerNormalization", [x, f"{name}.weight", f"{name}.bias"], [f"{name}.out"], attributes))

    def _take(self, name: str) -> None:
        for part in ("weight", "bias"):
            self.weights[f"{name}.{part}"] = self.w[f"{name}.{part}"]

    def _relu(self, x: str) -> str:
        return self._add(Node("Relu", [x], [f"{x}.relu"]))

    def _sum(self, a: str, b: str, out: str) -> str:
        return self._add(Node("Add", [a, b], [out]))

    def _reshape(self, x: str, shape: tuple[int, ...], out: str) -> str:
        self.weights[f"{out}.shape"] = np.array(shape, np.int64)
        return self._add(Node("Reshape", [x, f"{out}.shape"], [out]))

    def _add(self, node: Node) -> str:
        self.nodes.append(node)
        return node.outputs[0]
