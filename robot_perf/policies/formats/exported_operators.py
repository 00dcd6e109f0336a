"""The operators of a torch.export file, from its JSON graph. torch is not imported, and no pickle is opened."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_perf.errors import PolicyError
from robot_perf.policies.formats.archive import member
from robot_perf.policies.formats.counted import Operator, OperatorCount, spec_bytes
from robot_perf.specs import PolicySpec

_LIMIT = 200_000_000
# torch's ScalarType numbers as the schema writes them (1 + c10::ScalarType): name of the precision, bytes per element
_DTYPES = {1: ("uint8", 1), 2: ("int8", 1), 5: ("int64", 8), 6: ("fp16", 2), 7: ("fp32", 4), 8: ("fp64", 8)}
_DTYPES |= {3: ("int16", 2), 4: ("int32", 4), 12: ("bool", 1), 13: ("bf16", 2)}
_VIEWS = {"view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "expand", "flatten", "unflatten", "detach"}
_VIEWS |= {
    "slice",
    "select",
    "alias",
    "getitem",
    "t",
    "size",
    "numel",
    "split",
    "chunk",
    "unbind",
    "_assert_tensor_metadata",
}
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# Parts of the names of operators that carry work: those that _flop counts, and their relatives.
_WORK = (
    "linear",
    "mm",
    "matmul",
    "bmm",
    "mv",
    "conv",
    "attention",
    "lstm",
    "gru",
    "rnn",
    "einsum",
    "cond",
    "while_loop",
)

Tensor = tuple[tuple[int, ...], int]  # shape and bytes per element


def count(path: Path, spec: PolicySpec) -> OperatorCount:
    """The operators of the file at `path`. Raises PolicyError where its graph is not the JSON that torch.export
    writes.
    """
    graph, weights, inputs = _graph(path)
    symbols = _symbols(graph, inputs, spec)
    tensors = {n: t for n, v in graph["tensor_values"].items() if (t := _tensor(v, symbols)) is not None}
    counted: list[Operator] = []
    uncounted: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for node in graph["nodes"]:
        kind = _kind(str(node.get("target", "")))
        if kind in _VIEWS:
            continue
        operator = _operator(node, kind, tensors, weights)
        if operator is None:
            uncounted[kind] += 1
            missing[kind] += _carries_work(str(node.get("target", "")), kind)
        else:
            counted.append(operator)
    dtype = _weight_dtype(graph, weights)
    return OperatorCount(tuple(counted), dict(uncounted), spec_bytes(spec), dtype, dict(+missing))


def _graph(path: Path) -> tuple[dict[str, Any], set[str], list[str]]:
    """The graph, the names of its tensors that are parameters or buffers, and of its user inputs in order."""
    data = member(path, "models/model.json", _LIMIT) or member(path, "serialized_exported_program.json", _LIMIT)
    try:
        module = json.loads(data or b"")["graph_module"]
        graph = module["graph"]
        inputs = module["signature"]["input_specs"]
        names = {e[k]["arg"]["name"] for e in inputs for k in ("parameter", "buffer") if k in e}
        given = [n for e in inputs if "user_input" in e for n in _names(e["user_input"]["arg"])]
        if not isinstance(graph["nodes"], list) or not isinstance(graph["tensor_values"], dict):
            raise TypeError("nodes or tensor_values")
    except (ValueError, KeyError, TypeError) as error:
        raise PolicyError(
            f"{path}: its graph can't be read",
            why="It is not the JSON that torch.export.save writes.",
            detail=str(error),
        ) from error
    return graph, names, given


def _symbols(graph: Mapping[str, Any], inputs: list[str], spec: PolicySpec) -> dict[str, int]:
    """The size of each symbolic axis, from the policy's resolved inputs."""
    symbols: dict[str, int] = {}
    for name, tensor in zip(inputs, spec.inputs, strict=False):
        sizes = graph["tensor_values"].get(name, {}).get("sizes", ())
        for size, known in zip(sizes, tensor.shape, strict=False):
            if isinstance(size, Mapping) and isinstance(size.get("as_expr"), Mapping):
                symbols[str(size["as_expr"].get("expr_str"))] = known
    return symbols


