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
            *(_field(1, _node(n)) for n in nodes),
            _text(2, name),
            *(_field(5, _tensor(k, v)) for k, v in weights.items()),
            *(_field(11, _value(v)) for v in inputs),
            *(_field(12, _value(v)) for v in outputs),
        ]
    )
    return b"".join([_int(1, ir_version), _text(2, "robot-perf"), _field(7, graph), _field(8, _int(2, opset))])


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _node(node: Node) -> bytes:
    return b"".join(
        [
            *(_text(1, n) for n in node.inputs),
            *(_text(2, n) for n in node.outputs),
            _text(4, node.op),
            *(_field(5, _attribute(k, v)) for k, v in node.attributes.items()),
        ]
    )


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, _FLOAT)
    if isinstance(value, int):
        return _text(1, name) + _int(3, value) + _int(20, _INT)
    if isinstance(value, str):
        return _text(1, name) + _text(4, value) + _int(20, _STRING)
    return _text(1, name) + b"".join(_int(8, v) for v in value) + _int(20, _INTS)


def _tensor(name: str, array: NDArray[Any]) -> bytes:
    elem = ELEM_TYPES[array.dtype.name]
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return b"".join([*(_int(1, n) for n in array.shape), _int(2, elem), _text(8, name), _field(9, data)])


def _value(value: ValueInfo) -> bytes:
    name, dtype, shape = value
    dims = b"".join(_field(1, _int(1, n)) for n in shape)
    return _text(1, name) + _field(2, _field(1, _int(1, ELEM_TYPES[dtype]) + _field(2, dims)))
