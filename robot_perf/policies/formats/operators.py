"""What each operator of a policy file does: FLOP and bytes, read from the graph. Nothing is executed or unpickled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_perf.errors import PolicyError
from robot_perf.policies.formats import exported_operators
from robot_perf.policies.formats.counted import Operator, OperatorCount, spec_bytes
from robot_perf.specs import PolicySpec

# Operators that move no bytes: another view of the same memory, or a value known before the call.
VIEWS = frozenset(
    {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Constant", "Shape", "Dropout", "ConstantOfShape"}
)


def count_operators(spec: PolicySpec) -> OperatorCount:
    """The operators of a policy that `describe` returned: ONNX files, built-in networks, torch.export files.

    Raises PolicyError for a policy without a readable graph (a callable, TorchScript, null, spin).
    """
    if spec.kind == "onnx" and spec.path is not None:
        from robot_perf.policies.onnxfile import model

        return _onnx(model.parse(Path(spec.path)), spec)
    if spec.kind == "builtin" and spec.cost is not None and spec.cost.parameters:
        import onnx

        from robot_perf.policies.builtin import onnx_model

        return _onnx(onnx.ModelProto.FromString(onnx_model.render(spec.builtin, spec.seed)), spec)
    if spec.kind == "torch_export" and spec.path is not None:
        return exported_operators.count(Path(spec.path), spec)
    raise PolicyError(
        f"{spec.name}: its operators can't be counted",
        why=f"A policy of kind {spec.kind} keeps no graph with shapes that can be read without running it.",
        do="Export it to ONNX or with torch.export and name that file.",
    )


def _onnx(model: Any, spec: PolicySpec) -> OperatorCount:
    from robot_perf.policies.onnxfile import external
    from robot_perf.policies.onnxfile.cost import carries_work
    from robot_perf.policies.onnxfile.shapes import known_shapes

    sizes = {s: n for t in spec.inputs for s, n in zip(t.symbols, t.shape, strict=False) if s}
    shapes = known_shapes(model, spec.inputs, sizes)
    weights = {t.name: external.tensor_bytes(t) for t in model.graph.initializer}
    dtype = _weight_dtype(model.graph.initializer)
    width = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}[dtype]
    counted: list[Operator] = []
    uncounted: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    readers: Counter[str] = Counter()
    for position, node in enumerate(model.graph.node):
        if node.op_type in VIEWS:
            continue
        operator = _onnx_operator(node, position, shapes, weights, width)
        if operator is None:
            uncounted[node.op_type] += 1
            missing[node.op_type] += carries_work(node)
        else:
            counted.append(operator)
            readers.update(n for n in node.input if n in weights)
    repeated = sum((times - 1) * weights[name] for name, times in readers.items())
    return OperatorCount(tuple(counted), dict(uncounted), spec_bytes(spec), dtype, dict(+missing), repeated)


def _onnx_operator(
    node: Any, position: int, shapes: Mapping[str, tuple[int, ...]], weights: Mapping[str, int], width: int
) -> Operator | None:
    from robot_perf.policies.onnxfile.cost import COUNTED, _flop, carries_work

    inputs = [n for n in node.input if n and n not in weights]
    outputs = [n for n in node.output if n]
    if any(n not in shapes for n in outputs) or (carries_work(node) and node.op_type not in COUNTED):
        return None
    flop = _flop(node, dict(shapes)) if node.op_type in COUNTED else math.prod(shapes[outputs[0]]) if outputs else 0
    if flop is None:
        return None
    moved = sum(math.prod(shapes[n]) for n in (*inputs, *outputs) if n in shapes) * width
    read = sum(weights[n] for n in node.input if n in weights)
    name = node.name or f"{node.op_type}_{position}"
    return Operator(name, node.op_type, flop, read, moved, about=node.op_type not in COUNTED)


def _weight_dtype(initializers: Any) -> str:
    """The dtype that most float or int8 weights have; fp32 where there is none."""
    names = {1: "fp32", 11: "fp32", 10: "fp16", 16: "bf16", 3: "int8", 2: "int8"}
    sizes: Counter[str] = Counter()
    for tensor in initializers:
        if tensor.data_type in names:
            sizes[names[tensor.data_type]] += math.prod(tensor.dims)
    return sizes.most_common(1)[0][0] if sizes else "fp32"
