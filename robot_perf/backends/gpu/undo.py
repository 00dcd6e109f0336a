"""A load that fails leaves nothing on the device: a ROS node lives on after it and tries again."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from types import TracebackType

from robot_perf.backends.shared.text import first_line


class Undo:
    """`with Undo(close): return make()` calls `close` when `make` raises, once its error holds nothing of what was made any more.

    A runtime's objects belong into a function of their own, as here: the locals of the frame with the block itself stay. The first
    error stays the one that is raised; that closing failed as well is a RuntimeWarning.
    """

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets go, and closes, after an error alone."""
        if error is None:
            return
        let_go(error)
        try:
            self._close()
        except Exception as second:  # noqa: BLE001 - a device that is lost refuses every call: the first error says why
            warnings.warn(
                f"freeing what a failed load had made failed too: {type(second).__name__}: {first_line(second)}",
                RuntimeWarning,
                stacklevel=2,
            )


def let_go(error: BaseException) -> None:
    """Empties the frames that ended with this error and with those before it: their locals would keep a session past its stream."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        found = pending.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            traceback.clear_frames(found.__traceback__)
            pending += (found.__cause__, found.__context__)
