"""Shapes inside an ONNX graph, as far as simple rules reach: enough to count the FLOP of published policies.
Where they end, what could not be counted is said (`formats/operators.py`).

The `onnx` package could infer more, but it does so in C++ on a file we have no reason to trust yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from robot_perf.policies.onnxfile.signature import dims_of
from robot_perf.policies.onnxfile.windows import convolved, pooled, transposed
from robot_perf.specs import TensorSpec

Shape = tuple[int, ...]
# Operators whose (first) output has the shape of their first input.
# fmt: off
SAME = frozenset({
    "Elu", "Relu", "LeakyRelu", "Selu", "Celu", "Gelu", "Mish", "Silu", "Sigmoid", "Tanh", "Softsign",
    "Softplus", "HardSigmoid", "HardSwish", "Softmax", "LogSoftmax", "Clip", "Cast", "CastLike", "Identity",
    "Dropout", "LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "Neg",
    "Abs", "Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Erf", "Floor", "Ceil", "Round", "Not", "Sign", "IsNaN",
    "PRelu", "ThresholdedRelu", "RMSNormalization", "LpNormalization", "CumSum", "QuantizeLinear", "DequantizeLinear",
})
BROADCAST = frozenset({
    "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mean", "Sum", "And", "Or", "Xor", "Equal", "Less",
    "Greater", "LessOrEqual", "GreaterOrEqual", "Where",
})
# fmt: on


def known_shapes(model: Any, inputs: tuple[TensorSpec, ...], sizes: dict[str, int]) -> dict[str, Shape]:
    """Shapes by tensor name: inputs, initializers, what the exporter wrote of results and outputs, then what the rules give."""
    shapes: dict[str, Shape] = {t.name: t.shape for t in inputs}
    shapes.update({i.name: tuple(i.dims) for i in model.graph.initializer})
    for value in (*model.graph.value_info, *model.graph.output):
        dims = dims_of(value)
        if dims is not None and all(isinstance(d, int) or d in sizes for d in dims):
            shapes[value.name] = tuple(d if isinstance(d, int) else sizes[str(d)] for d in dims)
    constants = {i.name: i for i in model.graph.initializer if i.data_type == 7}
    for node in model.graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    shapes[node.output[0]] = tuple(attribute.t.dims)
                    constants[node.output[0]] = attribute.t
        elif node.output and node.output[0] not in shapes:
            _apply(node, shapes, constants)
    return shapes


def _apply(node: Any, shapes: dict[str, Shape], constants: dict[str, Any]) -> None:
    ins = [shapes.get(n) for n in node.input]
    attributes = {a.name: a.s if a.type == a.STRING else (list(a.ints) or a.i) for a in node.attribute}
    if node.op_type in BROADCAST:
        result = _broadcast(ins)
    elif not ins or ins[0] is None:
        return
    elif node.op_type in SAME:
        result = ins[0]
    elif node.op_type == "Split":
        sizes = attributes.get("split") or (_ints(constants.get(node.input[1])) if len(node.input) > 1 else [])
        for name, part in zip(node.output, _split(ins[0], attributes, sizes, len(node.output)), strict=False):
            shapes[name] = part
        return
    elif node.op_type == "Slice":
        result = _slice(ins[0], [_ints(constants.get(name)) if name else [] for name in node.input[1:]])
    else:
        rule = RULES.get(node.op_type)
        axes = _ints(constants.get(node.input[1])) if len(node.input) > 1 else None
        result = rule(ins, attributes, axes) if rule else None
    if result is not None:
        shapes[node.output[0]] = result
    if node.op_type in ("LSTM", "GRU", "RNN") and result is not None:
        for name in node.output[1:]:
            shapes[name] = (result[1], result[2], result[3])
    elif node.op_type in ("MaxPool", "Dropout") and result is not None:
        shapes.update(dict.fromkeys(filter(None, node.output[1:]), result))


def _ints(tensor: Any) -> list[int] | None:
    if tensor is None or tensor.data_type != 7 or tensor.data_location == 1:
        return None
    if tensor.raw_data:
        data = tensor.raw_data
        return [int.from_bytes(data[i : i + 8], "little", signed=True) for i in range(0, len(data) - 7, 8)]
    return [int(n) for n in tensor.int64_data]


def _broadcast(ins: list[Shape | None]) -> Shape | None:
    shapes = [s for s in ins if s is not None]
    if not shapes or len(shapes) < len(ins):
        return None
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(max(column) for column in zip(*padded, strict=True))


def _matmul(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    a, b = ins[0], ins[1]
    if a is None or b is None or not a or not b:
        return None
    head = _broadcast([a[:-2], b[:-2]]) or ()
    return head + (a[-2:-1] if len(a) > 1 else ()) + (b[-1:] if len(b) > 1 else ())


def _gemm(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    a, b = ins[0], ins[1]
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    return (a[1] if attributes.get("transA") else a[0], b[0] if attributes.get("transB") else b[1])


def _recurrent(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    x, r = ins[0], ins[2] if len(ins) > 2 else None
    return (x[0], r[0], x[1], r[2]) if x is not None and r is not None and len(x) == 3 and len(r) == 3 else None


def _unsqueeze(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    where = attributes.get("axes") or axes
    if not where or ins[0] is None:
        return None
    rank = len(ins[0]) + len(where)
    at = {a % rank for a in where}
    rest = iter(ins[0])
    return tuple(1 if i in at else next(rest) for i in range(rank)) if len(at) == len(where) else None


def _squeeze(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    shape = ins[0] or ()
    where = attributes.get("axes") or axes
    drop = {a % len(shape) for a in where} if where and shape else {i for i, n in enumerate(shape) if n == 1}
    return tuple(n for i, n in enumerate(shape) if i not in drop)


def _reshape(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    if axes is None or ins[0] is None:
        return None
    sizes = [ins[0][i] if n == 0 and i < len(ins[0]) else n for i, n in enumerate(axes)]
    if -1 in sizes:
        rest = math.prod(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = math.prod(ins[0]) // rest if rest > 0 else 0
    return tuple(sizes)


def _slice(shape: Shape, given: list[list[int] | None]) -> Shape | None:
    """Opset 10 on: starts, ends, and as far as they are there axes and steps, all of them constants."""
    starts, ends, axes, steps = (*given, [], [], [], [])[:4]
    if not starts or ends is None or axes is None or steps is None:
        return None
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        return None
    sizes = list(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -len(shape) <= axis < len(shape):
            return None
        sizes[axis] = _cut(shape[axis], start, end, step)
    return tuple(sizes)


def _cut(size: int, start: int, end: int, step: int) -> int:
    """Values that remain. As the operator's text has it, which is no Python slice: backwards, a start before the beginning is the first value."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + size * (start < 0), 0), high)
    last = min(max(end + size * (end < 0), low), high)
    return len(range(first, last, step))


