"""Facts that Kineto puts into names and top-level keys: copies, overhead kinds, devices, why there are no device rows."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from robot_perf.errors import ProfileError
from robot_perf.profiles.build import integer
from robot_perf.profiles.model import KERNEL_COLUMNS, NULL, DeviceFacts, Table
from robot_perf.profiles.names import clean

_COPY_NAME = re.compile(r"\b([HDPA])to([HDPA])\b")
_COPY_CODE = {"HD": 0, "HA": 0, "DH": 1, "AH": 1, "DD": 2, "AD": 2, "DA": 2, "AA": 2, "HH": 3, "PP": 4}
_OVERHEAD_WORDS = (
    ("command buffer full", 8),
    ("lazy function", 7),
    ("module loading", 6),
    ("instrumentation", 4),
    ("flush", 3),
    ("driver compil", 2),
)


def plain_text(value: Any) -> str | None:
    """A short text of a top-level value, None where absent."""
    return None if value is None else clean(value)[:40]


@lru_cache(maxsize=4096)
def copy_facts(name: str) -> tuple[int, int]:
    """Direction and host memory of a copy, both in its name: `Memcpy HtoD (Pageable -> Device)` (rule K9)."""
    match = _COPY_NAME.search(name)
    copy = _COPY_CODE.get(match[1] + match[2], NULL) if match else NULL
    lowered = name.lower()
    host = next(
        (code for code, word in enumerate(("pageable", "pinned", "managed")) if word in lowered),
        3 if copy in (0, 1, 3) else NULL,
    )
    return copy, host


def overhead_kind(name: str) -> int:
    """CUPTI's overhead type of a row's name; 0 where it is none of those that decide something."""
    lowered = name.lower()
    return next((code for word, code in _OVERHEAD_WORDS if word in lowered), 0)


def devices_of(properties: Any, source: str) -> tuple[DeviceFacts, ...]:
    """Name and SM count; Kineto writes neither bandwidth nor clock (rule K8)."""
    if properties is None:
        return ()
    if not isinstance(properties, list) or not all(isinstance(p, dict) for p in properties):
        raise ProfileError(f"{source}: deviceProperties is not a list of devices")
    found = []
    for number, entry in enumerate(properties):
        sms = integer(entry.get("numSms"))
        identity = integer(entry.get("id"))
        device = number if identity == NULL else identity
        found.append(DeviceFacts(device, plain_text(entry.get("name")) or None, sms if sms > 0 else None))
    return tuple(found)


def no_device_rows(calls: int, ranges: int, devices: Any) -> str:
    """Why a trace holds no device work (rules K11, N20). "GPU idle" is never the reason: nothing was recorded."""
    if not devices:
        return "profiled without CUDA: the trace names no device, so only the host was recorded"
    if not ranges:
        return (
            "the export is empty although a device was there: a profiler schedule without repeat=1 starts again after its last active step, "
            "and exporting then writes the new, empty cycle"
        )
    if calls:
        return "CUDA calls but no device work: CUPTI gave no device records (another profiler may hold it, or the sandbox forbids it)"
    return "host work but no CUDA call: the profiler ran without ProfilerActivity.CUDA, or the program used no GPU"


def missing_columns(kernels: Table) -> tuple[str, ...]:
    """Columns that hold no value at all."""
    return tuple(c for c in KERNEL_COLUMNS if c not in kernels.columns or not bool((kernels[c] != NULL).any()))
