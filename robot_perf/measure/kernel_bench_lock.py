"""One process at a time on the GPU while many compile: an autotuner that shares the GPU picks the wrong kernel for its peer.

The lock is a file named by the environment variable below; without it (a bench that compiles at each point) nothing is locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["LOCK_VARIABLE", "gpu_alone", "lock_autotuners"]

LOCK_VARIABLE = "ROBOT_PERF_BENCH_LOCK"
# where autotuners time one candidate: Triton's own (fla uses it) and Inductor's
AUTOTUNERS = (
    ("triton.runtime.autotuner", "Autotuner", "_bench"),
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "bench"),
)


@contextlib.contextmanager
def gpu_alone() -> Iterator[None]:
    """Holds the lock."""
    path = os.environ.get(LOCK_VARIABLE)
    if path is None:
        yield
        return
    with Path(path).open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def lock_autotuners() -> None:
    """Makes the autotuners of this process take the lock for every candidate they time. Import their libraries first."""
    for module, owner, name in AUTOTUNERS:
        holder: Any = getattr(sys.modules.get(module), owner, None)
        bench = getattr(holder, name, None)
        if bench is not None and not hasattr(bench, "__wrapped__"):
            setattr(holder, name, _locked(bench))


def _locked(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def alone(*args: Any, **options: Any) -> Any:
        with gpu_alone():
            return bench(*args, **options)

    return alone
