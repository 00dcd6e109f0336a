"""`utilisation`: a Run with the GPU sampled beside it, a traced pass of the same policy at the same rate, and the ladder."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_perf.errors import RobotPerfError, UsageError
from robot_perf.measure.conductor import Progress
from robot_perf.measure.watch.use_sampler import EVERY_S, UseSampler
from robot_perf.run.model import Run
from robot_perf.run.scratch import Scratch
from robot_perf.run.stepmap import Phase, Word
from robot_perf.tasks.beside import with_conditions
from robot_perf.tasks.deadline import DeadlineRequest, Prepared, measure_deadline
from robot_perf.tasks.interrupted import interrupted
from robot_perf.tasks.saving import keep

if TYPE_CHECKING:
    from robot_perf.analyze.diagnose import Diagnosis
    from robot_perf.analyze.utilisation import Ladder
    from robot_perf.analyze.utilisation.model import Busy, Evidence, Reading

DEFAULT_NS = 20_000_000_000  # twenty and more periods of NVML's number
TRACE_STEPS = 60


@dataclass(frozen=True)
class Utilised:
    """What was sampled, what it means, and what it was made from. `run` is None for a GPU that was only watched."""

    ladder: Ladder
    evidence: Evidence
    readings: tuple[Reading, ...]
    busy: Busy
    sampling: dict[str, Any]  # device, source, identity, cost
    run: Run | None = None
    path: Path | None = None
    diagnosis: Diagnosis | None = None


def run_utilisation(
    prepared: Prepared,
    *,
    every_s: float = EVERY_S,
    trace_steps: int = TRACE_STEPS,
    on_progress: Progress | None = None,
) -> Utilised:
    """Measures with the sampler beside it, saves the Run, then traces a second, short pass. Raises RobotPerfError."""
    check_every(every_s)
    device = str(prepared.request.backend_options.get("device", "cpu"))
    with UseSampler(device, every_s) as sampler:

        def look(stepmap: Any) -> None:
            if stepmap[Word.PHASE] == Phase.RUNNING:
                sampler.follow(stepmap[Word.WORKER_PID])
            if on_progress is not None:
                on_progress(stepmap)

        run = measure_deadline(prepared, look)
    kept = sampler.conditions()
    run = with_conditions(run, {"utilisation": kept})
    path = keep(run, prepared.output, force=prepared.request.force)
    diagnosis, reason = None, "no trace: the run was interrupted"
    if not interrupted(run):
        diagnosis, reason = traced(prepared, trace_steps)
    return of_run(run, path, diagnosis, reason)


def traced(prepared: Prepared, steps: int) -> tuple[Diagnosis | None, str]:
    """The diagnosis of a pass under torch's profiler, at the same rate; None and why there is none."""
    from robot_perf.backends.gpu.options import on_cuda
    from robot_perf.tasks.profiling.diagnose import DiagnoseRequest, diagnose_file
    from robot_perf.tasks.profiling.profile import profile_torch

    if not on_cuda(prepared.request.backend_options):
        return None, "the policy runs on the CPU: there is no device work to trace"
    if steps == 0:
        return None, "no trace was asked for (--trace-steps 0)"
    request = replace(prepared.request, steps=steps, duration_ns=None, output=None)
    with Scratch() as folder:
        trace = folder / "trace.json.gz"
        try:
            profile_torch(request, trace)
            return diagnose_file(DiagnoseRequest(trace, rate_hz=request.rate_hz)).diagnosis, ""
        except RobotPerfError as error:
            return None, f"no trace: {error.what}"


def of_run(run: Run, path: Path | None, diagnosis: Diagnosis | None, reason: str) -> Utilised:
    """Numbers and ladder of a Run that was sampled."""
    from robot_perf.analyze.utilisation import climb
    from robot_perf.analyze.utilisation.numbers import cost_of_sampling, readings
    from robot_perf.analyze.utilisation.of_run import busy_of, evidence_of, window_ns

    kept = run.conditions["utilisation"]
    window = window_ns(run)
    evidence = evidence_of(run, kept, diagnosis, reason)
    rate_hz = 1e9 / run.loop.period_ns if run.loop.period_ns else None
    return Utilised(
        ladder=climb(evidence),
        evidence=evidence,
        readings=readings(kept, *(window or (0, -1))),
        busy=busy_of(diagnosis, reason, run, rate_hz),
        sampling=_sampling(kept) | cost_of_sampling(kept),
        run=run,
        path=path,
        diagnosis=diagnosis,
    )


def watch(device: str, seconds: float, *, pid: int | None = None, every_s: float = EVERY_S) -> Utilised:
    """Samples a GPU that something else uses. Raises UsageError for a process that isn't there."""
    from robot_perf.analyze.utilisation import climb
    from robot_perf.analyze.utilisation.model import Busy, Evidence
    from robot_perf.analyze.utilisation.numbers import cost_of_sampling, host_time, neighbours, readings

    check_every(every_s)
    if not 1 <= seconds <= 86_400:
        raise UsageError(f"--seconds {seconds:g} is out of range", why="Allowed: 1 s to a day.")
    if pid is not None and not Path(f"/proc/{pid}").is_dir():
        raise UsageError(f"--pid {pid}: there is no such process")
    with UseSampler(device, every_s) as sampler:
        if pid is not None:
            sampler.follow(pid)
        low = time.monotonic_ns()
        time.sleep(seconds)
        high = time.monotonic_ns()
    kept = sampler.conditions()
    unseen = "only watched from outside: nothing here counts its steps or its requests"
    absent = {"load": unseen, "inside": "only watched from outside: there is no timeline of it"}
    others, why = neighbours(kept, low, high, () if pid is None else (pid,), on_it=False)
    if pid is None:
        others, why = None, "no --pid says which of its processes is meant"
    evidence = Evidence(
        host=host_time(kept, low, high, pid), neighbours=others, absent=absent | ({"neighbours": why} if why else {})
    )
    return Utilised(
        ladder=climb(evidence),
        evidence=evidence,
        readings=readings(kept, low, high),
        busy=Busy("none", reason=absent["inside"]),
        sampling=_sampling(kept) | cost_of_sampling(kept) | {"seconds": seconds, "pid": pid},
    )


def check_every(every_s: float) -> None:
    """Refuses a period that would load the driver or see nothing."""
    if not 0.1 <= every_s <= 60:
        raise UsageError(
            f"--every {every_s:g} s is out of range",
            why="Allowed: 0.1 to 60 s: each look takes a lock of the driver, and NVML renews its number every 1/6 to 1 s.",
        )


def request_of(request: DeadlineRequest) -> DeadlineRequest:
    """The request with utilisation's own default length."""
    if request.steps is None and request.duration_ns is None:
        return replace(request, duration_ns=DEFAULT_NS)
    return request


def _sampling(kept: dict[str, Any]) -> dict[str, Any]:
    return {k: kept.get(k) for k in ("device", "source", "reason", "identity", "gpu_reasons", "host_reasons")}
