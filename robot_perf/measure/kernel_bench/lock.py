"""One process at a time times a candidate while many compile: an autotuner that shares the GPU picks the wrong kernel for its peer.

Two things take the lock: a candidate that is timed, and the making of inputs. The first call of what another process has just compiled
does not: compiling and launching are one call, and under the lock compilers would wait for each other. It is one launch, of the
thousands among which a tuner takes the median.

The lock is a file named by the environment variable below; without it nothing is locked.
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

__all__ = ["LOCK_VARIABLE", "forget_choices", "gpu_alone", "lock_autotuners"]

LOCK_VARIABLE = "ROBOT_PERF_BENCH_LOCK"
# where autotuners time one candidate: Triton's own (fla uses it) and Inductor's
AUTOTUNERS = (
    ("triton.runtime.autotuner", "Autotuner", "_bench"),
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "bench"),
)
CANDIDATE_MS = {
    "warmup": 5,
    "rep": 25,
}  # Triton's own takes 25 and 100 per candidate, and only one process at a time may


@contextlib.contextmanager
def gpu_alone() -> Iterator[None]:
    """Holds the lock: alone among those that take it."""
    path = os.environ.get(LOCK_VARIABLE)
    if path is None:
        yield
        return
    with Path(path).open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def lock_autotuners() -> None:
    """Makes the autotuners of this process take the lock for every candidate they time. Import their libraries first.

    Triton's own also times a candidate for CANDIDATE_MS; it still takes the median of up to thousands of calls.
    """
    tuner: Any = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    if tuner is not None and "do_bench" in vars(tuner) and not hasattr(tuner._bench, "__wrapped__"):
        tuner.do_bench = property(_briefly)
        tuner._bench = _compiled_first(_locked(tuner._bench))
    for module, owner, name in AUTOTUNERS:
        holder: Any = getattr(sys.modules.get(module), owner, None)
        bench = getattr(holder, name, None)
        if bench is not None and not hasattr(bench, "__wrapped__"):
            setattr(holder, name, _locked(bench))


def forget_choices(module: str) -> None:
    """Has Triton's autotuners of an imported module tune at their next call, whatever they chose for another number of rows."""
    for tuner in vars(sys.modules[module]).values():
        if isinstance(getattr(tuner, "configs", None), list) and isinstance(getattr(tuner, "cache", None), dict):
            tuner.cache.clear()


def _briefly(tuner: Any) -> Callable[..., Any]:
    from triton.testing import do_bench

    chosen: Callable[..., Any] | None = tuner._do_bench  # a kernel's own way
    return chosen or functools.partial(do_bench, **CANDIDATE_MS)


def _compiled_first(bench: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a candidate before the lock is taken: else compilers would wait for each other."""

    @functools.wraps(bench)
    def both(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
        with contextlib.suppress(Exception):  # the call that is timed meets it again
            tuner.fn.run(*args, **{**meta, **config.all_kwargs(), "warmup": True})
        return bench(tuner, *args, config=config, **meta)

    return both


def _locked(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def alone(*args: Any, **options: Any) -> Any:
        with gpu_alone():
            return bench(*args, **options)

    return alone
