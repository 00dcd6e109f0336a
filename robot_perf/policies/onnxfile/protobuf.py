"""The wire format of protocol buffers, read and written field by field: ONNX models without the `onnx` package."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Value = int | memoryview
Field = tuple[int, int, Value]  # number, wire type, value; fixed-size values stay bytes


def varint(value: int) -> bytes:
    """The encoding of an integer; negative ones in 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(number: int, value: int) -> bytes:
    """A varint field."""
    return varint(number << 3) + varint(value)


def block(number: int, payload: bytes | memoryview) -> bytes:
    """A length-delimited field."""
    return b"".join((varint(number << 3 | BYTES), varint(len(payload)), payload))


def text(number: int, value: str) -> bytes:
    """A string field."""
    return block(number, value.encode())


def encoded(number: int, wire: int, value: Value) -> bytes:
    """A field as `fields` gave it."""
    if isinstance(value, int):
        return integer(number, value)
    if wire == BYTES:
        return block(number, value)
    return varint(number << 3 | wire) + bytes(value)


def fields(data: bytes | memoryview) -> Iterator[Field]:
    """The fields of a message in order; nothing is copied. Raises ValueError for what is no message."""
    view, at = memoryview(data), 0
    while at < len(view):
        tag, at = _read(view, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _read(view, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = _read(view, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(wire, -1)
        if size < 0 or at + size > len(view):
            raise ValueError(f"field {number} of wire type {wire} does not fit in its message")
        yield number, wire, view[at : at + size]
        at += size


def signed(value: int) -> int:
    """A varint read as int64."""
    return value - (1 << 64) if value >> 63 else value


def _read(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(view):
            raise ValueError("the message ends inside a number")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is longer than ten bytes")
