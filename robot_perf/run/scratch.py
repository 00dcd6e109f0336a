"""Folders that a command needs while it runs. One that was killed leaves its folder behind; the next one to need a folder removes it.

Each folder holds a file that its owner keeps locked. The kernel gives a lock back when its last holder ends, however that comes
about; process numbers, which are used again, play no part.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from types import TracebackType

PREFIX = "robot-perf-"
LOCK = ".lock"


class Scratch:
    """A folder of its own in the folder for temporary files: `path`, until `close` or the end of the `with` block."""

    def __init__(self, what: str = "") -> None:
        remove_left_over(Path(tempfile.gettempdir()))
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX + what)
        self.path = Path(self._folder.name)
        self._lock = _hold(self.path)

    def close(self) -> None:
        """Removes the folder with everything in it. Once closed it does nothing."""
        self._folder.cleanup()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _hold(folder: Path) -> int:
    """The descriptor that holds the folder's lock; a program that is started does not inherit it."""
    unborn = folder / (LOCK + ".new")
    lock = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return lock  # a file system without locks: under this name nobody takes the folder for left over
    unborn.rename(folder / LOCK)  # locked before it has its name: never seen free while its owner lives
    return lock


def remove_left_over(parent: Path) -> list[Path]:
    """Removes the folders of owners that are gone, and says which. Never one of another user, nor through a symbolic link."""
    removed = []
    for entry in os.scandir(parent):
        if entry.name.startswith(PREFIX) and _is_left_over(Path(entry.path)):
            removed.append(Path(entry.path))
    return removed


def _is_left_over(folder: Path) -> bool:
    """Removes the folder where its owner is gone."""
    with contextlib.ExitStack() as opened:
        try:
            place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            opened.callback(os.close, place)
            if os.fstat(place).st_uid != os.geteuid():
                return False
            lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
            opened.callback(os.close, lock)
            is_ours = stat.S_ISREG(os.fstat(lock).st_mode) and os.fstat(lock).st_uid == os.geteuid()
            if not is_ours:
                return False
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Still the one that its name leads to? Somebody else may have removed it since it was opened.
            if not os.path.samestat(os.fstat(lock), os.stat(LOCK, dir_fd=place, follow_symlinks=False)):
                return False
            shutil.rmtree(folder)
        except OSError:
            # In use, not a folder, not ours to open, without a lock, or gone: then it stays. What somebody else left behind is no
            # reason for this command to fail.
            return False
    return True
