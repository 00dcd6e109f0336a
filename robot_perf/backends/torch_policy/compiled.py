"""The compiled module as it is called. What torch would run in eager mode instead, in silence, is refused, or said.

torch does so where it is switched off, where the policy keeps itself from being compiled, and once it has recompiled too often.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from robot_perf.backends.torch_policy.runner import Events
from robot_perf.errors import InvalidMeasurementError, UsageError


class Compiled:
    """Calls `module`, what torch.compile made. Raises InvalidMeasurementError where torch gives up compiling it.

    By default torch warns once at its limit (8 compiles of one function) and runs the function in eager mode from then on.
    """

    def __init__(self, name: str, module: Callable[..., Any], events: Events) -> None:
        import torch._dynamo.exc as exceptions

        self.module, self._name, self._events = module, name, events
        self._given_up: Any = getattr(exceptions, "FailOnRecompileLimitHit", ())
        self._thread = -1
        self._seen = False  # something of it was compiled

    def __call__(self, *inputs: Any) -> Any:
        """As the module."""
        if threading.get_ident() != self._thread:
            # torch 2.13 keeps its settings by thread, and a node loads in one and steps in another.
            self._thread = threading.get_ident()
            fail_at_limit(True)
        try:
            return self.module(*inputs) if self._seen else self._watched(inputs)
        except self._given_up as error:
            guard = self._events.reasons().get("compiles", "").split(" (HINT", 1)[0]
            raise InvalidMeasurementError(
                f"{self._name}: torch stopped compiling it, and would run the rest in eager mode",
                why="Something in it changes from step to step, so that torch compiled it anew each time, until its limit"
                + (f". The check that failed last: {guard}" if guard else ""),
                do="Keep what changes in a tensor (a buffer, not a Python number), or use --backend eager.",
            ) from error

    def _watched(self, inputs: tuple[Any, ...]) -> Any:
        before = graphs_compiled()
        result = self.module(*inputs)
        self._seen = graphs_compiled() > before or _has_code(self.module)
        self._events.called(compiled=self._seen)
        return result


def graphs_compiled() -> int:
    """How many graphs torch has compiled in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _has_code(module: Any) -> bool:
    """Whether there is compiled code for `module`: what torch compiled for one policy serves the next one of its class.

    True where it can't be looked up.
    """
    original = getattr(module, "_orig_mod", None)
    calls = [getattr(getattr(module, "forward", module), "_torchdynamo_orig_callable", None)]
    calls += [] if original is None else [m.forward for m in original.modules()]
    try:
        return any(_runs_a_graph(call) for call in calls)
    except (ImportError, AttributeError):  # torch's inside, which has no promise
        return True


def _runs_a_graph(call: Any) -> bool:
    """Whether what torch made of a Python function calls a compiled graph: before a graph break, or after one."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list as entries

    names = [name for entry in entries(call) for name in entry.code.co_names] if hasattr(call, "__code__") else []
    rest = [call.__globals__.get(name) for name in names if name.startswith("__resume_at")]
    return any(name.startswith("__compiled_fn") for name in names) or any(_runs_a_graph(part) for part in rest)


def refuse_if_off(name: str) -> None:
    """Raises UsageError where torch is told to compile nothing, or to go on in eager mode where it can't compile."""
    import torch._dynamo.config as dynamo

    does, word = "turns torch.compile off", ""
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        word = "TORCHDYNAMO_DISABLE=1"
    elif dynamo.disable:
        word = _said("TORCH_COMPILE_DISABLE", "torch._dynamo.config.disable = True")
    elif dynamo.suppress_errors:
        does = "lets torch.compile go on in eager mode where it fails"
        word = _said("TORCHDYNAMO_SUPPRESS_ERRORS", "torch._dynamo.config.suppress_errors = True")
    if word:
        raise UsageError(
            f"{name}: {word} {does}",
            why="The policy would run in eager mode, and be called compiled.",
            do="Take it away, or use --backend eager.",
        )


def _said(variable: str, setting: str) -> str:
    return f"{variable}={os.environ[variable]}" if os.environ.get(variable) else setting


def fail_at_limit(on: bool) -> bool:
    """Sets whether torch fails at its recompile limit, where it has that setting; what it was before."""
    import torch._dynamo.config as dynamo

    if not hasattr(dynamo, "fail_on_recompile_limit_hit"):
        return False
    before = bool(dynamo.fail_on_recompile_limit_hit)
    dynamo.fail_on_recompile_limit_hit = on
    return before
