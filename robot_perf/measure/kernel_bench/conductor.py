"""The conductor of the RMSNorm bench: one process per provider, set up together, timed one at a time in a rotating order.

Why processes: a peer's runtime loads global state, and one that crashes must not take the others' numbers along. Why interleaved:
clocks and temperature drift; a provider measured minutes after another is measured on another machine. Whoever tunes does so
before the others are set up: a peer that timed its candidates beside their work would have chosen the wrong one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from robot_perf.errors import BackendUnavailableError, UsageError
from robot_perf.measure.kernel_bench.lock import LOCK_VARIABLE
from robot_perf.measure.kernel_bench.points import BenchRequest, Point, bytes_touched
from robot_perf.measure.kernel_bench.process import Team, WorkerProcess, prepare, tune
from robot_perf.measure.kernel_bench.providers import OURS, PROVIDERS
from robot_perf.measure.kernel_bench.summary import fastest
from robot_perf.measure.watch.nvml import Meter, open_meter
from robot_perf.run.scratch import Scratch

__all__ = ["COPY", "BenchRequest", "run_bench"]

COPY = "copy"
SCHEMA = "robot-perf/rmsnorm-1"
HOST_ROWS = 16  # host cost is compared at batch sizes of a robot
HOST_SAMPLES = 3
PREPARE_S = 1800.0  # without a budget
SAME = ("gpu", "torch", "triton", "kernels", "rounds", "replays")  # in a report that is gone on from
PREPARE_SHARE = 0.5  # of what is left of a budget may go into compiling a batch ahead


def run_bench(
    request: BenchRequest, say: Callable[[str], None], keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Measures all points; the raw report. `say` gets progress lines, `keep` the report so far after every point.

    Raises BackendUnavailableError without a CUDA GPU or without Triton: the fused kernel can't run here.
    """
    began = time.monotonic()
    with Scratch("kernels-") as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # the processes here are the parallelism
            "PYTHONUNBUFFERED": "1",
            LOCK_VARIABLE: str(folder / "gpu.lock"),
            # fla keeps what it tuned on the disk by width alone; it is tuned for each point's rows here
            "FLA_CACHE_RESULTS": "0",
        }
        teams = {name: Team(name, size, request.points, environment) for name, size in _sizes(request).items()}
        meter, why_no_meter = open_meter("cuda:0")
        try:
            report = _greet(teams, request)
            report["machine"] = {"nvml": why_no_meter} if meter is None else meter.identity()
            absent = request.left_out.items()
            report["left_out"] = {n: {"why": w, "points": len(p)} for n, (w, p) in absent if n in teams}
            _resume(report, request)
            # whatever ends the bench, the report says what is missing
            report["not_reached"] = [p.name for p in request.points]
            _batches(teams, request, meter, report, began, say, keep)
        finally:
            for team in teams.values():
                team.hang_up()
            for team in teams.values():
                team.close()
    report["wall_s"] = round(time.monotonic() - began, 1)
    return report


def _prepare(
    teams: dict[str, Team], request: BenchRequest, batch: Sequence[Point], report: dict[str, Any], left_s: float
) -> float:
    """Compiles the points of a batch ahead, if that is asked for, then warms the GPU up; the seconds that compiling took."""
    began = time.monotonic()
    if request.ahead:
        compiling = [name for name in teams if name != COPY and PROVIDERS[name].compile_s]
        wanted = {name: request.wanted(name, batch) for name in compiling}
        for name, took in prepare(teams, wanted, min(PREPARE_S, left_s * PREPARE_SHARE)).items():
            report["compile_s"].setdefault(name, {}).update(took)
    spent_s = time.monotonic() - began
    teams[COPY].members[0].send(command="warm_up")
    teams[COPY].members[0].answer()
    return spent_s


def _batches(
    teams: dict[str, Team],
    request: BenchRequest,
    meter: Meter | None,
    report: dict[str, Any],
    began: float,
    say: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None],
) -> None:
    """Compiles and measures batch by batch until the budget is spent: it never goes into compiling what is not measured."""
    total = len(request.known) + len(request.points)
    for batch in request.batches:
        left_s = _left_s(request, began)
        if left_s > 0:
            report["ahead_s"] = round(report["ahead_s"] + _prepare(teams, request, batch, report, left_s), 1)
            if request.ahead:
                say(f"compiled {len(batch)} points ahead  {time.monotonic() - began:.0f} s")
        for point in batch:
            if _left_s(request, began) <= 0:
                break
            before = _clocks(meter)
            present = {name: team.of(point) for name, team in teams.items() if request.wanted(name, [point])}
            for name, team in teams.items():
                if team.restarts and name in report["providers"]:
                    report["providers"][name]["restarts"] = team.restarts
            entry = _measure(present, point, request, report["compile_s"])
            report["points"].append({**entry, "clocks": [before, _clocks(meter)]})
            report["not_reached"].remove(point.name)
            say(f"[{len(report['points'])}/{total}] {point.name}  {time.monotonic() - began:.0f} s")
            keep(report)
    if report["not_reached"]:
        report["stopped"] = (
            f"the budget of {request.budget_s:.0f} s was spent, {report['ahead_s']:.0f} s of it on compiling ahead: "
            f"{len(report['not_reached'])} of {total} points not reached"
        )
        say(report["stopped"])


