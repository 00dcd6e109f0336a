"""What holds while a CUDA graph is captured, whichever runtime queues its work."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No automatic garbage collection inside the block: what it frees during a capture is freed into the capture.

    torch frees pinned memory by an event on each stream that used it. Recorded in a capture, that event fails whoever asks for
    pinned memory next, long after it (cudaErrorCapturedEvent), and torch itself no longer collects before a capture.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
