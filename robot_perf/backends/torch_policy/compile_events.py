"""What torch.compile does besides running: compiles, graph breaks, skipped CUDA graphs, each counted, with torch's reason."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from robot_perf.backends.protocol import NOTHING_COMPILED
from robot_perf.backends.torch_policy.compiled import fail_at_limit


class _LastWord(logging.Handler):
    """What torch said last on one of its loggers, and how often it has spoken."""

    def __init__(self, logger: str) -> None:
        super().__init__()
        self.logger = logging.getLogger(logger)
        self.spoken, self.text = 0, ""

    def emit(self, record: logging.LogRecord) -> None:
        """As `logging.Handler.emit`."""
        self.spoken += 1
        self.text = record.getMessage()


# Of the process, as torch's loggers are: however many policies are loaded, each is told once, and nobody once they are closed.
_RECOMPILES = _LastWord("torch._dynamo.guards.__recompiles")
_SKIPS = _LastWord("torch._inductor.cudagraph_utils.__cudagraphs")
_listening: set[CompileEvents] = set()
_failed_before = [False]  # torch's own setting, for when nobody listens any more


class CompileEvents:
    """Called: events since loading, from torch's own counters. `reasons`: the latest reason by event. Listens until `close`.

    `graphs`: the mode uses CUDA graphs, so that a skipped one counts.
    """

    def __init__(self, *, graphs: bool) -> None:
        self._graphs = graphs
        self._compiled: bool | None = None  # no call yet
        self._start: dict[str, int] = {}
        self._start, self._broken = self(), _graph_breaks()
        if not _listening:
            _listen()
        _listening.add(self)
        self._before = {word: word.spoken for word in (_RECOMPILES, _SKIPS)}

    def __call__(self) -> dict[str, int]:
        """Counts by event."""
        from torch._dynamo.utils import counters

        now = {
            "compiles": int(counters["stats"]["unique_graphs"]),
            "graph breaks": sum(_graph_breaks().values()),
        }
        if self._graphs:
            now["skipped CUDA graphs"] = int(counters["inductor"]["cudagraph_skips"])
        return {k: v - self._start.get(k, 0) for k, v in now.items()}

    def reasons(self) -> Mapping[str, str]:
        """The latest reason of each event that has one, and why nothing was compiled where a call is over and nothing was."""
        breaks = [why.splitlines()[0][:200] for why, n in _graph_breaks().items() if n > self._broken.get(why, 0)]
        found = {
            "compiles": guard(self._heard(_RECOMPILES)),
            "graph breaks": breaks[-1] if breaks else "",
            "skipped CUDA graphs": " ".join(self._heard(_SKIPS).split())[:200],
        }
        if self._compiled is False:
            off = "its code keeps torch.compile off (torch.compiler.disable, set_stance)"
            found[NOTHING_COMPILED] = found["graph breaks"] or off
        return {k: v for k, v in found.items() if v}

    def not_captured(self) -> str:
        """As `Events.not_captured`: torch has skipped graphs and holds none. Asked on the thread that makes the steps."""
        counted = self()
        skipped, held = counted.get("skipped CUDA graphs", 0), _graphs_held()
        if not skipped or held or (held is None and skipped < counted["compiles"]):
            return ""
        return self.reasons().get("skipped CUDA graphs", "torch gave no reason")

    def called(self, *, compiled: bool) -> None:
        """As `Events.called`."""
        self._compiled = compiled

    def _heard(self, word: _LastWord) -> str:
        return word.text if word.spoken > self._before[word] else ""

    def close(self) -> None:
        """The last one that is closed leaves torch's loggers as they were. Once closed it does nothing."""
        if self in _listening:
            _listening.remove(self)
            if not _listening:
                _listen_no_more()


def _graph_breaks() -> dict[str, int]:
    """How often torch has broken a graph in this process, by its reason."""
    from torch._dynamo.utils import counters

    return {str(why): int(n) for why, n in counters["graph_break"].items()}


def _graphs_held() -> int | None:
    """How many CUDA graphs torch has captured for this thread and holds; None where it can't be looked up."""
    trees: Any = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None:
        return 0
    try:
        managers = [c.tree_manager for c in trees.get_obj(trees.local, "tree_manager_containers").values()]
        return sum(len(nodes) for m in managers if m is not None for nodes in m.roots.values())
    except Exception:  # noqa: BLE001 - torch's inside, which has no promise: then the counts must do
        return None


def guard(message: str) -> str:
    """`tensor 'x' size mismatch …` from torch's report of a recompilation."""
    lines = [line.strip(" -") for line in message.splitlines() if line.strip().startswith("-")]
    return " ".join(lines[0].split())[:200] if lines else " ".join(message.split())[:200]


def _listen() -> None:
    _failed_before[0] = fail_at_limit(True)
    for word in (_RECOMPILES, _SKIPS):
        word.logger.addHandler(word)
    if "TORCH_LOGS" not in os.environ:
        # torch looks for the failed guard only when somebody wants to hear of it.
        import torch

        torch._logging.set_logs(recompiles=True)
        _RECOMPILES.logger.propagate = False


def _listen_no_more() -> None:
    fail_at_limit(_failed_before[0])
    for word in (_RECOMPILES, _SKIPS):
        word.logger.removeHandler(word)
    if "TORCH_LOGS" not in os.environ:
        import torch

        torch._logging.set_logs()