def _resume(report: dict[str, Any], request: BenchRequest) -> None:
    """Takes over the points of the earlier report. Raises UsageError where it is of another machine, other versions or turns."""
    earlier = request.resumed
    if earlier is None:
        return
    versions = {n: p.get("version") for n, p in report["providers"].items() if "version" in p}
    before = {n: p.get("version") for n, p in earlier["providers"].items() if "version" in p}
    for what, now, then in (
        ("providers", versions, before),
        *((what, report.get(what), earlier.get(what)) for what in SAME),
    ):
        if now != then:
            raise UsageError(
                "the bench can't go on from that report", why=f"{what}: there {then}, here {now}.", do="Start anew."
            )
    report["points"] += earlier["points"]
    report["compile_s"] |= earlier.get("compile_s", {})


def _left_s(request: BenchRequest, began: float) -> float:
    return float("inf") if request.budget_s is None else request.budget_s - (time.monotonic() - began)


def _sizes(request: BenchRequest) -> dict[str, int]:
    """Processes per provider: one, and `ahead` more shared out by what each takes to compile its points."""
    costs = {}
    for name in request.providers:
        provider, points = PROVIDERS[name], request.wanted(name, request.points)
        costs[name] = provider.compile_s * len({p if provider.per_shape else (p.op, p.d, p.weight) for p in points})
    whole = sum(costs.values()) or 1.0
    return {**{name: 1 + round(request.ahead * cost / whole) for name, cost in costs.items()}, COPY: 1}


def _clocks(meter: Meter | None) -> dict[str, Any] | None:
    if meter is None:
        return None
    now = meter.sample()
    mhz = {"sm_mhz": now.sm_hz, "memory_mhz": now.memory_hz}
    found: dict[str, Any] = {name: None if hz is None else hz // 1_000_000 for name, hz in mhz.items()}
    return found | {"power_w": now.power_w, "temperature_c": now.temperature_c, "throttle": list(now.throttle)}


def _greet(teams: dict[str, Team], request: BenchRequest) -> dict[str, Any]:
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
    teams[COPY].members[0].send(command="floor")
    floor = teams[COPY].members[0].answer()
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "gpu": first["gpu"],
        "torch": first["torch"],
        "triton": first["triton"],
        "kernels": first["kernels"],
        "rounds": request.rounds,
        "replays": request.replays,
        "providers": {},
        "empty_kernel_us": floor.get("us"),
        "compile_s": {},
        "ahead_s": 0.0,
        "not_reached": [],
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


def _measure(
    workers: dict[str, WorkerProcess], point: Point, request: BenchRequest, compile_s: dict[str, Any]
) -> dict[str, Any]:
    began = time.monotonic()
    profile = point in request.profiled
    for name, took in tune({n: w for n, w in workers.items() if n != COPY and PROVIDERS[n].compile_s}, point).items():
        known = compile_s.setdefault(name, {})
        compile_s[name] = {**took, **known}  # what it took ahead stays
    tuned = time.monotonic()
    for worker in workers.values():
        worker.send(command="setup", point=asdict(point), profile=profile)
    found: dict[str, Any] = {name: worker.answer() for name, worker in workers.items()}
    set_up = time.monotonic()
    samples = _sample(workers, found, point, request, host=profile and point.m <= HOST_ROWS)
    for worker in workers.values():
        worker.send(command="drop")
    for worker in workers.values():
        worker.answer()
    rounded = {
        name: {what: [round(v, 4) for v in values] for what, values in mine.items() if values}
        for name, mine in samples.items()
    }
    took = {
        "tuned": round(tuned - began, 2),
        "set_up": round(set_up - tuned, 2),
        "timed": round(time.monotonic() - set_up, 2),
    }
    return {
        **asdict(point),
        "bytes": bytes_touched(point),
        "took_s": took,
        "providers": {n: {**reply, "samples_us": rounded.get(n, {})} for n, reply in found.items() if n != COPY},
        "copy": {**found.get(COPY, {}), **fastest({} if found.get(COPY, {}).get("error") else rounded.get(COPY, {}))},
    }


def _sample(
    workers: dict[str, WorkerProcess], found: dict[str, Any], point: Point, request: BenchRequest, *, host: bool
) -> dict[str, dict[str, list[float]]]:
    """µs by provider and kind, in turn; a provider that fails on the way has its error put into `found`."""
    ready = [name for name, reply in found.items() if not reply.get("error") and not reply.get("failed")]
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in ready}
    for turn in range(request.rounds):
        shift = 2 * turn % max(1, len(ready))  # by two, or reversing would begin with the same provider again
        order = ready[shift:] + ready[:shift]
        for name in order if turn % 2 == 0 else reversed(order):
            if found[name].get("error"):
                continue  # it failed in an earlier turn
            kinds = [f"cold {way}" for way in found[name].get("ways", ())] or [
                *(["host"] if host else []),
                "warm",
                "cold",
            ]
            for what in kinds:
                times = HOST_SAMPLES if what == "host" else request.replays
                workers[name].send(command="time", what=what, times=times)
                reply = workers[name].answer()
                if "us" in reply:
                    samples[name].setdefault(what, []).extend(reply["us"])
                    if "beside_us" in reply:
                        samples[name].setdefault(f"{what} beside", []).extend(reply["beside_us"])
                else:
                    found[name] = reply
                    break
    return samples
