"""The probe of the processor through numpy: copy, read, write on all allowed cores, weight streaming and matrix
rate.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.devices.host import gather
from robot_perf.devices.table import matches
from robot_perf.measure.probe.cases import Case, measure, working_set
from robot_perf.specs.device import ProbeReport

_WANTED = 2**30
_COLUMNS = 4096
_MATRIX = 1024
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def probe(seconds: float) -> ProbeReport:
    """All readings of the processor. numpy releases the interpreter lock in each of them, so threads fill every
    core.
    """
    facts = gather(gpus=())
    cache = last_level_cache()
    size = working_set(cache, available_memory(), wanted=_WANTED)
    threads = len(os.sched_getaffinity(0))
    name = facts.cpu_name or platform.machine()
    rows = [d for d in matches(name) if d.device_class == "cpu"]
    with ThreadPoolExecutor(threads) as pool:
        readings = measure(_cases(size, pool, threads), seconds)
    return ProbeReport(
        device=name,
        table_name=rows[0].name if len(rows) == 1 else None,
        memory_bytes=facts.memory_bytes,
        l2_bytes=cache,
        readings=readings,
        skipped={}
        if cache
        else {"cache size": "unknown here: 64 MiB assumed, so a larger cache would flatter the readings"},
        conditions={
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "command": "robot-perf " + " ".join(sys.argv[1:]),
            "device": "cpu",
            "threads": str(threads),
            "numpy": np.__version__,
            "python": platform.python_version(),
            "method": "wall clock around batches of calls, random data, 0.4 s warm-up, median of 20 interleaved rounds",
        },
    )


def last_level_cache(root: Path = _CACHES) -> int | None:
    """Bytes of the largest cache that the kernel lists for the first core; None where it lists none."""
    sizes = []
    for file in sorted(root.glob("index*/size")):
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) * (1024 if text[-1] == "K" else 2**20))
    return max(sizes, default=None)


def available_memory() -> int:
    """Bytes that can be taken without swapping (MemAvailable); the physical size where the kernel does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cases(size: int, pool: ThreadPoolExecutor, threads: int) -> list[Case]:
    generator = np.random.default_rng(0)
    source = generator.random(size // 4, dtype=np.float32)
    target = np.zeros_like(source)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    rows = size // 4 // _COLUMNS
    weights, vector = source[: rows * _COLUMNS].reshape(rows, _COLUMNS), generator.random(_COLUMNS, dtype=np.float32)
    blocks = np.array_split(weights, threads)
    a = generator.random((_MATRIX, _MATRIX), dtype=np.float32)
    b = generator.random((_MATRIX, _MATRIX), dtype=np.float32)

    def everywhere(work: Callable[[int], Any]) -> Callable[[], None]:
        def call() -> None:
            list(pool.map(work, range(threads)))

        return call

    def copy(i: int) -> None:
        np.copyto(parts[i][1], parts[i][0])

    def read(i: int) -> Any:
        return _sum(parts[i][0])

    def write(i: int) -> None:
        parts[i][1].fill(1.5)

    detail = f"{size / 2**20:.0f} MiB a buffer, {threads} threads"
    gemv_bytes = rows * _COLUMNS * 4
    return [
        Case("copy", "bytes/s", 2.0 * size, 2 * size, _clock(everywhere(copy)), "fp32", detail),
        Case("read", "bytes/s", float(size), size, _clock(everywhere(read)), "fp32", f"maximum, {detail}"),
        Case("write", "bytes/s", float(size), size, _clock(everywhere(write)), "fp32", f"fill, {detail}"),
        Case(
            "gemv",
            "bytes/s",
            float(gemv_bytes),
            gemv_bytes,
            _clock(everywhere(lambda i: blocks[i] @ vector)),
            "fp32",
            f"weights {rows} x {_COLUMNS} times a vector, {threads} threads",
        ),
        Case(
            "matmul",
            "FLOP/s",
            2.0 * _MATRIX**3,
            12 * _MATRIX**2,
            _clock(lambda: a @ b),
            "fp32",
            f"{_MATRIX}³, numpy's BLAS",
        ),
    ]


def _sum(part: NDArray[np.float32]) -> Any:
    # a maximum is one vector instruction per load: numpy's pairwise sum would be arithmetic-bound
    return part.max()


def _clock(call: Callable[[], Any]) -> Callable[[int], float]:
    def run(calls: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        return float(time.perf_counter_ns() - start)

    return run
