"""A provider of `kernels bench rmsnorm` beside the candidates of rmsnorm_trial.py."""

from __future__ import annotations

import os
from typing import Any

from robot_perf.measure.kernel_bench.process import WorkerProcess


class Peer:
    """A peer of the bench in its own process, timed in turn with the candidates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process = WorkerProcess(name, dict(os.environ))
        self.process.send(command="hello")
        reply = self.process.answer()
        self.reason = reply.get("unavailable") or reply.get("error")

    def samplers(self, m: int, d: int, fused: bool) -> dict[str, Any]:
        """What times it at a point; nothing where it can't."""
        if self.reason:
            return {}
        op = "add_rms_norm" if fused else "rms_norm"
        point = {"op": op, "m": m, "d": d, "dtype": "bfloat16", "weight": "bfloat16"}
        self.process.send(command="setup", point=point, profile=False)
        reply = self.process.answer()
        if reply.get("error") or reply.get("failed"):
            print(f"{self.name}: {reply.get('error') or reply.get('failed')}")
            return {}
        return {"us": self._cold}

    def _cold(self, times: int) -> list[float]:
        self.process.send(command="time", what="cold", times=times)
        found: list[float] = self.process.answer().get("us", [])
        return found
