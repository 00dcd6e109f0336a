"""What a file is, by its content: a zip's directory and a protobuf's top-level fields. Nothing is unpickled or executed."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from robot_perf.errors import PolicyError
from robot_perf.policies.formats import archive, foreign, wire

EXTENSIONS = {
    "onnx": (".onnx",),
    "torchscript": (".pt", ".pth", ".ts", ".jit", ".torchscript"),
    "torch_export": (".pt2",),
    "yaml": (".yaml", ".yml"),
}
KIND_WORDS = {
    "onnx": "an ONNX model",
    "torchscript": "a TorchScript archive",
    "torch_export": "a torch.export archive",
    "yaml": "YAML",
}


@dataclass(frozen=True, slots=True)
class Identified:
    """A file that may be loaded: its kind (onnx, torchscript, torch_export, yaml), its size, and what to say about its name."""

    path: Path
    kind: str
    size_bytes: int
    notes: tuple[str, ...] = ()


def identify(path: Path) -> Identified:
    """The kind of the file at `path`, decided by content. Raises PolicyError for everything that can't be loaded."""
    if path.is_dir():
        raise foreign.folder(path)
    try:
        if not path.is_file():
            raise PolicyError(
                f"{path} is not a regular file", why="It is a device, a pipe or a socket.", do="Name one policy file."
            )
        size = path.stat().st_size
        if size == 0:
            raise PolicyError(
                f"{path} is empty (0 bytes)",
                why="The download or copy failed.",
                do="Fetch or copy it again and look at its size.",
            )
        with mapped(path) as data:
            kind = _kind(path, data)
    except OSError as error:
        raise PolicyError(
            f"{path} can't be read", why=error.strerror or str(error), do="Look at its rights and its disk."
        ) from error
    return Identified(path, kind, size, _extension_notes(path, kind))


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The file's bytes without reading them all: a checkpoint may have gigabytes, its kind is in the first and last few."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def _kind(path: Path, data: mmap.mmap) -> str:
    head = bytes(data[:4096])
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return archive.kind(path, data)
    foreign.refuse_by_magic(path, head, len(data))
    walk = wire.top_level(data)
    if walk.is_onnx:
        if walk.short is not None:
            raise wire.truncated(path, walk, len(data))
        return "onnx"
    if path.suffix.lower() in EXTENSIONS["yaml"] and foreign.is_text(head) and not foreign.is_markup(head):
        return "yaml"
    raise foreign.refusal(path, data, walk)


def _extension_notes(path: Path, kind: str) -> tuple[str, ...]:
    if path.suffix.lower() in EXTENSIONS[kind]:
        return ()
    named = f"its name ends in {path.suffix}" if path.suffix else "its name has no extension"
    return (f"{path.name} is {KIND_WORDS[kind]} although {named}: the content decides",)
