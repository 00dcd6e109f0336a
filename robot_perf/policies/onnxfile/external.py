"""Weights in a second file: where they may be, how long they must be, what is left over. Checked before any runtime starts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shown

PAGE_BYTES = 4096
# Bytes per element by TensorProto.DataType; packed 4-bit types are rounded up.
ITEM_BYTES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 14: 8, 15: 16, 16: 2}


@dataclass(frozen=True, slots=True)
class External:
    """Data files of a model in the order they are first named, and what to say about them."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def check(model: Any, path: Path) -> External:
    """The data files of the ONNX `model` at `path`. Raises PolicyError when one is missing, short or outside the folder."""
    last: dict[str, int] = {}
    for tensor in tensors(model):
        if tensor.data_location == 1:
            location, end = _reference(tensor, path)
            last[location] = max(last.get(location, 0), end)
    files, notes = [], []
    for location, end in last.items():
        target = _inside(location, path)
        size = target.stat().st_size
        if size < end:
            raise PolicyError(
                f"{path}: its external data {target} is too short",
                why=f"{end:,} bytes wanted, {size:,} found.",
                do="Copy the .onnx and its data file together, again.",
            )
        if size - end > PAGE_BYTES:
            notes.append(
                f"{target.name} has {size:,} bytes but the model refers to the first {end:,}: it may belong to another model"
            )
        files.append(target)
    return External(tuple(files), tuple(notes))


def tensors(model: Any) -> Iterator[Any]:
    """Every TensorProto of a model: initializers, sparse ones, attributes, in subgraphs and functions too."""
    stack: list[Any] = [model.graph]
    nodes = [n for f in model.functions for n in f.node]
    while stack or nodes:
        if stack:
            graph = stack.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes.extend(graph.node)
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                if attribute.HasField("g"):
                    stack.append(attribute.g)
                stack.extend(attribute.graphs)
        nodes = []


def tensor_bytes(tensor: Any) -> int:
    """Bytes of a tensor's elements by its dtype and dimensions."""
    return int(math.prod(tensor.dims)) * ITEM_BYTES.get(tensor.data_type, 1)


def _reference(tensor: Any, path: Path) -> tuple[str, int]:
    entries = {e.key: e.value for e in tensor.external_data}
    try:
        offset = int(entries.get("offset", "0") or 0)
        length = int(entries["length"]) if entries.get("length") else tensor_bytes(tensor)
    except ValueError as error:
        raise PolicyError(
            f"{path}: the external data of {shown(tensor.name)} has an offset or length that is no number"
        ) from error
    if "location" not in entries or offset < 0 or length < 0 or any(d < 0 for d in tensor.dims):
        raise PolicyError(
            f"{path}: the external data of {shown(tensor.name)} is described wrongly",
            why=f"location {shown(entries.get('location', 'absent'))!r}, offset {offset}, length {length}.",
            do="Export the model again.",
        )
    return entries["location"], offset + max(length, tensor_bytes(tensor))


def _inside(location: str, path: Path) -> Path:
    folder = path.resolve().parent
    wanted = path.parent.absolute() / location
    escapes = Path(location).is_absolute() or ".." in Path(location).parts or "\x00" in location or "\\" in location
    target = wanted if escapes else wanted.resolve()
    if escapes or not target.is_relative_to(path.absolute().parent.resolve()):
        raise PolicyError(
            f"{path}: its external data would be read from outside its folder",
            why=f"Path in the file: {shown(location, 200)}{'' if escapes else f' (a link to {target})'}; allowed folder: {folder}.",
            do="Put the data file beside the .onnx and export with a plain file name.",
        )
    if not target.is_file():
        raise PolicyError(
            f"{path}: its external data is missing",
            why=f"Wanted: {shown(str(wanted), 300)}",
            do="Copy the data file beside the .onnx; both belong together.",
        )
    return target
