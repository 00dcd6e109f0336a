"""How many clusters (or blocks) of a loaded kernel a GPU holds at once: the grid of a kernel whose blocks stay.

Asked of the CUDA driver, because it depends on how the chip groups its SMs. A grid of one cluster too many would run in two
waves and take twice as long.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from robot_perf.errors import BackendUnavailableError

__all__ = ["resident_clusters"]

CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class _Attribute(ctypes.Structure):
    # CUlaunchAttribute: an id, padded to 8 bytes, then a union of 64 bytes
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    # CUlaunchConfig
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@lru_cache(maxsize=1)
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def resident_clusters(function: int, warps: int, ctas: int, shared_bytes: int, sm_count: int) -> int:
    """Clusters of `ctas` blocks of the CUfunction that run at once; blocks where ctas is 1. At least 1.

    The function's context must be current and its dynamic shared memory limit set. Raises BackendUnavailableError if the driver
    does not say.
    """
    found = ctypes.c_int(0)
    handle = ctypes.c_void_p(function)
    if ctas == 1:
        status = _driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(found), handle, ctypes.c_int(32 * warps), ctypes.c_size_t(shared_bytes)
        )
        number = found.value * sm_count
    else:
        cluster = _Attribute(CLUSTER_DIMENSION, 0, (ctypes.c_uint * 16)(ctas, 1, 1))
        config = _Config(
            (ctypes.c_uint * 3)(ctas * sm_count, 1, 1),
            (ctypes.c_uint * 3)(32 * warps, 1, 1),
            shared_bytes,
            None,
            ctypes.pointer(cluster),
            1,
        )
        status = _driver().cuOccupancyMaxActiveClusters(ctypes.byref(found), handle, ctypes.byref(config))
        number = found.value
    if status or number < 1:
        raise BackendUnavailableError(
            "rms_norm: the CUDA driver does not say how many blocks of a kernel run at once",
            why=f"It answered {number} (status {status}) for {ctas} blocks of {warps} warps and {shared_bytes} bytes each.",
        )
    return number
