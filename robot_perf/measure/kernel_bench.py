"""The conductor of the RMSNorm bench: one process per provider, set up together, timed one at a time in a rotating order.

Why processes: a peer's runtime loads global state, and one that crashes must not take the others' numbers along. Why interleaved:
clocks and temperature drift; a provider measured minutes after another is measured on another machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from robot_perf.errors import BackendUnavailableError
from robot_perf.measure.kernel_bench_points import Point, bytes_touched
from robot_perf.measure.kernel_bench_providers import OURS, PROVIDERS
from robot_perf.measure.nvml import Meter, open_meter

__all__ = ["COPY", "BenchRequest", "run_bench"]

COPY = "copy"
SCHEMA = "robot-perf/rmsnorm-1"
WORKER = (sys.executable, "-m", "robot_perf.measure.kernel_bench_worker")
PATIENCE_S = 180.0  # an autotuner's first call; silence beyond it is a hang


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What to measure. `rounds` interleaved turns of `replays` samples each; `budget_s` stops before the next point."""

    points: tuple[Point, ...]
    providers: tuple[str, ...]
    rounds: int = 3
    replays: int = 5
    precompile: int = 0  # helper processes that fill the compilers' disk caches first
    budget_s: float | None = None
    profiled: frozenset[Point] = field(default_factory=frozenset)  # points whose kernels are named and gaps measured


