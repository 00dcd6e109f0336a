"""What a runtime that doesn't say it takes of a device's memory, by what is free."""

from __future__ import annotations

from typing import Any

from robot_perf.backends.gpu import cudart


def free_bytes() -> int:
    """Free device memory now."""
    return int(cudart.check("cudaMemGetInfo", cudart.runtime().cudaMemGetInfo())[0])


class Footprint:
    """What the device's free memory shrank by since this was made, read twice: once loaded, and once the first window is over.

    Runtimes allocate in their first calls. Later readings would count other processes that came in between.
    """

    WORDS = "what the device's free memory shrank by until the first window was over, without the CUDA context"

    def __init__(self) -> None:
        self._before, self._readings = free_bytes(), list[int]()

    def read(self) -> dict[str, Any]:
        """`device_memory_bytes` and how it was found."""
        if len(self._readings) < 2:
            self._readings.append(max(0, self._before - free_bytes()))
        return {"device_memory_bytes": self._readings[-1], "device_memory_is": self.WORDS}
