"""TensorProto bytes: read with their external data, rounded to float16 or bfloat16, written."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shown
from robot_perf.policies.onnxfile.protobuf import FIXED32, Value, block, fields, integer, signed, text

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
LOW = {"fp16": FLOAT16, "bf16": BFLOAT16}


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as little-endian bytes. `data` of what is not float32 stays as it was written and is not read here."""

    name: str
    dims: tuple[int, ...]
    elem_type: int
    data: bytes

    def named(self, name: str) -> RawTensor:
        """The same under another name."""
        return dataclasses.replace(self, name=name)

    def floats(self) -> NDArray[np.float32]:
        """The values of a float32 tensor."""
        return np.frombuffer(self.data, "<f4")


def read_tensor(message: Value, folder: Path | None = None) -> RawTensor:
    """A TensorProto; values of float32 tensors are read wherever they lie. Raises ValueError for a damaged one."""
    if isinstance(message, int):
        raise ValueError("a tensor that is a number")
    dims: list[int] = []
    found: dict[int, Value] = {}
    packed: list[bytes] = []
    external: dict[str, str] = {}
    for number, wire, value in fields(message):
        if number == 1:
            dims += [signed(value)] if isinstance(value, int) else _packed_ints(value)
        elif number == 4 and not isinstance(value, int):
            packed.append(bytes(value))
            if wire == FIXED32 and len(value) != 4:
                raise ValueError("a float that is not four bytes")
        elif number == 13 and not isinstance(value, int):
            entry = {n: str(bytes(v), "utf-8") for n, _, v in fields(value) if not isinstance(v, int)}
            external[entry.get(1, "")] = entry.get(2, "")
        else:
            found[number] = value
    name, kind, raw = found.get(8, memoryview(b"")), found.get(2, 0), found.get(9)
    if isinstance(name, int) or not isinstance(kind, int) or isinstance(raw, int):
        raise ValueError("a tensor with a field of another type")
    result = RawTensor(str(bytes(name), "utf-8"), tuple(dims), kind, b"")
    if kind != FLOAT:
        return result
    if found.get(14) == 1:
        data = _external(result.name, external, folder, 4 * math.prod(dims))
    else:
        data = bytes(raw) if raw is not None else b"".join(packed)
    if len(data) != 4 * math.prod(dims):
        raise ValueError(f"tensor {result.name!r} has {len(data)} bytes for the shape {list(dims)}")
    return dataclasses.replace(result, data=data)


def write_tensor(tensor: RawTensor) -> bytes:
    """A TensorProto with its values inside."""
    head = [integer(1, n) for n in tensor.dims]
    return b"".join([*head, integer(2, tensor.elem_type), text(8, tensor.name), block(9, tensor.data)])


def lowered(tensor: RawTensor, precision: str, *, clamp: bool = False) -> tuple[RawTensor, float | None]:
    """(the rounded tensor, None), or (it, the largest value) when finite values are beyond float16's range.

    `clamp` takes the largest float16 for those: attention masks are written as -1e9 or float32's smallest.
    """
    values = tensor.floats()
    if precision == "bf16":
        return dataclasses.replace(tensor, elem_type=BFLOAT16, data=bfloat16(values)), None
    limit = float(np.finfo(np.float16).max)
    finite = values[np.isfinite(values)]
    largest = float(np.max(np.abs(finite), initial=0.0))
    if largest > limit and not clamp:
        return tensor, largest
    clipped = np.where(np.isfinite(values), np.clip(values, -limit, limit), values)
    return dataclasses.replace(tensor, elem_type=FLOAT16, data=clipped.astype("<f2").tobytes()), None


def bfloat16(values: NDArray[np.float32]) -> bytes:
    """float32 rounded to nearest even in its upper 16 bits; NaN stays NaN."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).astype("<u2").tobytes()


def _packed_ints(value: memoryview) -> list[int]:
    found, at, number, shift = [], 0, 0, 0
    while at < len(value):
        number |= (value[at] & 0x7F) << shift
        shift += 7
        if value[at] < 0x80:
            found.append(signed(number))
            number = shift = 0
        at += 1
    return found


def _external(name: str, entries: dict[str, str], folder: Path | None, wanted: int) -> bytes:
    location = entries.get("location", "")
    if folder is None or Path(location).is_absolute() or ".." in Path(location).parts:
        raise PolicyError(
            f"the weights {shown(name)} lie outside the model's folder", why=f"Location: {shown(location, 200)}.",
            do="Put the data file beside the .onnx.",
        )  # fmt: skip
    offset = int(entries.get("offset") or 0)
    try:
        with (folder / location).open("rb") as stream:
            stream.seek(offset)
            data = stream.read(wanted)
    except OSError as error:
        raise PolicyError(f"the weights {shown(name)} can't be read", detail=str(error)) from error
    if len(data) != wanted:
        raise PolicyError(
            f"the weights {shown(name)} are too short", why=f"{wanted:,} bytes wanted, {len(data):,} found."
        )
    return data