class _Process:
    """A worker and its pipes."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self.reason: str | None = None
        self._process = subprocess.Popen(
            [*WORKER, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not os.environ.get("ROBOT_PERF_DEBUG") else None,
            text=True,
            bufsize=1,
            env=environment,
        )

    def send(self, **message: Any) -> None:
        """Queues a command; a dead worker is noticed when its answer is read."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
        except (BrokenPipeError, ValueError):
            self._died()

    def answer(self) -> dict[str, Any]:
        """The next reply, or {"error": …} from a worker that died or went silent."""
        out: IO[str] | None = self._process.stdout
        assert out is not None
        if self.reason is None:
            ready, _, _ = select.select([out], [], [], PATIENCE_S)
            if not ready:
                self._process.kill()
                self.reason = f"no answer within {PATIENCE_S:.0f} s"
            else:
                line = out.readline()
                if line:
                    found: dict[str, Any] = json.loads(line)
                    return found
                self._died()
        return {"error": self.reason}

    def _died(self) -> None:
        code = self._process.wait()
        self.reason = self.reason or f"its process ended with code {code}"

    def close(self) -> None:
        """Ends the worker and lets go of its pipes."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]


def run_bench(
    request: BenchRequest, say: Callable[[str], None], keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Measures all points; the raw report. `say` gets progress lines, `keep` the report so far after every point.

    Raises BackendUnavailableError without a CUDA GPU or without Triton: the fused kernel can't run here.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="robot-perf-bench-") as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # the processes here are the parallelism
            "PYTHONUNBUFFERED": "1",
        }
        compile_s = _precompile(request, environment, say) if request.precompile else {}
        workers = {name: _Process(name, environment) for name in (*request.providers, COPY)}
        meter, why_no_meter = open_meter("cuda:0")
        try:
            report = _greet(workers, request)
            report["machine"] = {"nvml": why_no_meter} if meter is None else meter.identity()
            report["compile_s"] = compile_s
            for index, point in enumerate(request.points):
                if request.budget_s is not None and time.monotonic() - began > request.budget_s:
                    report["stopped"] = (
                        f"after {index} of {len(request.points)} points: the budget of {request.budget_s:.0f} s was spent"
                    )
                    say(report["stopped"])
                    break
                before = _clocks(meter)
                entry = _measure(workers, point, request)
                report["points"].append({**entry, "clocks": [before, _clocks(meter)]})
                say(f"[{index + 1}/{len(request.points)}] {point.name}  {time.monotonic() - began:.0f} s")
                keep(report)
        finally:
            for worker in workers.values():
                worker.close()
    report["wall_s"] = round(time.monotonic() - began, 1)
    return report


def _clocks(meter: Meter | None) -> dict[str, Any] | None:
    if meter is None:
        return None
    now = meter.sample()
    mhz = {"sm_mhz": now.sm_hz, "memory_mhz": now.memory_hz}
    found: dict[str, Any] = {name: None if hz is None else hz // 1_000_000 for name, hz in mhz.items()}
    return found | {"power_w": now.power_w, "temperature_c": now.temperature_c, "throttle": list(now.throttle)}


def _greet(workers: dict[str, _Process], request: BenchRequest) -> dict[str, Any]:
    for worker in workers.values():
        worker.send(command="hello")
    replies = {name: worker.answer() for name, worker in workers.items()}
    for name in (OURS, COPY):
        problem = replies[name].get("unavailable") or replies[name].get("error")
        if problem:
            raise BackendUnavailableError(
                "the RMSNorm bench can't run here", why=problem, do="It needs a CUDA GPU, torch and triton."
            )
    first = replies[OURS]
    workers[COPY].send(command="floor")
    floor = workers[COPY].answer()
    report = {
        "schema": SCHEMA,
        "gpu": first["gpu"],
        "torch": first["torch"],
        "rounds": request.rounds,
        "replays": request.replays,
        "providers": {},
        "empty_kernel_us": floor.get("us"),
        "points": [],
    }
    for name in request.providers:
        reply = replies[name]
        reason = reply.get("unavailable") or reply.get("error")
        report["providers"][name] = (
            {"unavailable": reason} if reason else {"note": reply["note"], "version": reply.get("version")}
        )
        if reason:
            workers.pop(name).close()
    return report


def _precompile(request: BenchRequest, environment: dict[str, str], say: Callable[[str], None]) -> dict[str, Any]:
    """Fills the compilers' disk caches with many processes; seconds per provider and point, printed apart from the times."""
    jobs = [(name, point) for name in request.providers for point in request.points if PROVIDERS[name].compiles]
    took: dict[str, Any] = {}
    chunks: list[tuple[str, list[Point]]] = []
    for name in dict.fromkeys(name for name, _ in jobs):
        mine = [point for other, point in jobs if other == name]
        parts = max(1, min(len(mine), request.precompile * len(mine) // max(1, len(jobs))))
        chunks += [(name, mine[i::parts]) for i in range(parts)]
    helpers = [(name, part, _Process(name, environment)) for name, part in chunks]
    for _, part, helper in helpers:
        helper.send(command="precompile", points=[asdict(p) for p in part])
    for name, _, helper in helpers:
        reply = helper.answer()
        took.setdefault(name, {}).update(reply.get("took_s", {"error": reply.get("error")}))
        helper.close()
    say(f"compiled ahead with {len(helpers)} processes")
    return took


def _measure(workers: dict[str, _Process], point: Point, request: BenchRequest) -> dict[str, Any]:
    entry: dict[str, Any] = {**asdict(point), "bytes": bytes_touched(point), "providers": {}}
    for worker in workers.values():
        worker.send(command="setup", point=asdict(point), profile=point in request.profiled)
    found: dict[str, Any] = {name: worker.answer() for name, worker in workers.items()}
    ready = [name for name, reply in found.items() if not reply.get("error") and not reply.get("failed")]
    samples: dict[str, dict[str, list[float]]] = {name: {"host": [], "warm": [], "cold": []} for name in ready}
    for turn in range(request.rounds):
        shift = 2 * turn % max(1, len(ready))  # by two, or reversing would begin with the same provider again
        order = ready[shift:] + ready[:shift]
        for name in order if turn % 2 == 0 else reversed(order):
            for what in ("host", "warm", "cold"):
                if what == "host" and name == COPY:
                    continue
                workers[name].send(command="time", what=what, times=request.replays if what != "host" else 3)
                reply = workers[name].answer()
                if "us" in reply:
                    samples[name][what] += reply["us"]
                else:
                    found[name] = reply
    for worker in workers.values():
        worker.send(command="drop")
    for worker in workers.values():
        worker.answer()
    for name, reply in found.items():
        measured = {what: [round(v, 4) for v in values] for what, values in samples.get(name, {}).items() if values}
        entry["providers"][name] = {**reply, "samples_us": measured}
    entry["copy"] = entry["providers"].pop(COPY)
    return entry
