"""Inputs and outputs of an ONNX graph, with open axes given a size or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies.asked import Asked, shape_text, shown
from robot_perf.specs import TensorSpec

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
LARGEST_INPUT_BYTES = 2**30
Dims = tuple[int | str | None, ...]  # a size, a symbol, or open without a name


@dataclass(slots=True)
class Signature:
    """Resolved tensors, and how open axes got their sizes."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    notes: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


def read(model: Any, path: Path, asked: Asked) -> Signature:
    """The signature of `model`. Raises PolicyError for open axes without a size and for types that can't be fed."""
    signature = Signature()
    weights = {i.name for i in model.graph.initializer}
    declared = [_declared(v, path) for v in model.graph.input if v.name not in weights]
    if not model.graph.output:
        raise PolicyError(f"{path} is an ONNX model without outputs", do="Export it again.")
    _check_names(asked, declared, path)
    for name, _, dims in declared:
        _bind(name, dims, asked, signature, path)
    signature.inputs = tuple(_input(name, dtype, dims, asked, signature, path) for name, dtype, dims in declared)
    signature.outputs = tuple(_output(_declared(v, path), signature.sizes) for v in model.graph.output)
    return signature


def dims_of(value: Any) -> Dims | None:
    """Declared dimensions of a ValueInfo; None where even the rank is open."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.dim_value > 0 else (d.dim_param or None) for d in tensor.shape.dim)


def _declared(value: Any, path: Path) -> tuple[str, str, Dims | None]:
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


def _check_names(asked: Asked, declared: list[tuple[str, str, Dims | None]], path: Path) -> None:
    names = {name for name, _, _ in declared}
    symbols = {d for _, _, dims in declared for d in dims or () if isinstance(d, str)}
    for name, shape in asked.shapes.items():
        if name not in names and not (name in symbols and len(shape) == 1):
            raise UsageError(
                f"{path}: --shape {shown(name)}: there is no such input or symbolic axis",
                why=f"Inputs: {', '.join(shown(n) for n in names) or 'none'}; symbolic axes: {', '.join(map(shown, symbols)) or 'none'}.",
            )
        if any(n < 1 for n in shape):
            raise UsageError(f"{path}: --shape {shown(name)}={','.join(map(str, shape))}: sizes start at 1")


def _wanted(name: str, dims: Dims | None, asked: Asked, path: Path) -> tuple[tuple[int, ...], str] | None:
    """The full shape that a person or a recording gives for an input, checked against the fixed axes."""
    if name in asked.shapes and not (dims is not None and len(dims) != 1 and name in dims):
        shape, source = asked.shapes[name], f"--shape {shown(name)}={','.join(map(str, asked.shapes[name]))}"
    elif name in asked.recorded and dims is not None and any(not isinstance(d, int) for d in dims):
        shape, source = (
            asked.recorded[name][1],
            f"the recording of {shown(name)}, {shape_text(asked.recorded[name][1])} per step",
        )
    else:
        return None
    if dims is not None and (
        len(shape) != len(dims) or any(isinstance(d, int) and d != n for d, n in zip(dims, shape, strict=True))
    ):
        text = shape_text(
            tuple(d if isinstance(d, int) else -1 for d in dims), tuple(d if isinstance(d, str) else None for d in dims)
        )
        raise UsageError(f"{path}: {source} does not fit", why=f"The file declares {shown(name)} as {text}.")
    return shape, source


def _bind(name: str, dims: Dims | None, asked: Asked, signature: Signature, path: Path) -> None:
    for symbol in (d for d in dims or () if isinstance(d, str) and len(asked.shapes.get(d, ())) == 1):
        signature.sizes.setdefault(symbol, asked.shapes[symbol][0])
    wanted = _wanted(name, dims, asked, path)
    if wanted is None or dims is None:
        return
    for axis, size in zip(dims, wanted[0], strict=True):
        if isinstance(axis, str) and signature.sizes.setdefault(axis, size) != size:
            raise UsageError(
                f"{path}: the axis {shown(axis)} would have two sizes, {signature.sizes[axis]} and {size}",
                why=f"From {wanted[1]}.",
            )


def _input(name: str, dtype: str, dims: Dims | None, asked: Asked, signature: Signature, path: Path) -> TensorSpec:
    wanted = _wanted(name, dims, asked, path)
    if dims is None:
        if wanted is None:
            raise PolicyError(f"{path}: input {shown(name)} declares no shape", do=f"Add --shape {shown(name)}=1,…")
        shape: tuple[int, ...] = wanted[0]
        return _bounded(TensorSpec(name, dtype, shape), path)
    shape = wanted[0] if wanted else tuple(d if isinstance(d, int) else signature.sizes.get(d or "", -1) for d in dims)
    still_open = [i for i, n in enumerate(shape) if n < 0]
    if still_open == [0]:
        shape = (1, *shape[1:])
        label = shown(dims[0]) if dims[0] else "open"
        rest = "".join(f",{n}" for n in shape[1:])
        if isinstance(dims[0], str):
            signature.sizes.setdefault(dims[0], 1)
        signature.notes.append(
            f"input {name}: its first axis ({label}) is open; 1 is used (--shape {name}=N{rest} sets it)"
        )
    elif still_open:
        raise _open(name, dims, shape, path)
    return _bounded(TensorSpec(name, dtype, shape, tuple(d if isinstance(d, str) else None for d in dims)), path)


def _open(name: str, dims: Dims, shape: tuple[int, ...], path: Path) -> PolicyError:
    symbols = [shown(d, 24) if isinstance(d, str) else "?" for d in (dims[i] for i, n in enumerate(shape) if n < 0)]
    first = not isinstance(dims[0], int)
    example = [
        "1" if i == 0 and first else (str(n) if n > 0 else f"<{shown(dims[i] or 'size', 24)}>")
        for i, n in enumerate(shape)
    ]
    return PolicyError(
        f"{path}: input {shown(name)} has open axes without a size: {', '.join(symbols)}",
        why="The file does not say which size the robot runs; only a first axis alone is taken as 1.",
        do=f"Add --shape {shown(name)}={','.join(example)} with numbers for the names in <>.",
    )


def _bounded(tensor: TensorSpec, path: Path) -> TensorSpec:
    size = math.prod(tensor.shape) * 8
    if size > LARGEST_INPUT_BYTES * 8:
        raise PolicyError(
            f"{path}: one step of input {shown(tensor.name)} {shape_text(tensor.shape)} has above 2^30 elements"
        )
    return tensor


def _output(declared: tuple[str, str, Dims | None], sizes: Mapping[str, int]) -> TensorSpec:
    name, dtype, dims = declared
    shape = tuple(d if isinstance(d, int) else sizes.get(d or "", -1) for d in dims or ())
    return TensorSpec(name, dtype, shape, tuple(d if isinstance(d, str) else None for d in dims or ()))
