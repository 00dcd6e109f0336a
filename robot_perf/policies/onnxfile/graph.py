"""GraphProto and NodeProto bytes: read, written, and what element types an operator's outputs have."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from robot_perf.policies.onnxfile.protobuf import Field, Value, block, fields, integer, text
from robot_perf.policies.onnxfile.tensors import FLOAT, RawTensor, read_tensor

INT32, UINT8, INT64, BOOL = 6, 2, 7, 9
_FIXED_RESULTS = {
    **dict.fromkeys(("Shape", "Size", "ArgMax", "ArgMin", "NonZero", "NonMaxSuppression"), INT64),
    **dict.fromkeys(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "Not"), BOOL),
    **dict.fromkeys(("IsNaN", "IsInf"), BOOL),
}
_SECOND_RESULTS = {"TopK": INT64, "MaxPool": INT64, "Unique": INT64, "Dropout": BOOL}
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
_SIZED = frozenset((*_RANDOM, "EyeLike"))


@dataclass(frozen=True, slots=True)
class Node:
    """One operator. `attributes` are AttributeProto bytes, `rest` its other fields (name, doc)."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[bytes, ...]
    has_subgraph: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph's parts. `other` are the fields to keep as they are: name, inputs, outputs, doc; value_info is left out."""

    nodes: tuple[Node, ...]
    initializers: tuple[memoryview, ...]
    inputs: tuple[tuple[str, int], ...]  # name, element type
    outputs: tuple[tuple[str, int], ...]
    other: tuple[Field, ...]

    @property
    def float_outputs(self) -> frozenset[str]:
        """Names of the graph's float32 outputs."""
        return frozenset(n for n, elem_type in self.outputs if elem_type == FLOAT)


def operators(data: bytes) -> Iterator[str]:
    """Operator names of a model's main graph and of its branches."""
    for number, _, value in fields(data):
        if number == 7 and not isinstance(value, int):
            yield from _operators(value)


def main_nodes(data: bytes) -> list[str]:
    """Operator and, where it has one, name of each node of a model's main graph, in the file's order."""
    graphs = [value for number, _, value in fields(data) if number == 7 and not isinstance(value, int)]
    nodes = [_node(v) for graph in graphs for n, _, v in fields(graph) if n == 1 and not isinstance(v, int)]
    return [" ".join(word for word in (node.op, node.name) if word) for node in nodes]


def _operators(graph: memoryview) -> Iterator[str]:
    for number, _, value in fields(graph):
        if number == 1 and not isinstance(value, int):
            node = _node(value)
            yield node.op
            for attribute_bytes in node.attributes:
                for n, _, v in fields(attribute_bytes):
                    if n in (6, 11) and not isinstance(v, int):
                        yield from _operators(v)


def read(data: memoryview) -> Graph:
    """A graph. Raises ValueError for sparse weights and damaged messages."""
    nodes: list[Node] = []
    initializers: list[memoryview] = []
    inputs: list[tuple[str, int]] = []
    outputs: list[tuple[str, int]] = []
    other: list[Field] = []
    for number, wire, value in fields(data):
        if number == 13:
            continue  # types of intermediate tensors: the runtime infers them anew
        if number == 15:
            raise ValueError("sparse weights")
        if isinstance(value, int):
            other.append((number, wire, value))
        elif number == 1:
            nodes.append(_node(value))
        elif number == 5:
            initializers.append(value)
        else:
            if number in (11, 12):
                (inputs if number == 11 else outputs).append(_value_info(value))
            other.append((number, wire, value))
    return Graph(tuple(nodes), tuple(initializers), tuple(inputs), tuple(outputs), tuple(other))


def write(node: Node, inputs: Sequence[str], outputs: Sequence[str], attributes: Sequence[bytes]) -> bytes:
    """The NodeProto with other inputs, outputs and attributes."""
    parts = [*(text(1, n) for n in inputs), *(text(2, n) for n in outputs), text(3, node.name), text(4, node.op)]
    domain = [text(7, node.domain)] if node.domain else []
    return b"".join([*parts, *(block(5, a) for a in attributes), *domain])


