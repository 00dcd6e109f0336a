"""What one call of an ONNX model costs: parameters, constants, weight bytes, FLOP where the shapes are known."""

from __future__ import annotations

import math
from typing import Any

from robot_perf.policies.onnxfile import external
from robot_perf.policies.onnxfile.shapes import Shape, known_shapes
from robot_perf.specs import PolicyCost, TensorSpec

FLOATS = (1, 10, 11, 16)  # float32, float16, float64, bfloat16
COUNTED = ("MatMul", "MatMulInteger", "Gemm", "Conv", "ConvInteger", "ConvTranspose", "LSTM", "GRU", "RNN")
# Standard operators with a product inside, and those that run a graph: FLOP that nobody here counts.
UNCOUNTED = ("Attention", "DeformConv", "DFT", "Einsum", "If", "Loop", "QLinearConv", "QLinearMatMul", "Scan", "STFT")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def of(model: Any, inputs: tuple[TensorSpec, ...], sizes: dict[str, int]) -> PolicyCost:
    """Parameters are float initializers; constants are float tensors in Constant nodes; each weight is read once per call.

    FLOP are 2 per multiply-add of MatMul, Gemm, Conv and recurrent operators (element-wise work is left out); None as soon as
    one of these has an unknown shape, or another operator carries work.
    """
    initializers = list(model.graph.initializer)
    parameters = sum(math.prod(t.dims) for t in initializers if t.data_type in FLOATS)
    constants = sum(_constants(node) for node in model.graph.node)
    read = sum(external.tensor_bytes(t) for t in initializers)
    shapes = known_shapes(model, inputs, sizes)
    flop: int | None = 0
    for node in model.graph.node:
        if node.op_type in COUNTED and flop is not None:
            one = _flop(node, shapes)
            flop = None if one is None else flop + one
        elif carries_work(node):
            flop = None  # of a branch or a loop: how often it runs is not in the file
    return PolicyCost(parameters=parameters, constants=constants, bytes_read=read, flop=flop)


def carries_work(node: Any) -> bool:
    """Whether it may do more than about one operation per element: products, recurrences, graphs, whatever isn't standard."""
    return node.op_type in (*COUNTED, *UNCOUNTED) or node.domain not in ("", "ai.onnx")


def _constants(node: Any) -> int:
    if node.op_type != "Constant":
        return 0
    sizes = [math.prod(a.t.dims) for a in node.attribute if a.HasField("t") and a.t.data_type in FLOATS]
    sizes += [len(a.floats) for a in node.attribute]
    return sum(n for n in sizes if n > 1)


def _flop(node: Any, shapes: dict[str, Shape]) -> int | None:
    ins = [shapes.get(n) for n in node.input]
    out = shapes.get(node.output[0]) if node.output else None
    if node.op_type in GATES:
        x, w, r = (*ins, None, None, None)[:3]
        if x is None or w is None or r is None or len(x) != 3 or len(w) != 3 or len(r) != 3:
            return None
        return 2 * x[0] * x[1] * w[0] * (math.prod(w[1:]) + math.prod(r[1:]))
    if out is None or len(ins) < 2:
        return None
    a, b = ins[0], ins[1]
    if node.op_type in ("Conv", "ConvInteger", "ConvTranspose"):
        each = a if node.op_type == "ConvTranspose" else out  # what a whole kernel is applied to
        return None if b is None or each is None else 2 * math.prod(each) * math.prod(b[1:])
    if a is None:
        return None
    transposed = node.op_type == "Gemm" and any(x.name == "transA" and x.i for x in node.attribute)
    return 2 * math.prod(out) * (a[0] if transposed else a[-1]) if a else None
