"""Copies a live map to disk now and then, from outside the measured process: power loss costs at most one interval."""

from __future__ import annotations

import os
from pathlib import Path

from robot_perf.run.stepmap import StepMap, Word


class DiskCopy:
    """A growing copy of a step map. `update` writes the header and the rows that are new."""

    def __init__(self, stepmap: StepMap, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._map, self.path = stepmap, path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, len(stepmap.memory))  # sparse: rows to come take no space yet
        self._rows = 0

    def update(self) -> None:
        """Rows first, then the header that says how many there are."""
        committed = self._map[Word.COMMITTED]
        start = self._map.rows_at + self._rows * self._map.row_bytes
        stop = self._map.rows_at + committed * self._map.row_bytes
        header = bytes(self._map.memory[: self._map.rows_at])
        _write(self._file, self._map.memory[start:stop], start)
        os.fdatasync(self._file)
        _write(self._file, header, 0)
        os.fdatasync(self._file)
        self._rows = committed

    def remove(self) -> None:
        """The Run takes the copy's place."""
        os.close(self._file)
        self.path.unlink(missing_ok=True)


def _write(file: int, data: bytes, at: int) -> None:
    """All of it: pwrite may write less than it was given, and raises only when it can write nothing."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written
