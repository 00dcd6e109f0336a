"""Writes small ONNX models as bytes with numpy alone, so that a built-in network needs no `onnx` package.

Field numbers are those of onnx.proto (ONNX 1.16, IR version 8).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.policies.onnxfile.protobuf import block, integer, text, varint

ELEM_TYPES = {"float32": 1, "int64": 7}
_FLOAT, _INT, _STRING, _INTS = 1, 2, 3, 7

Attribute = int | float | str | Sequence[int]
ValueInfo = tuple[str, str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the default domain."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def model(
    nodes: Sequence[Node],
    weights: Mapping[str, NDArray[Any]],
    inputs: Sequence[ValueInfo],
    outputs: Sequence[ValueInfo],
    *,
    opset: int = 17,
    ir_version: int = 8,
    name: str = "policy",
) -> bytes:
    """A serialized ModelProto. Weights are float32 or int64, in C order."""
    graph = b"".join(
        [
            *(block(1, _node(n)) for n in nodes),
            text(2, name),
            *(block(5, _tensor(k, v)) for k, v in weights.items()),
            *(block(11, _value(v)) for v in inputs),
            *(block(12, _value(v)) for v in outputs),
        ]
    )
    return b"".join([integer(1, ir_version), text(2, "robot-perf"), block(7, graph), block(8, integer(2, opset))])


def _node(node: Node) -> bytes:
    return b"".join(
        [
            *(text(1, n) for n in node.inputs),
            *(text(2, n) for n in node.outputs),
            text(4, node.op),
            *(block(5, _attribute(k, v)) for k, v in node.attributes.items()),
        ]
    )


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return text(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + integer(20, _FLOAT)
    if isinstance(value, int):
        return text(1, name) + integer(3, value) + integer(20, _INT)
    if isinstance(value, str):
        return text(1, name) + text(4, value) + integer(20, _STRING)
    return text(1, name) + b"".join(integer(8, v) for v in value) + integer(20, _INTS)


def _tensor(name: str, array: NDArray[Any]) -> bytes:
    elem = ELEM_TYPES[array.dtype.name]
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return b"".join([*(integer(1, n) for n in array.shape), integer(2, elem), text(8, name), block(9, data)])


def _value(value: ValueInfo) -> bytes:
    name, dtype, shape = value
    dims = b"".join(block(1, integer(1, n)) for n in shape)
    return text(1, name) + block(2, block(1, integer(1, ELEM_TYPES[dtype]) + block(2, dims)))
