"""What holds while a CUDA graph is captured, whichever runtime queues its work."""

from __future__ import annotations

from contextlib import AbstractContextManager

from robot_perf import collector


def uncollected() -> AbstractContextManager[None]:
    """No automatic garbage collection inside the block: what it frees during a capture is freed into the capture.

    torch frees pinned memory by an event on each stream that used it. Recorded in a capture, that event fails whoever asks for
    pinned memory next, long after it (cudaErrorCapturedEvent), and torch itself no longer collects before a capture.
    """
    return collector.paused()
