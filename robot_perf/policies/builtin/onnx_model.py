"""A built-in network as ONNX bytes (opset 17), with the weights and the arithmetic of its numpy and torch forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.policies.builtin import layers, signature
from robot_perf.policies.builtin.networks import weights
from robot_perf.policies.onnxfile.encode import Node, model


def render(builtin: Mapping[str, Any], seed: int) -> bytes:
    """The serialized model. Inputs and outputs are those of `builtin.signature`."""
    name = builtin["name"]
    if name == "act":
        from robot_perf.policies.builtin import act_onnx

        return act_onnx.render(builtin, seed)
    w: dict[str, NDArray[Any]] = dict(weights(builtin, seed))
    nodes: list[Node] = []
    last = "obs"
    if name == "gru":
        nodes += [
            Node("Gemm", ["obs", "encoder.weight", "encoder.bias"], ["encoded"], {"transB": 1}),
            Node("Relu", ["encoded"], ["active"]),
        ]
        last = "active"
    if name in ("gru", "lstm"):
        w["first"] = np.array([0], np.int64)
        last = _memory(name, last, nodes, w, builtin["memory"])
    count = len(layers(name, builtin))
    for i in range(count):
        out = "actions" if i == count - 1 else f"head.{i}"
        nodes.append(Node("Gemm", [last, f"head.{i}.weight", f"head.{i}.bias"], [out], {"transB": 1}))
        last = out
        if i < count - 1:
            nodes.append(Node("Elu", [out], [f"{out}.elu"]))
            last = f"{out}.elu"
    inputs, outputs, _ = signature(name, builtin)
    return model(
        nodes, w, [(t.name, t.dtype, t.shape) for t in inputs], [(t.name, t.dtype, t.shape) for t in outputs], name=name
    )


def _memory(name: str, last: str, nodes: list[Node], w: dict[str, NDArray[Any]], hidden: int) -> str:
    # The unused first output has a name: beside the empty name of an absent input, TensorRT 8.6 reads a nameless one as a
    # cycle ("failed to sort the model topologically").
    # torch orders LSTM gates i,f,g,o and GRU gates r,z,n; ONNX wants i,o,f,c and z,r,h.
    order = [0, 3, 1, 2] if name == "lstm" else [1, 0, 2]

    def reorder(array: NDArray[Any]) -> NDArray[Any]:
        blocks = np.split(array, len(order), axis=0)
        return np.concatenate([blocks[i] for i in order])

    w["W"] = reorder(w.pop("memory.weight_ih"))[None]
    w["R"] = reorder(w.pop("memory.weight_hh"))[None]
    w["B"] = np.concatenate([reorder(w.pop("memory.bias_ih")), reorder(w.pop("memory.bias_hh"))])[None]
    nodes.append(Node("Unsqueeze", [last, "first"], ["sequence"]))
    if name == "lstm":
        nodes.append(
            Node(
                "LSTM",
                ["sequence", "W", "R", "B", "", "h_in", "c_in"],
                ["all_h", "h_out", "c_out"],
                {"hidden_size": hidden},
            )
        )
        nodes.append(Node("Squeeze", ["h_out", "first"], ["memory"]))
        return "memory"
    nodes.append(Node("Unsqueeze", ["h_in", "first"], ["h_3d"]))
    # linear_before_reset: torch applies the reset gate after the recurrent product.
    attributes = {"hidden_size": hidden, "linear_before_reset": 1}
    nodes.append(Node("GRU", ["sequence", "W", "R", "B", "", "h_3d"], ["all_h", "h_next"], attributes))
    nodes.append(Node("Squeeze", ["h_next", "first"], ["h_out"]))
    return "h_out"
