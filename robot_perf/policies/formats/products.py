"""The matrix products of a policy by shape, read without running it: what a kernel of it has to do is predicted from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from robot_perf.errors import UsageError
from robot_perf.policies import builtin
from robot_perf.specs import PolicySpec

_GATES = {"gru": 3, "lstm": 4}


@dataclass(frozen=True)
class Product:
    """[rows, inner] x [inner, outer] of one call."""

    name: str
    rows: int
    inner: int
    outer: int

    @property
    def text(self) -> str:
        """`linear 48 to 512`, with the rows where there are several."""
        return f"{self.name} {self.inner} to {self.outer}" + (f", {self.rows} rows" if self.rows != 1 else "")


def products(policy: PolicySpec) -> tuple[Product, ...]:
    """In the order in which a call makes them. Raises UsageError where the policy doesn't tell its layers."""
    found: list[Product] = []
    if policy.kind == "builtin" and policy.builtin["name"] in ("mlp", *_GATES):
        found = _of_builtin(policy)
    elif policy.kind == "onnx" and policy.path is not None:
        found = _of_onnx(policy, Path(policy.path))
    if not found:
        raise UsageError(
            f"{policy.name}: the shapes of its layers can't be read",
            why="They are read from ONNX files (MatMul, Gemm) and from the built-ins mlp, gru and lstm.",
            do="Give them: PATTERN@linear=ROWSxINNERxOUTER,dtype=fp32.",
        )
    return tuple(found)


def _of_builtin(policy: PolicySpec) -> list[Product]:
    name, dims = policy.builtin["name"], policy.builtin
    found, taken = [], dims["obs"]
    if name == "gru":
        found.append(Product("encoder", 1, taken, dims["encoder"]))
        taken = dims["encoder"]
    if gates := _GATES.get(name, 0):
        memory = dims["memory"]
        found += [Product("gates of the input", 1, taken, gates * memory), Product("gates of the memory", 1, memory, gates * memory)]  # fmt: skip
    return found + [Product("linear", 1, inner, outer) for inner, outer in builtin.layers(name, dims)]


def _of_onnx(policy: PolicySpec, path: Path) -> list[Product]:
    from robot_perf.policies.onnxfile import model
    from robot_perf.policies.onnxfile.shapes import known_shapes

    parsed = model.parse(path)
    shapes = known_shapes(parsed, policy.inputs, {})
    found = []
    for node in parsed.graph.node:
        if node.op_type not in ("MatMul", "Gemm") or len(node.input) < 2:
            continue
        left, out = shapes.get(node.input[0]), shapes.get(node.output[0])
        if not left or not out:
            continue
        transposed = node.op_type == "Gemm" and any(a.name == "transA" and a.i for a in node.attribute)
        found.append(
            Product(node.name or node.op_type, math.prod(out[:-1]), left[0] if transposed else left[-1], out[-1])
        )
    return found
