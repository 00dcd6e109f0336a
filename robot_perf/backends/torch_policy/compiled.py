"""The compiled module as it is called: torch may not go on in eager mode once it has recompiled too often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from robot_perf.backends.torch_policy.runner import Events
from robot_perf.errors import InvalidMeasurementError


class Compiled:
    """Calls `module`, what torch.compile made. Raises InvalidMeasurementError where torch gives up compiling it.

    By default torch warns once at its limit (8 compiles of one function) and runs the function in eager mode from then on.
    """

    def __init__(self, name: str, module: Callable[..., Any], events: Events) -> None:
        import torch._dynamo.exc as exceptions

        self.module, self._name, self._events = module, name, events
        self._given_up: Any = getattr(exceptions, "FailOnRecompileLimitHit", ())
        self._thread = -1

    def __call__(self, *inputs: Any) -> Any:
        """As the module."""
        if threading.get_ident() != self._thread:
            # torch 2.13 keeps its settings by thread, and a node loads in one and steps in another.
            self._thread = threading.get_ident()
            fail_at_limit(True)
        try:
            return self.module(*inputs)
        except self._given_up as error:
            guard = self._events.reasons().get("compiles", "").split(" (HINT", 1)[0]
            raise InvalidMeasurementError(
                f"{self._name}: torch stopped compiling it, and would run the rest in eager mode",
                why="Something in it changes from step to step, so that torch compiled it anew each time, until its limit"
                + (f". The check that failed last: {guard}" if guard else ""),
                do="Keep what changes in a tensor (a buffer, not a Python number), or use --backend eager.",
            ) from error


def fail_at_limit(on: bool) -> bool:
    """Sets whether torch fails at its recompile limit, where it has that setting; what it was before."""
    import torch._dynamo.config as dynamo

    if not hasattr(dynamo, "fail_on_recompile_limit_hit"):
        return False
    before = bool(dynamo.fail_on_recompile_limit_hit)
    dynamo.fail_on_recompile_limit_hit = on
    return before
