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
from robot_perf.measure.kernel_bench_lock import LOCK_VARIABLE
from robot_perf.measure.kernel_bench_points import Point, bytes_touched
from robot_perf.measure.kernel_bench_providers import OURS, PROVIDERS
from robot_perf.measure.nvml import Meter, open_meter

__all__ = ["COPY", "BenchRequest", "WorkerProcess", "run_bench"]

COPY = "copy"
HOST_ROWS = 16  # host cost is compared at batch sizes of a robot
SCHEMA = "robot-perf/rmsnorm-1"
WORKER = (sys.executable, "-m", "robot_perf.measure.kernel_bench_worker")
PREPARE_PATIENCE_S = 1800.0
PATIENCE_S = 180.0  # an autotuner's first call; silence beyond it is a hang


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What to measure. `rounds` interleaved turns of `replays` samples each; `budget_s` stops before the next point."""

    points: tuple[Point, ...]
    providers: tuple[str, ...]
    rounds: int = 3
    replays: int = 5
    ahead: int = 0  # extra processes that compile before anything is timed; 0 compiles at each point
    budget_s: float | None = None
    profiled: frozenset[Point] = field(default_factory=frozenset)  # points whose kernels are named and gaps measured


class WorkerProcess:
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

    def answer(self, patience_s: float | None = None) -> dict[str, Any]:
        """The next reply, or {"error": …} from a worker that died or went silent."""
        out: IO[str] | None = self._process.stdout
        assert out is not None
        if self.reason is None:
            ready, _, _ = select.select([out], [], [], patience_s or PATIENCE_S)
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


class _Team:
    """A provider's processes: one, or several that compiled a share of the points ahead."""

    def __init__(self, name: str, size: int, environment: dict[str, str]) -> None:
        self.members = [WorkerProcess(name, environment) for _ in range(size)]

    def of(self, index: int) -> WorkerProcess:
        """The process that has point number `index`."""
        return self.members[index % len(self.members)]

    def close(self) -> None:
        """Ends them."""
        for member in self.members:
            member.close()


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
            LOCK_VARIABLE: str(Path(folder) / "gpu.lock"),
        }
        teams = {name: _Team(name, size, environment) for name, size in _sizes(request).items()}
        meter, why_no_meter = open_meter("cuda:0")
        try:
            report = _greet(teams, request)
            report["machine"] = {"nvml": why_no_meter} if meter is None else meter.identity()
            report["compile_s"] = _prepare(teams, request, say) if request.ahead else {}
            teams[COPY].of(0).send(command="warm_up")
            teams[COPY].of(0).answer()
            for index, point in enumerate(request.points):
                if request.budget_s is not None and time.monotonic() - began > request.budget_s:
                    report["stopped"] = (
                        f"after {index} of {len(request.points)} points: the budget of {request.budget_s:.0f} s was spent"
                    )
                    say(report["stopped"])
                    break
                before = _clocks(meter)
                entry = _measure({name: team.of(index) for name, team in teams.items()}, point, request)
                report["points"].append({**entry, "clocks": [before, _clocks(meter)]})
                say(f"[{index + 1}/{len(request.points)}] {point.name}  {time.monotonic() - began:.0f} s")
                keep(report)
        finally:
            for team in teams.values():
                team.close()
    report["wall_s"] = round(time.monotonic() - began, 1)
    return report


def _sizes(request: BenchRequest) -> dict[str, int]:
    """Processes per provider: one, and `ahead` more shared out by what each takes to compile."""
    costs = {name: PROVIDERS[name].compile_s for name in request.providers}
    whole = sum(costs.values()) or 1.0
    sizes = {name: 1 + round(request.ahead * cost / whole) for name, cost in costs.items()}
    return {**{name: min(size, len(request.points)) for name, size in sizes.items()}, COPY: 1}


def _prepare(teams: dict[str, _Team], request: BenchRequest, say: Callable[[str], None]) -> dict[str, Any]:
    """Has every process compile its share of the points; seconds per provider and point, printed apart from the times."""
    asked = []
    for name, team in teams.items():
        for number, member in enumerate(team.members):
            share = [asdict(p) for i, p in enumerate(request.points) if i % len(team.members) == number]
            if name != COPY:
                member.send(command="prepare", points=share)
                asked.append((name, member))
    took: dict[str, Any] = {}
    for name, member in asked:
        reply = member.answer(patience_s=PREPARE_PATIENCE_S)
        took.setdefault(name, {}).update(reply.get("took_s", {"error": reply.get("error")}))
    say(f"compiled ahead with {len(asked)} processes")
    return took


def _clocks(meter: Meter | None) -> dict[str, Any] | None:
    if meter is None:
        return None
    now = meter.sample()
    mhz = {"sm_mhz": now.sm_hz, "memory_mhz": now.memory_hz}
    found: dict[str, Any] = {name: None if hz is None else hz // 1_000_000 for name, hz in mhz.items()}
    return found | {"power_w": now.power_w, "temperature_c": now.temperature_c, "throttle": list(now.throttle)}


def _greet(teams: dict[str, _Team], request: BenchRequest) -> dict[str, Any]:
    everyone = [(name, member) for name, team in teams.items() for member in team.members]
    for _, member in everyone:
        member.send(command="hello")
    replies: dict[str, dict[str, Any]] = {}
    for name, member in everyone:
        reply = member.answer()
        if name not in replies or "error" in reply:
            replies[name] = reply
    for name in (OURS, COPY):
        problem = replies[name].get("unavailable") or replies[name].get("error")
        if problem:
            raise BackendUnavailableError(
                "the RMSNorm bench can't run here", why=problem, do="It needs a CUDA GPU, torch and triton."
            )
    first = replies[OURS]
    teams[COPY].of(0).send(command="floor")
    floor = teams[COPY].of(0).answer()
    report: dict[str, Any] = {
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
        found = {"unavailable": reason} if reason else {"note": reply["note"], "version": reply.get("version")}
        report["providers"][name] = found
        if reason:
            teams.pop(name).close()
    return report


def _measure(workers: dict[str, WorkerProcess], point: Point, request: BenchRequest) -> dict[str, Any]:
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
                if what == "host" and (name == COPY or point.m > HOST_ROWS):
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
