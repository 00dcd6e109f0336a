"""Sizes of inputs and outputs: open axes are given one by `--shape` or a recording, taken as 1, or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies.asked import Asked, shape_text, shown
from robot_perf.specs import TensorSpec

LARGEST_ELEMENTS = 2**28
Dims = tuple[int | str | None, ...]  # a size, a symbol, or open without a name
Declared = tuple[str, str, Dims | None]  # name, dtype, dimensions (None: even the rank is open)


@dataclass(slots=True)
class Signature:
    """Resolved tensors, and how open axes got their sizes."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    notes: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


def settle(
    inputs: Sequence[Declared],
    outputs: Sequence[Declared],
    path: Path,
    asked: Asked,
    limits: Mapping[str, tuple[int, int | None]] | None = None,
) -> Signature:
    """The signature with every input axis sized. `limits` are the least and most a symbolic axis may have.

    Raises PolicyError for an open axis without a size, UsageError for a size that the file does not allow.
    """
    signature = Signature()
    _check_names(asked, list(inputs), path)
    for name, _, dims in inputs:
        _bind(name, dims, asked, signature, path)
    signature.inputs = tuple(_input(name, dtype, dims, asked, signature, path) for name, dtype, dims in inputs)
    for symbol, (least, most) in (limits or {}).items():
        size = signature.sizes.get(symbol)
        if size is not None and (size < least or (most is not None and size > most)):
            raise UsageError(
                f"{path}: the axis {shown(symbol)} would have the size {size:,}, outside the file's own limits",
                why=f"Allowed: {least:,} to {most:,}." if most is not None else f"Allowed: {least:,} or more.",
                do="Give a size within them with --shape.",
            )
    signature.outputs = tuple(_output(o, signature.sizes) for o in outputs)
    return signature


def _check_names(asked: Asked, declared: list[Declared], path: Path) -> None:
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
    if math.prod(tensor.shape) > LARGEST_ELEMENTS:
        raise PolicyError(
            f"{path}: one step of input {shown(tensor.name)} {shape_text(tensor.shape)} has {math.prod(tensor.shape):,} elements",
            why=f"At most {LARGEST_ELEMENTS:,} are fed.",
        )
    return tensor


def _output(declared: Declared, sizes: Mapping[str, int]) -> TensorSpec:
    name, dtype, dims = declared
    shape = tuple(d if isinstance(d, int) else sizes.get(d or "", -1) for d in dims or ())
    return TensorSpec(name, dtype, shape, tuple(d if isinstance(d, str) else None for d in dims or ()))
