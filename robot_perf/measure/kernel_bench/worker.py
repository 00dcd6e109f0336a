"""The process of one provider: sets a point up, checks it, and times it when told. `python -m … PROVIDER`, JSON lines.

Commands on stdin, one JSON object a line; one JSON object a line on the real stdout (libraries that print go to stderr).
A point stays set up until the next one, so that providers in other processes can be timed in turn.
"""

from __future__ import annotations

import functools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from robot_perf.measure.kernel_bench import copies as copying
from robot_perf.measure.kernel_bench import timing
from robot_perf.measure.kernel_bench.check import judge
from robot_perf.measure.kernel_bench.inputs import Inputs
from robot_perf.measure.kernel_bench.lock import forget_choices, gpu_alone, lock_autotuners
from robot_perf.measure.kernel_bench.points import Point
from robot_perf.measure.kernel_bench.process import words_of
from robot_perf.measure.kernel_bench.providers import OURS, PROVIDERS, kernels_digest, unavailable, version_of

__all__ = ["main"]

EPS = 1e-6
WARM_UP_S, FLUSHED = 2.0, 8  # FLUSHED: calls of a graph that flushes before each


class Worker:
    """One provider's state: the current point's tensors, graphs and call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reason = unavailable(name)
        self.graphs: dict[str, tuple[Any, int]] = {}
        self.made: dict[Point, tuple[Any, Any]] = {}  # compiled ahead: the call and the weight it was made for
        self.refused: dict[Point, str] = {}  # compiled ahead in vain
        self.flush: Any = None
        self.l2 = self.memory = 0
        self.call: Callable[[], Any] | None = None
        self.beside: Callable[[], Any] | None = None

    def hello(self) -> dict[str, Any]:
        """Whether the provider is here, and the machine as it sees it."""
        if self.reason:
            return {"unavailable": self.reason}
        import torch

        found = torch.cuda.get_device_properties(0)
        self.l2, self.memory = int(found.L2_cache_size), int(found.total_memory)
        provider = PROVIDERS.get(self.name)
        return {
            "note": provider.note if provider else "",
            "version": version_of(provider) if provider else None,
            "gpu": {
                "name": found.name,
                "capability": f"{found.major}.{found.minor}",
                "sm": found.multi_processor_count,
                "l2_bytes": self.l2,
                "memory_bytes": self.memory,
            },
            "torch": torch.__version__,
            "triton": getattr(sys.modules.get("triton"), "__version__", None),
            "kernels": kernels_digest(),
        }

    def floor(self) -> dict[str, Any]:
        """µs per graph node of an empty kernel."""
        return {"us": copying.empty_kernel_us()}

    def warm_up(self) -> dict[str, Any]:
        """Work: the first point must not be measured on a chip that is still raising its clocks."""
        timing.warm_up(WARM_UP_S)
        return {}

    def setup(self, point: Point, profile: bool) -> dict[str, Any]:
        """Compiles, checks against FP64, captures the graphs. A failed check leaves nothing to time."""
        import torch

        self.drop()
        if point in self.refused:
            return {"error": self.refused[point]}
        inputs = Inputs(point, self.l2, self.memory)
        if self.name not in PROVIDERS:
            return self._setup_copy(point, inputs)
        if point in self.made:
            make, inputs.weight = self.made.pop(point)
        else:
            make = PROVIDERS[self.name].make(point.op, point.d, inputs.weight, EPS)
        poison = [torch.full_like(inputs.x[0], math.nan) for _ in range(2)]
        del poison  # the allocator hands this memory to the outputs: what a kernel leaves unwritten is NaN
        start = time.perf_counter()
        out = make(inputs.x[0], inputs.r[0])
        torch.cuda.synchronize()
        report: dict[str, Any] = {"first_call_s": round(time.perf_counter() - start, 4)}
        report |= judge(out, inputs.x[0], inputs.r[0], inputs.weight, EPS, ours=self.name.startswith(OURS))
        del out
        if report["failed"]:
            return report
        for i in range(3):  # autotuners and lazy loading settle before a capture
            make(inputs.x[i % inputs.sets], inputs.r[i % inputs.sets])
        torch.cuda.synchronize()
        report |= self._capture(point, make, inputs)
        if report["failed"]:
            self.graphs.clear()
            return report
        self.call = lambda: make(inputs.x[0], inputs.r[0])
        if self.name == OURS:
            beside = PROVIDERS["F.rms_norm"].make(point.op, point.d, inputs.weight, EPS)
            self.beside = lambda: beside(inputs.x[0], inputs.r[0])
        if profile:
            try:
                self._profile(point, report)
            except (RuntimeError, AttributeError) as error:  # a profiler that fails must not cost the point its times
                report["profile_error"] = words_of(error)
        return report

    def _setup_copy(self, point: Point, inputs: Inputs) -> dict[str, Any]:
        """All ways to copy, into the same tensors; the conductor times them in turn with everyone else."""
        import torch

        sources = inputs.for_copy().x
        targets = [torch.empty_like(x) for x in sources]
        report: dict[str, Any] = {"ways": list(copying.copies())}
        for way, copy in copying.copies().items():
            turns = [functools.partial(copy, x, y) for x, y in zip(sources, targets, strict=True)]
            turns[0]()
            torch.cuda.synchronize()
            report |= self._capture_cold(point, turns, inputs, f"cold {way}")
        return report

    def _capture(self, point: Point, make: Any, inputs: Inputs) -> dict[str, Any]:
        x, r, sets = inputs.x, inputs.r, inputs.sets
        seen: dict[int, Any] = {}  # the last outputs of each set

        def call(i: int) -> Any:
            seen[i] = make(x[i], r[i])
            return seen[i]

        turns = [functools.partial(call, i) for i in range(sets)]
        calls = timing.calls_per_graph(point)
        self.graphs["warm"] = timing.capture([turns[0]] * calls, 1), calls
        report = self._replayed("warm", 0, seen, make, inputs)
        nodes = timing.graph_nodes(self.graphs["warm"][0])
        per_call = None if nodes is None else {kind: count / calls for kind, count in nodes.items()}
        report |= self._capture_cold(point, turns, inputs, "cold")
        if not report["failed"]:
            report |= self._replayed("cold", max(seen), seen, make, inputs)
        return {**report, "calls_per_graph": calls, "nodes_per_call": per_call}

    def _replayed(self, name: str, i: int, seen: dict[int, Any], make: Any, inputs: Inputs) -> dict[str, Any]:
        """{"failed": None or why}: whether a replay of the graph writes to poisoned outputs of set i what a call returns.

        Outputs that differ in a bit are judged like those of a call.
        """
        import torch

        out = seen.pop(i)
        seen.clear()
        for tensor in out:
            tensor.fill_(math.nan)
        self.graphs[name][0].replay()
        torch.cuda.synchronize()
        x, r = inputs.x[i], inputs.r[i]
        if all(torch.equal(a, b) for a, b in zip(out, make(x, r), strict=True)):
            return {"failed": None}
        failed = judge(out, x, r, inputs.weight, EPS, ours=self.name.startswith(OURS))["failed"]
        return {"failed": failed and f"in the replayed {name} graph: {failed}"}

    def _capture_cold(self, point: Point, turns: list[Any], inputs: Inputs, name: str) -> dict[str, Any]:
        calls, sets = timing.calls_per_graph(point), inputs.sets
        if inputs.rotates:
            self.graphs[name] = timing.capture([turns[i % sets] for i in range(calls)], sets), calls
        else:
            # too small to rotate past the cache: a read of three L2 before each call, and its own time taken off
            self.flush = self.flush or timing.Flush(self.l2)
            self.flush()
            few = [step for i in range(FLUSHED) for step in (self.flush, turns[i % sets])]
            self.graphs[name] = timing.capture(few, sets), FLUSHED
            self.graphs["flush"] = timing.capture([self.flush] * FLUSHED, 1), FLUSHED
        return {
            "cold_by": "rotation" if inputs.rotates else "flush",
            "sets": sets,
            "rotated_bytes": sets * inputs.bytes,
        }

    def _profile(self, point: Point, report: dict[str, Any]) -> None:
        assert self.call is not None
        kernels, operations = timing.kernels_of_one_call(self.call)
        report["kernels"] = kernels
        if self.name == "F.rms_norm":
            report["fused_op_ran"] = "aten::_fused_rms_norm" in operations
        if point.m == 1:
            gaps, durations = timing.idle_gaps(self.graphs["warm"][0])
            report["gap_us"], report["kernel_us"] = timing.middle(gaps), timing.middle(durations)

    def time(self, what: str, times: int) -> dict[str, Any]:
        """Samples in µs per call: `warm`, `cold` or `cold WAY` (with the flush's own time taken off), or `host`.

        Of our kernels `host` has F.rms_norm's beside it, in turn and in this process: two processes may have processors of
        different speed for many points.
        """
        if what == "host":
            assert self.call is not None
            if self.beside is None:
                return {"us": timing.host_us([self.call], 30, times)[0]}
            mine, beside = timing.host_us([self.call, self.beside], 30, times)
            return {"us": mine, "beside_us": beside}
        graph, calls = self.graphs[what]
        samples = timing.replay_us(graph, calls, times)
        if what.startswith("cold") and "flush" in self.graphs:
            # the middle of several: a flush that was held up would make the call's time negative
            own = statistics.median(timing.replay_us(*self.graphs["flush"], times))
            samples = [sample - own for sample in samples]
        return {"us": samples}

    def prepare(self, points: list[Point], limit_s: float, anew: bool = False) -> dict[str, Any]:
        """Compiles these points ahead, beside other processes (lock.py: what waits for what). Seconds per point.

        After `limit_s` it starts no further one. What is ready is passed over, but for a tuner that goes by width alone (`anew`).
        """
        import torch

        provider = PROVIDERS[self.name]
        took: dict[str, Any] = {}
        until = time.monotonic() + limit_s
        for point in points:
            if time.monotonic() > until:
                break
            if point in self.refused or (point in self.made and not (anew and provider.tuner)):
                continue
            start = time.perf_counter()
            try:
                with gpu_alone():
                    inputs = Inputs(point, 0)
                    torch.cuda.synchronize()
                make, weight = self.made.get(point, (None, inputs.weight))
                make = make or provider.make(point.op, point.d, weight, EPS)
                lock_autotuners()
                if anew and provider.tuner:
                    forget_choices(provider.tuner)
                make(inputs.x[0], inputs.r[0])
                torch.cuda.synchronize()
                self.made[point] = make, weight
            except Exception as error:  # noqa: BLE001 - the point's row says it
                took[point.name] = self.refused[point] = words_of(error)
                continue
            took[point.name] = round(time.perf_counter() - start, 3)
            del inputs
            torch.cuda.empty_cache()
        return {"took_s": took}

    def drop(self) -> dict[str, Any]:
        """Frees the point."""
        self.graphs.clear()
        self.call = self.beside = None
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.cuda.empty_cache()
        return {}


def _answer(worker: Worker, message: dict[str, Any]) -> dict[str, Any]:
    command = message.pop("command")
    if "point" in message:
        message["point"] = Point(**message["point"])
    if "points" in message:
        message["points"] = [Point(**p) for p in message["points"]]
    result: dict[str, Any] = getattr(worker, command)(**message)
    return result


def main(argv: list[str] | None = None) -> None:
    """Serves commands until stdin ends."""
    name = (argv or sys.argv[1:])[0]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    worker = Worker(name)
    if not worker.reason:
        import torch

        torch.set_grad_enabled(False)
    with replies:
        for line in sys.stdin:
            try:
                reply = _answer(worker, json.loads(line))
            except Exception as error:  # noqa: BLE001 - a provider that fails at a shape is a row with the reason
                reply = {"error": words_of(error)}
                worker.drop()
            replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
