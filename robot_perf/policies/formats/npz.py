"""Reads .npz archives of recorded observations without ever unpickling: headers first, then only the rows wanted."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.errors import PolicyError

# What the standard library and numpy raise on a damaged archive.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    EOFError,
    OSError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    TypeError,
    SyntaxError,
    MemoryError,
)


def headers(path: str) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """dtype and shape of each array, by key. Raises PolicyError for what is not a sound .npz."""
    if not Path(path).is_file():
        raise PolicyError(f"observations {path}: there is no such file", do="Give an .npz file written by numpy.savez.")
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith(".npy"):
                    with archive.open(member) as stream:
                        shape, _, dtype = _header(stream)
                    found[member[:-4]] = (dtype, shape)
    except DAMAGED as error:
        raise _damaged(path, error) from error
    if not found:
        raise PolicyError(
            f"observations {path} hold no arrays", do="Write one with numpy.savez(file, obs=array_of_steps)."
        )
    return found


def leading(path: str, key: str, rows: int | None = None) -> NDArray[Any]:
    """The first `rows` (None: all) of the array `key`, C-contiguous and writable.

    Raises PolicyError for object arrays (they would have to be unpickled) and damaged members.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(key + ".npy") as stream:
            shape, fortran, dtype = _header(stream)
            if dtype.hasobject:
                raise PolicyError(
                    f"observations {path}: {key} holds Python objects",
                    why="Reading them means unpickling, which can run code; robot-perf never unpickles.",
                    do="Save plain arrays of one dtype, one leading axis of steps.",
                )
            if fortran and len(shape) > 1:
                whole = np.frombuffer(_exactly(stream, math.prod(shape) * dtype.itemsize), dtype).reshape(
                    shape, order="F"
                )
                return np.array(whole if rows is None or not shape else whole[:rows], order="C")
            if rows is not None and shape:
                shape = (min(rows, shape[0]), *shape[1:])
            return np.array(np.frombuffer(_exactly(stream, math.prod(shape) * dtype.itemsize), dtype).reshape(shape))
    except DAMAGED as error:
        raise _damaged(path, error) from error


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if any(n < 0 for n in shape):
        raise ValueError("a negative axis length")
    return tuple(int(n) for n in shape), bool(fortran), np.dtype(dtype)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise ValueError(f"{count} bytes of data wanted, {len(data)} found")
    return data


def _damaged(path: str, error: BaseException) -> PolicyError:
    return PolicyError(
        f"observations {path} can't be read as an .npz archive",
        why=f"Its size is {Path(path).stat().st_size:,} bytes.",
        do="Write it with numpy.savez, one array per input with a leading axis of steps.",
        detail=str(error) or type(error).__name__,
    )
