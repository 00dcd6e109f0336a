"""NVTX ranges around steps and phases, when a profiler listens; nothing at all when none does.

A profiler injects itself into NVTX through an environment variable that it sets before the program starts. Without it there is
nobody to hear a range, so none is made: whoever would push one asks `ranges()` once and keeps its plain code for None.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

INJECTIONS = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH")
STEP, PREPARE, H2D, POLICY, D2H, FINISH = "step", "host prepare", "H2D", "policy", "D2H", "host finish"


@dataclass(frozen=True, slots=True)
class Ranges:
    """`push(name)` opens a range in this thread, `pop()` closes the innermost."""

    push: Callable[[str], Any]
    pop: Callable[[], Any]


def listening() -> bool:
    """True when a profiler (nsys, ncu) has put its injection library in this process's environment."""
    return any(os.environ.get(name) for name in INJECTIONS)


def ranges() -> Ranges | None:
    """The two calls when a profiler listens and a binding is there (the package nvtx, or torch's own); else None."""
    if not listening():
        return None
    for module, push, pop in (("nvtx", "push_range", "pop_range"), ("torch.cuda.nvtx", "range_push", "range_pop")):
        try:
            found = importlib.import_module(module)
            getattr(found, push)("robot-perf")
            getattr(found, pop)()
        except (ImportError, RuntimeError):
            continue  # not installed, or a torch built without CUDA: its functions exist and raise
        return Ranges(getattr(found, push), getattr(found, pop))
    return None


def within(name: str, call: Callable[[], None]) -> Callable[[], None]:
    """`call` itself where nobody listens, else `call` inside a range."""
    found = ranges()
    if found is None:
        return call

    def ranged() -> None:
        found.push(name)
        call()
        found.pop()

    return ranged
