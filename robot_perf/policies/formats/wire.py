"""The top-level fields of a protobuf message, read without decoding it: enough to tell a cut or foreign file from a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from robot_perf.errors import PolicyError

# ModelProto of onnx.proto: field number -> wire type (0 varint, 2 length-delimited).
MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
# CoreML's Model also begins with a varint (its specification version); its network fields are numbered from 200 on.
COREML_NETWORK_FIELDS = 200
MAX_FIELDS = 200_000


class Bytes(Protocol):
    """What is walked: bytes or a memory map."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Walk:
    """Fields seen, and where reading stopped: `short` = (field start, bytes wanted, bytes found), `sound` = no bad tag."""

    fields: tuple[int, ...]
    ir_version: int | None
    short: tuple[int, int, int] | None
    sound: bool

    @property
    def is_onnx(self) -> bool:
        """A ModelProto: an `ir_version` and no field that a ModelProto lacks."""
        return (
            self.sound
            and self.ir_version is not None
            and 0 < self.ir_version < 2**31
            and set(self.fields) <= set(MODEL_FIELDS)
        )

    @property
    def is_coreml(self) -> bool:
        """A CoreML Model: a specification version and a network field."""
        return self.sound and self.ir_version is not None and any(f >= COREML_NETWORK_FIELDS for f in self.fields)


def top_level(data: Bytes) -> Walk:
    """Walks the top-level fields of `data`. Never raises for bad content."""
    fields: list[int] = []
    ir_version, at, size = None, 0, len(data)
    while at < size and len(fields) < MAX_FIELDS:
        start = at
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if tag < 0 or not 0 < number < 2**29 or wire_type not in (0, 1, 2, 5):
            # A tag cut in half at the end of the file is a cut file, not a foreign one.
            return Walk(
                tuple(fields), ir_version, (start, 1, 0) if tag == CUT and fields else None, tag == CUT and bool(fields)
            )
        if MODEL_FIELDS.get(number, wire_type) != wire_type:
            return Walk(tuple(fields), ir_version, None, False)
        fields.append(number)
        value, at = _varint(data, at) if wire_type in (0, 2) else (0, at)
        if value == TOO_LONG:
            return Walk(tuple(fields), ir_version, None, False)
        if value == CUT:
            return Walk(tuple(fields), ir_version, (start, 1, 0), True)
        wanted = {0: 0, 1: 8, 2: value, 5: 4}[wire_type]
        if at + wanted > size:
            return Walk(tuple(fields), ir_version, (start, wanted, size - at), True)
        if number == 1 and wire_type == 0:
            ir_version = value
        at += wanted
    return Walk(tuple(fields), ir_version, None, True)


CUT, TOO_LONG = -1, -2


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return CUT, at
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return TOO_LONG, at


def truncated(path: Path, walk: Walk, size: int) -> PolicyError:
    """The refusal of an ONNX file that ends inside a field."""
    start, wanted, found = walk.short or (0, 0, 0)
    return PolicyError(
        f"{path} is an ONNX model that is cut short: the protobuf ends early",
        why=f"The field at byte {start:,} needs {wanted:,} bytes, {found:,} are left; the size found is {size:,} bytes.",
        do="Download or copy it again and compare its size with the source's.",
    )
