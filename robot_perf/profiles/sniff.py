"""Which importer reads a file: by content (profiles.md section 3), unpacking gzip within a stated limit."""

from __future__ import annotations

import gzip
import importlib
import io
import re
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, cast

from robot_perf.errors import ProfileError
from robot_perf.profiles import external
from robot_perf.profiles.model import Profile
from robot_perf.profiles.ncu.importer import HEADER_START
from robot_perf.profiles.nsys.stats_rows import report_of
from robot_perf.profiles.text import MAX_TEXT_BYTES, decode
from robot_perf.run.scratch import Scratch

GZIP = b"\x1f\x8b"
SQLITE = b"SQLite format 3\x00"
MAX_UNPACKED_BYTES = (
    8 << 30
)  # of a gzip file: a trace of that size is read as a stream, a database is unpacked to a temporary file
_HEAD = 64 << 10


class _Limited(io.RawIOBase):
    """A stream that ends in one message past a number of bytes, or where the packed data is broken."""

    def __init__(self, inner: BinaryIO, limit: int, source: str) -> None:
        self._inner, self._left, self._source, self._limit = inner, limit, source, limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._inner.read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise ProfileError(
                f"{self._source}: broken gzip data",
                why="The file is cut or damaged.",
                do="Copy it again.",
                detail=str(error),
            ) from None
        self._left -= len(data)
        if self._left < 0:
            raise ProfileError(
                f"{self._source}: more than {self._limit >> 20:,} MiB",
                why="Larger files are refused, so that memory stays bounded.",
                do="Capture fewer steps.",
            )
        return data


def open_profile(path: Path, importers: Mapping[str, tuple[str, str]], *, export: bool) -> Profile:
    """Reads `path` with the importer that its content names. Raises ProfileError."""
    source = path.name or str(path)
    try:
        if not path.is_file():
            raise ProfileError(
                f"{source}: " + ("is a folder, not a profile" if path.is_dir() else "no such file"),
                do="Give the path of a profile.",
            )
        with path.open("rb") as file:
            return _decide(path, file, source, importers, export=export)
    except OSError as error:
        raise ProfileError(f"{source}: can't be read", why=error.strerror or "") from None


def _decide(
    path: Path, file: BinaryIO, source: str, importers: Mapping[str, tuple[str, str]], *, export: bool
) -> Profile:
    head = file.read(_HEAD)
    file.seek(0)
    packed = head.startswith(GZIP)
    stream: BinaryIO = file
    if packed:
        stream = cast(BinaryIO, _Limited(cast(BinaryIO, gzip.GzipFile(fileobj=file)), MAX_UNPACKED_BYTES, source))
        head = stream.read(_HEAD)
        file.seek(0)
        stream = cast(BinaryIO, _Limited(cast(BinaryIO, gzip.GzipFile(fileobj=file)), MAX_UNPACKED_BYTES, source))
    if not head.strip():
        raise ProfileError(f"{source}: the file is empty", do="Export the profile again.")
    if head.startswith(SQLITE):
        return _sqlite(path, stream, source, importers, packed=packed)
    if head.startswith(GZIP):
        raise ProfileError(f"{source}: packed twice with gzip", do="Unpack it once: gunzip.")
    external.refuse_or_export(head, path, export=export)
    if export and (kind := external.report_kind(head)):
        return _exported(path, kind, importers)
    if head.startswith(b"version https://git-lfs"):
        raise ProfileError(
            f"{source}: this is a Git LFS pointer, not the profile",
            do="Fetch the real file with `git lfs pull`, then try again.",
        )
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return _read(importers, "kineto", stream, source)
    return _text(stream, source, importers)


def _read(importers: Mapping[str, tuple[str, str]], kind: str, content: object, source: str) -> Profile:
    profile: Profile = importlib.import_module(importers[kind][0]).read(content, source)
    return profile


def _sqlite(
    path: Path, stream: BinaryIO, source: str, importers: Mapping[str, tuple[str, str]], *, packed: bool
) -> Profile:
    if not packed:
        return _read(importers, "nsys-sqlite", path, source)
    with Scratch() as folder:
        unpacked = folder / "export.sqlite"
        with unpacked.open("wb") as target:
            shutil.copyfileobj(stream, target, 1 << 20)
        return _read(importers, "nsys-sqlite", unpacked, source)


def _exported(path: Path, kind: str, importers: Mapping[str, tuple[str, str]]) -> Profile:
    with Scratch() as folder:
        exported = external.export(path, kind, folder)
        with exported.open("rb") as file:
            return (
                _read(importers, "nsys-sqlite", exported, path.name)
                if kind == "nsys"
                else _text(file, path.name, importers)
            )


def _text(stream: BinaryIO, source: str, importers: Mapping[str, tuple[str, str]]) -> Profile:
    """CSV of nsys stats or ncu: decided by the first header row that is found."""
    limited = _Limited(stream, MAX_TEXT_BYTES, source)
    pieces = []
    while piece := limited.read(1 << 20):
        pieces.append(piece)
    text = decode(b"".join(pieces))
    tool_lines = skipped = False
    for line in text.splitlines():
        plain = line.lstrip("﻿")
        if plain.startswith(HEADER_START):
            return _read(importers, "ncu", text, source)
        if len(plain) < 4096 and "," in plain and report_of(plain.replace('"', "").split(",")):
            return _read(importers, "nsys-stats", text, source)
        tool_lines = tool_lines or bool(re.match(r"==(?:ERROR|WARNING|PROF)==", plain))
        skipped = skipped or plain.startswith("SKIPPED:")
    if tool_lines:
        return _read(importers, "ncu", text, source)
    if skipped:
        return _read(importers, "nsys-stats", text, source)
    raise ProfileError(
        f"{source}: not a profile that robot-perf knows",
        why="Understood: " + "; ".join(label for _, label in importers.values()) + ".",
        do="Export one of these.",
    )
