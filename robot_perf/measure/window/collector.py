"""Python's garbage collector in the loop: frozen, off or as it is; every collection is stamped."""

from __future__ import annotations

import gc
import time
from types import TracebackType


class Collections:
    """Stamps collections through gc.callbacks: `total_ns[0]` grows by each one, `count` counts them."""

    def __init__(self) -> None:
        self.total_ns = [0]
        self.count = 0
        self._began = 0

    def _callback(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.monotonic_ns()
        else:
            self.total_ns[0] += time.monotonic_ns() - self._began
            self.count += 1

    def __enter__(self) -> Collections:
        gc.callbacks.append(self._callback)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.callbacks.remove(self._callback)


class CollectorMode:
    """`freeze`: collect once, then keep what exists out of later collections. `off`: no collection. `default`: untouched.

    The former state returns at the end.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __enter__(self) -> CollectorMode:
        self._enabled = gc.isenabled()
        if self.mode == "freeze":
            gc.collect()
            gc.freeze()
        elif self.mode == "off":
            gc.collect()
            gc.disable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.mode == "freeze":
            gc.unfreeze()
        if self._enabled:
            gc.enable()
