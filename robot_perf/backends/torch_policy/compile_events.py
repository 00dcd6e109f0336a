"""What torch.compile does besides running: compiles, graph breaks, skipped CUDA graphs, each counted, with torch's reason."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

_RECOMPILES = "torch._dynamo.guards.__recompiles"
_GRAPHS = "torch._inductor.cudagraph_utils.__cudagraphs"
_KEPT = 20


class CompileEvents:
    """Called: events since loading, from torch's own counters. `reasons`: the latest reason by event.

    `graphs`: the mode uses CUDA graphs, so that a skipped one counts.
    """

    def __init__(self, *, graphs: bool) -> None:
        self._graphs = graphs
        self._start: dict[str, int] = {}
        self._start = self()
        self._guards, self._skips = _listen(_RECOMPILES), _listen(_GRAPHS)
        if "TORCH_LOGS" not in os.environ:
            # torch looks for the failed guard only when somebody wants to hear of it.
            import torch

            torch._logging.set_logs(recompiles=True)
            logging.getLogger(_RECOMPILES).propagate = False

    def __call__(self) -> dict[str, int]:
        """Counts by event."""
        from torch._dynamo.utils import counters

        now = {
            "compiles": int(counters["stats"]["unique_graphs"]),
            "graph breaks": sum(int(n) for n in counters["graph_break"].values()),
        }
        if self._graphs:
            now["skipped CUDA graphs"] = int(counters["inductor"]["cudagraph_skips"])
        return {k: v - self._start.get(k, 0) for k, v in now.items()}

    def reasons(self) -> Mapping[str, str]:
        """The latest reason of each event that has one."""
        from torch._dynamo.utils import counters

        breaks = [str(k).splitlines()[0][:200] for k in counters["graph_break"]]
        found = {
            "compiles": guard(self._guards[-1]) if self._guards else "",
            "graph breaks": breaks[-1] if breaks else "",
            "skipped CUDA graphs": " ".join(self._skips[-1].split())[:200] if self._skips else "",
        }
        return {k: v for k, v in found.items() if v}


def guard(message: str) -> str:
    """`tensor 'x' size mismatch …` from torch's report of a recompilation."""
    lines = [line.strip(" -") for line in message.splitlines() if line.strip().startswith("-")]
    return " ".join(lines[0].split())[:200] if lines else " ".join(message.split())[:200]


def _listen(name: str) -> list[str]:
    heard: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())
            del heard[:-_KEPT]

    logging.getLogger(name).addHandler(Keep())
    return heard
