"""A step map's file before it is whole: under another name, since `watch` and `recover` may look at any moment.

Its maker holds a lock on it. The kernel gives a lock back when its last holder ends, however that comes about: what is found without
one was left by a maker that was killed, and holds memory until somebody removes it. Process numbers, which are used again and differ
from container to container, play no part.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

MAGIC = b"RPSMAP1\n"  # the first bytes of a whole map


@contextlib.contextmanager
def finished_as(path: Path) -> Iterator[int]:
    """The descriptor of a new file that becomes `path` at the end of the block, and is gone where the block raises. Raises OSError.

    The descriptor stays open: it is the caller's once the block has ended.
    """
    remove_left_over(path.parent)
    unfinished = path.with_name(path.name + ".new")
    file = _held(unfinished)
    try:
        yield file
        unfinished.rename(path)
    except BaseException:
        os.close(file)
        unfinished.unlink(missing_ok=True)
        raise


def _held(path: Path) -> int:
    """The descriptor of a new, locked file."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            return file  # a file system without locks: nobody can take it for left over
        if _leads_to(path, file):
            return file
        os.close(file)  # it was taken for left over before it was locked: another one


def remove_left_over(folder: Path) -> list[Path]:
    """Removes what killed makers left in `folder`, and says which. Never a living one's file, nor one of another user or program."""
    return [path for path in folder.glob("*.map.new") if _is_left_over(path)]


def _is_left_over(path: Path) -> bool:
    """Removes the file where its maker is gone."""
    with contextlib.ExitStack() as opened:
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            opened.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            begins = os.pread(file, len(MAGIC), 0)
            if begins not in (b"", bytes(len(MAGIC)), MAGIC) or not _leads_to(path, file):
                return False
            path.unlink()
        except OSError:
            # In use, not a plain file, not ours to open, or gone. What somebody else left is no reason for this command to fail.
            return False
    return True


def _leads_to(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except FileNotFoundError:
        return False
