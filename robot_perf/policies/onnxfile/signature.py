"""Inputs and outputs of an ONNX graph as the file declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robot_perf.errors import PolicyError
from robot_perf.policies import sizes
from robot_perf.policies.asked import Asked, shown

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}


def read(model: Any, path: Path, asked: Asked) -> sizes.Signature:
    """The signature of `model`. Raises PolicyError for open axes without a size and for types that can't be fed."""
    if not model.graph.output:
        raise PolicyError(f"{path} is an ONNX model without outputs", do="Export it again.")
    weights = {i.name for i in model.graph.initializer}
    inputs = [_declared(v, path) for v in model.graph.input if v.name not in weights]
    return sizes.settle(inputs, [_declared(v, path) for v in model.graph.output], path, asked)


def dims_of(value: Any) -> sizes.Dims | None:
    """Declared dimensions of a ValueInfo; None where even the rank is open."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.dim_value > 0 else (d.dim_param or None) for d in tensor.shape.dim)


def _declared(value: Any, path: Path) -> sizes.Declared:
    which = value.type.WhichOneof("value")
    if which != "tensor_type":
        raise PolicyError(
            f"{path}: {shown(value.name)} is a {which or 'value without a type'}, not a tensor",
            do="Export it with tensors.",
        )
    code = value.type.tensor_type.elem_type
    if code not in DTYPES:
        import onnx

        name = onnx.TensorProto.DataType.Name(code).lower() if code in onnx.TensorProto.DataType.values() else str(code)
        raise PolicyError(
            f"{path}: {shown(value.name)} has the dtype {name}, which NumPy can't hold",
            why=f"Held: {', '.join(DTYPES.values())}.",
            do="Export it with one of these at its inputs and outputs.",
        )
    return value.name, DTYPES[code], dims_of(value)