def _tensor(value: Any, symbols: Mapping[str, int]) -> Tensor | None:
    """Shape and element size; None where a size is an unknown expression or the dtype is unknown."""
    dtype = _DTYPES.get(value.get("dtype", -1)) if isinstance(value, Mapping) else None
    if dtype is None:
        return None
    sizes = [_size(s, symbols) for s in value.get("sizes", ())]
    return None if any(s is None for s in sizes) else (tuple(s for s in sizes if s is not None), dtype[1])


def _size(size: Any, symbols: Mapping[str, int]) -> int | None:
    if not isinstance(size, Mapping):
        return None
    if isinstance(size.get("as_int"), int):
        return int(size["as_int"])
    expression = size.get("as_expr")
    return symbols.get(str(expression.get("expr_str"))) if isinstance(expression, Mapping) else None


def _kind(target: str) -> str:
    """`linear` of `torch.ops.aten.linear.default`."""
    parts = target.split(".")
    return parts[3] if len(parts) > 3 and target.startswith("torch.ops.") else parts[-1]


def _carries_work(target: str, kind: str) -> bool:
    """Whether it may do more than about one operation per element: products, recurrences, graphs, whatever isn't torch's."""
    if target.startswith("torch.ops.") and target.split(".")[2] not in ("aten", "prims"):
        return True
    return "bilinear" not in kind and any(word in kind for word in _WORK)


def _operator(node: Any, kind: str, tensors: Mapping[str, Tensor], weights: set[str]) -> Operator | None:
    names = [n for i in node.get("inputs", ()) for n in _names(i.get("arg", {}))]
    outputs = [n for o in node.get("outputs", ()) for n in _names(o)]
    if not outputs or any(n not in tensors for n in (*names, *outputs)):
        return None
    shapes = [tensors[n][0] for n in names]
    flop = _flop(kind, shapes, tensors[outputs[0]][0])
    moved = sum(_bytes(tensors[n]) for n in (*(n for n in names if n not in weights), *outputs))
    read = sum(_bytes(tensors[n]) for n in names if n in weights)
    if flop is None and _carries_work(str(node.get("target", "")), kind):
        return None
    about = flop is None
    total = math.prod(tensors[outputs[0]][0]) if flop is None else flop
    return Operator(str(node.get("name") or outputs[0]), kind, total, read, moved, about)


def _flop(kind: str, shapes: list[tuple[int, ...]], out: tuple[int, ...]) -> int | None:
    """FLOP of a matrix operator, 2 per multiply-add; None for an element-wise one."""
    if kind in ("linear", "matmul", "mm", "bmm", "mv") and len(shapes) > 1 and shapes[0]:
        return 2 * math.prod(out) * shapes[0][-1]
    if kind in ("addmm", "baddbmm") and len(shapes) > 2 and shapes[1]:
        return 2 * math.prod(out) * shapes[1][-1]
    if kind.startswith("conv") and len(shapes) > 1:
        return 2 * math.prod(out) * math.prod(shapes[1][1:])
    if kind == "scaled_dot_product_attention" and len(shapes) > 2:
        return 2 * math.prod(shapes[0]) * shapes[1][-2] + 2 * math.prod(out) * shapes[1][-2]
    if kind in _GATES and shapes:
        steps = math.prod(shapes[0][:-1])
        return 2 * steps * sum(math.prod(s) for s in shapes[1:] if len(s) == 2)
    return None


def _names(argument: Any) -> list[str]:
    if not isinstance(argument, Mapping):
        return []
    if isinstance(argument.get("as_tensor"), Mapping):
        return [str(argument["as_tensor"].get("name"))]
    return [str(t.get("name")) for t in argument.get("as_tensors") or () if isinstance(t, Mapping)]


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor[0]) * tensor[1]


def _weight_dtype(graph: Mapping[str, Any], weights: set[str]) -> str:
    codes = Counter(
        _DTYPES.get(v.get("dtype", -1), ("?", 0))[0] for n, v in graph["tensor_values"].items() if n in weights
    )
    known = [name for name, _ in codes.most_common() if name in ("fp32", "fp16", "bf16", "int8")]
    return known[0] if known else "fp32"
