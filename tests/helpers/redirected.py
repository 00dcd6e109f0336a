"""Keeps stdout for our result while foreign code runs: sys.stdout and file descriptor 1 go elsewhere, and their bytes are counted.

TorchScript's print goes through sys.stdout under Python and to descriptor 1 from C++; both are caught.
"""

from __future__ import annotations

import ctypes
import io
import os
import sys
from types import TracebackType

# Above this much captured output the capture starts over: a policy that prints for hours must not fill the memory.
LARGEST_CAPTURE = 4 * 2**20


class Redirected:
    """Context manager: stdout goes to the file `target`, to stderr ("stderr"), or into a bounded capture (None).

    `count()` is the number of bytes written since it was entered: exact for a file and for a capture, one fstat per call. For
    stderr only what went through Python's sys.stdout is counted. `text()` is the end of a capture.
    """

    def __init__(self, target: str | None = None) -> None:
        self._target = target
        self._fd = self._saved_fd = -1
        self._counted = self._start = 0
        self._seekable = False

    def __enter__(self) -> Redirected:
        _flush()
        self._fd = self._open()
        self._seekable = self._target != "stderr"
        self._start = os.fstat(self._fd).st_size if self._seekable else 0
        self._saved_fd = os.dup(1)
        os.dup2(self._fd, 1)
        self._saved_stdout = sys.stdout
        raw = _Counting(self, os.dup(self._fd))
        # write_through: a print is paid for in the step that makes it, as on the robot's console, not when a buffer fills.
        sys.stdout = io.TextIOWrapper(raw, encoding="utf-8", errors="replace", write_through=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _flush()
        own, sys.stdout = sys.stdout, self._saved_stdout
        own.close()
        self.count()
        os.dup2(self._saved_fd, 1)
        os.close(self._saved_fd)
        self._closing_text = self._tail() if self._target is None else ""
        os.close(self._fd)
        self._fd = -1

    def count(self) -> int:
        """Bytes written so far."""
        if self._fd < 0 or not self._seekable:
            return self._counted
        size = os.fstat(self._fd).st_size
        if self._target is None and size > LARGEST_CAPTURE:
            os.ftruncate(self._fd, 0)
            self._start -= size
            size = 0
        self._counted = size - self._start
        return self._counted

    def text(self) -> str:
        """The last part of a capture, at most 2,000 characters; empty for other targets."""
        return self._tail() if self._fd >= 0 and self._target is None else getattr(self, "_closing_text", "")

    def wrote(self, count: int) -> None:
        """Called by our own sys.stdout where the target can't be measured."""
        if not self._seekable:
            self._counted += count

    def _open(self) -> int:
        if self._target is None:
            fd = os.memfd_create("robot-perf-stdout")
            # Appending: after a truncation both writers go on at the start, and no hole is counted.
            return _appending(fd)
        if self._target == "stderr":
            return os.dup(2)
        return os.open(self._target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def _tail(self) -> str:
        size = os.fstat(self._fd).st_size
        return os.pread(self._fd, 8000, max(0, size - 8000)).decode("utf-8", "replace")[-2000:]


class _Counting(io.FileIO):
    def __init__(self, owner: Redirected, fd: int) -> None:
        super().__init__(fd, "w", closefd=True)
        self._owner = owner

    def write(self, data: object) -> int:
        """Writes and counts."""
        written = super().write(data)  # type: ignore[arg-type]
        self._owner.wrote(written or 0)
        return written


def _flush() -> None:
    """Both edges: what C code has buffered on its own stdout belongs to the side it was written on."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)


def _appending(fd: int) -> int:
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_APPEND)
    os.close(fd)
    return again
