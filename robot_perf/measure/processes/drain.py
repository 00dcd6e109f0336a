"""Empties the worker's stdout and stderr while it runs: a policy that prints never blocks, and what it printed is counted."""

from __future__ import annotations

import subprocess
import threading
from typing import IO, Any

_KEEP = 4096


class Drain:
    """Reads both pipes in threads of the conductor; keeps the first and last 4 KiB of each."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._counts = {"stdout": 0, "stderr": 0}
        self._heads = {"stdout": b"", "stderr": b""}
        self._tails = {"stdout": b"", "stderr": b""}
        self._threads = [
            threading.Thread(target=self._read, args=(name, pipe), daemon=True)
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
            if pipe is not None
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        with pipe:
            while chunk := pipe.read1(1 << 16):  # type: ignore[attr-defined]
                self._counts[name] += len(chunk)
                self._heads[name] = (
                    (self._heads[name] + chunk)[:_KEEP] if len(self._heads[name]) < _KEEP else self._heads[name]
                )
                self._tails[name] = (self._tails[name] + chunk)[-_KEEP:]

    def finish(self, timeout_s: float = 2.0) -> dict[str, Any]:
        """Byte counts and texts, for the conditions. A grandchild may hold a pipe open: it is not waited for."""
        for thread in self._threads:
            thread.join(timeout_s)
        return {
            "stdout_bytes": self._counts["stdout"],
            "stderr_bytes": self._counts["stderr"],
            "stdout_head": self._heads["stdout"].decode("utf-8", "replace"),
            "stderr_tail": self._tails["stderr"].decode("utf-8", "replace"),
        }