def cast(source: str, target: str, elem_type: int) -> bytes:
    """A Cast node."""
    return b"".join(
        [
            text(1, source),
            text(2, target),
            text(3, f"{target}/cast"),
            text(4, "Cast"),
            block(5, int_attribute("to", elem_type)),
        ]
    )


def int_attribute(name: str, value: int) -> bytes:
    """An AttributeProto that holds an integer."""
    return text(1, name) + integer(3, value) + integer(20, 2)


def tensor_attribute(name: str, tensor: bytes) -> bytes:
    """An AttributeProto that holds a tensor."""
    return text(1, name) + block(5, tensor) + integer(20, 4)


def attribute(data: bytes) -> tuple[str, dict[int, Value]]:
    """An attribute's name and its last value by field number."""
    entries = {n: v for n, _, v in fields(data)}
    name = entries.get(1, memoryview(b""))
    return ("" if isinstance(name, int) else str(bytes(name), "utf-8")), entries


def float_constant(name: str, entries: dict[int, Value]) -> RawTensor:
    """The tensor of a Constant's `value_float` or `value_floats`."""
    value = entries.get(2 if name == "value_float" else 7, memoryview(b""))
    if isinstance(value, int) or len(value) % 4:
        raise ValueError("a float constant of another type")
    dims = () if name == "value_float" else (len(value) // 4,)
    return RawTensor("", dims, FLOAT, bytes(value) or struct.pack("<f", 0.0))


def output_types(node: Node, given: Sequence[int | None], attributes: Sequence[bytes], low: int) -> list[int | None]:
    """Element types of a node's outputs; None where they can't be told. `low` is what a float constant without a type gets."""
    found = dict(map(attribute, attributes))
    first = next((t for t in given if t is not None), None)
    op, count = node.op, len(node.outputs)
    if op in _FIXED_RESULTS:
        return [_FIXED_RESULTS[op]] * count
    if op == "Cast":
        return [_integer(found.get("to", {}), 3)]
    if op in ("Constant", "ConstantOfShape"):
        return [_constant(found, low)]
    if op in _SIZED:
        return [_integer(found.get("dtype", {}), 3) or (INT32 if op == "Multinomial" else low)]
    at = {"Where": 1, "OneHot": 2, "CastLike": 1, "SequenceAt": 0}.get(op)
    if at is not None and at < len(given):
        return [given[at]] * count
    second = _SECOND_RESULTS.get(op)
    return [first, *([second if second is not None else first] * (count - 1))]


def _constant(found: dict[str, dict[int, Value]], low: int) -> int | None:
    if "value" in found:
        return read_tensor(found["value"][5]).elem_type
    if "value_int" in found or "value_ints" in found:
        return INT64
    return low if not found or "value_float" in found or "value_floats" in found else None


def _integer(entries: dict[int, Value], number: int) -> int | None:
    value = entries.get(number)
    return value if isinstance(value, int) else None


def _node(data: memoryview) -> Node:
    inputs, outputs, attributes, words = [], [], [], {3: "", 4: "", 7: ""}
    subgraph = False
    for number, _, value in fields(data):
        if isinstance(value, int):
            continue
        if number == 1:
            inputs.append(str(bytes(value), "utf-8"))
        elif number == 2:
            outputs.append(str(bytes(value), "utf-8"))
        elif number == 5:
            attributes.append(bytes(value))
            subgraph = subgraph or any(n in (6, 11) for n, _, _ in fields(value))
        elif number in words:
            words[number] = str(bytes(value), "utf-8")
    return Node(words[4], words[7], words[3], tuple(inputs), tuple(outputs), tuple(attributes), subgraph)


def _value_info(data: memoryview) -> tuple[str, int]:
    name, elem_type = "", 0
    for number, _, value in fields(data):
        if isinstance(value, int):
            continue
        if number == 1:
            name = str(bytes(value), "utf-8")
        elif number == 2:
            for n, _, tensor in fields(value):
                if n == 1 and not isinstance(tensor, int):
                    elem_type = next((v for m, _, v in fields(tensor) if m == 1 and isinstance(v, int)), 0)
    return name, elem_type