def _flatten(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    shape, axis = ins[0] or (), int(attributes.get("axis", 1))
    return (math.prod(shape[:axis]), math.prod(shape[axis:]))


def _concat(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    shapes = [s for s in ins if s is not None]
    if len(shapes) < len(ins) or not shapes[0]:
        return None
    axis = int(attributes.get("axis", -1)) % len(shapes[0])
    if any(len(s) != len(shapes[0]) for s in shapes):
        return None
    return tuple(sum(s[i] for s in shapes) if i == axis else n for i, n in enumerate(shapes[0]))


def _transpose(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    shape = ins[0] or ()
    order = attributes.get("perm") or list(range(len(shape)))[::-1]
    return tuple(shape[i] for i in order) if sorted(order) == list(range(len(shape))) else None


def _split(shape: Shape, attributes: dict[str, Any], sizes: list[int] | None, parts: int) -> list[Shape]:
    """The shape of each part; none where the sizes are computed. Equal parts have the size that is rounded up, the last one the rest."""
    axis = int(attributes.get("axis", 0))
    if sizes is None or not -len(shape) <= axis < len(shape):
        return []
    whole, axis = shape[axis], axis % len(shape)
    each = -(-whole // parts)
    sizes = sizes or [min(each, whole - i * each) for i in range(parts)]
    return [(*shape[:axis], n, *shape[axis + 1 :]) for n in sizes] if sum(sizes) == whole and min(sizes) >= 0 else []


def _gather(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    shape, at, axis = ins[0], ins[1], int(attributes.get("axis", 0))
    if not shape or at is None or not -len(shape) <= axis < len(shape):
        return None
    return (*shape[: axis % len(shape)], *at, *shape[axis % len(shape) + 1 :])


def _reduce(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    shape = ins[0] or ()
    where = attributes.get("axes") or axes
    if (len(ins) > 1 and axes is None) or (not where and attributes.get("noop_with_empty_axes")):
        return None
    gone = {a % len(shape) for a in where} if where and shape else set(range(len(shape)))
    keep = attributes.get("keepdims", 1)
    return tuple(1 if i in gone else n for i, n in enumerate(shape) if keep or i not in gone)


def _pad(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    shape, pads = ins[0] or (), attributes.get("pads") or axes
    if not pads or len(pads) != 2 * len(shape) or len(ins) > 3:
        return None
    return tuple(n + pads[i] + pads[i + len(shape)] for i, n in enumerate(shape))


def _expand(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    return None if axes is None else _broadcast([ins[0], tuple(axes)])


def _global_pool(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    shape = ins[0] or ()
    return (*shape[:2], *[1] * (len(shape) - 2)) if len(shape) > 2 else None


def _conv(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    return convolved(ins[0], ins[1], attributes)


def _conv_transpose(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    return transposed(ins[0], ins[1], attributes)


def _pool(ins: list[Shape | None], attributes: dict[str, Any], axes: list[int] | None) -> Shape | None:
    return pooled(ins[0], attributes)


RULES: dict[str, Callable[[list[Shape | None], dict[str, Any], list[int] | None], Shape | None]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Concat": _concat,
    "Transpose": _transpose,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMulInteger": _matmul,
    "Gather": _gather,
    "Pad": _pad,
    "Expand": _expand,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), _global_pool),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2"), _reduce),
}
