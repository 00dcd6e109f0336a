"""Real-time settings of the loop thread: tried after warm-up, read back, undone at the end. What is refused is explained.

What is recorded is what reading back says, never what was asked for.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from pathlib import Path
from typing import Any

from robot_perf.specs import RealTime

# ONFAULT locks what is resident and what will be: after warm-up that is all a loop touches. Without it the lock makes
# every mapping of every library resident: 158 MB instead of 36 MB for the null policy here.
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_RESET_ON_FORK = 0x40000000
DMA_LATENCY = "/dev/cpu_dma_latency"
RIGHTS = (
    "add '@realtime - rtprio 99' and '@realtime - memlock unlimited' to /etc/security/limits.conf, join the group realtime and "
    "log in again; in Docker: --cap-add=sys_nice --ulimit rtprio=99 --ulimit memlock=-1"
)


class RealTimeSettings:
    """Applies a RealTime in the calling thread. `refused` holds one sentence per setting that did not take."""

    def __init__(self, asked: RealTime) -> None:
        self.asked = asked
        self.refused: list[str] = []
        self._dma: int | None = None
        self._affinity: set[int] | None = None
        self._locked = False

    def apply(self) -> None:
        """Affinity, memory lock, dma latency, then the scheduler: pid 0 is the calling thread."""
        if self.asked.cpus:
            self._set_affinity()
        if self.asked.mlock:
            self._lock_memory()
        if self.asked.hold_cpu_dma_latency:
            self._hold_dma_latency()
        if self.asked.fifo_priority is not None:
            self._set_fifo(self.asked.fifo_priority)

    def _set_affinity(self) -> None:
        self._affinity = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, self.asked.cpus)
        except OSError as error:
            self.refused.append(
                f"affinity to processors {list(self.asked.cpus)} refused ({error.strerror}): this process may use {sorted(self._affinity)}"
            )

    def _lock_memory(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0:
            self._locked = True
            return
        soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,} bytes"
        self.refused.append(
            f"mlockall refused ({os.strerror(ctypes.get_errno())}; RLIMIT_MEMLOCK is {limit}): {RIGHTS}"
        )

    def _hold_dma_latency(self) -> None:
        try:
            self._dma = os.open(DMA_LATENCY, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._dma, struct.pack("<i", 0))  # held while the file is open
        except OSError as error:
            self.refused.append(
                f"{DMA_LATENCY} can't be held at 0 ({error.strerror}): it needs write access, for example "
                f"sudo chgrp realtime {DMA_LATENCY} && sudo chmod g+w {DMA_LATENCY}"
            )

    def _set_fifo(self, priority: int) -> None:
        cpu_limit = (
            resource.getrlimit(resource.RLIMIT_RTTIME)[0]
            if hasattr(resource, "RLIMIT_RTTIME")
            else resource.RLIM_INFINITY
        )
        if cpu_limit != resource.RLIM_INFINITY:
            self.refused.append(
                f"SCHED_FIFO not tried: RLIMIT_RTTIME is {cpu_limit} µs, after which the kernel kills a FIFO thread that did not block"
            )
            return
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
        except OSError as error:
            limit = resource.getrlimit(resource.RLIMIT_RTPRIO)[0]
            self.refused.append(f"SCHED_FIFO {priority} refused ({error.strerror}; RLIMIT_RTPRIO is {limit}): {RIGHTS}")

    def effective(self) -> dict[str, Any]:
        """What reading back says, for the conditions."""
        policy = os.sched_getscheduler(0) & ~_RESET_ON_FORK
        names = {
            os.SCHED_OTHER: "SCHED_OTHER",
            os.SCHED_FIFO: "SCHED_FIFO",
            os.SCHED_RR: "SCHED_RR",
            os.SCHED_BATCH: "SCHED_BATCH",
        }
        return {
            "scheduler": names.get(policy, str(policy)),
            "priority": os.sched_getparam(0).sched_priority,
            "affinity": sorted(os.sched_getaffinity(0)),
            "memory_locked_bytes": _status_bytes("VmLck"),
            "cpu_dma_latency_held": self._dma is not None and not any(DMA_LATENCY in r for r in self.refused),
            "timer_slack_ns": _read_int("/proc/self/timerslack_ns"),
            "refused": list(self.refused),
        }

    def restore(self) -> None:
        """Back to what was found; closing the dma-latency file releases it."""
        if self._dma is not None:
            os.close(self._dma)
            self._dma = None
        if self.asked.fifo_priority is not None and os.sched_getscheduler(0) & ~_RESET_ON_FORK == os.SCHED_FIFO:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        if self._locked:
            ctypes.CDLL(None).munlockall()
        if self._affinity is not None:
            os.sched_setaffinity(0, self._affinity)


def _status_bytes(field: str) -> int | None:
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


def _read_int(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
