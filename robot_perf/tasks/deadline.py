"""`deadline`: from a policy and a rate to a saved Run. Plans the length, describes the policy, measures, saves."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from robot_perf import __version__
from robot_perf.errors import PolicyError, UsageError, unknown
from robot_perf.measure.conductor import Plan, Progress, measure
from robot_perf.measure.machine.fingerprint import fingerprint
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.window.keep_warm import loop_part, parse_keep_warm
from robot_perf.run.model import Run
from robot_perf.run.scratch import Scratch
from robot_perf.specs import Budget, LoopSpec, PolicySpec, RealTime, to_json
from robot_perf.stats.burst import MOST_BURST, default_burst
from robot_perf.stats.plan import plan_steps
from robot_perf.tasks.reference import with_reference
from robot_perf.tasks.run_files import check_run_file, default_output
from robot_perf.tasks.saving import keep
from robot_perf.units import period_ns

MAX_STEPS = 200_000_000


@dataclass(frozen=True)
class DeadlineRequest:
    """What a person asked for, with the defaults of design.md section 5 still open (None)."""

    policy: str
    rate_hz: str
    deadline_ns: int | None = None
    steps: int | None = None
    duration_ns: int | None = None
    miss_rate: float = 1e-3
    confidence: float = 0.95
    assumed_burst: float | None = None
    m_in_k: tuple[int, int] | None = None
    max_consecutive_misses: int | None = None
    percentile_limits_ns: dict[str, int] = field(default_factory=dict)
    release_jitter_limit_ns: int | None = None
    backend: str | None = None
    backend_options: dict[str, Any] = field(default_factory=dict)
    python: dict[str, str] = field(default_factory=dict)
    overrun: str = "skip"
    wait: str = "sleep"
    shape: str = "absolute"
    spin_margin_ns: int = 200_000
    gc: str = "freeze"
    keep_warm: str = "none"
    real_time: RealTime = field(default_factory=RealTime)
    warmup_max: int = 2000
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    state: tuple[tuple[str, str], ...] = ()
    action: str | None = None
    counters: tuple[str, ...] | None = None
    preset: str | None = None
    policy_options: dict[str, Any] = field(default_factory=dict)
    observations: Path | None = None
    cast: bool = False
    seed: int = 0
    config: Path | None = None
    output: Path | None = None
    force: bool = False
    hang_s: float = 20.0
    flush_s: float = 10.0


@dataclass(frozen=True)
class Prepared:
    """A request with every default settled: what will run, for how long, and where the Run goes."""

    request: DeadlineRequest
    policy: PolicySpec
    backend: str
    loop: LoopSpec
    budget: Budget
    output: Path
    planned: bool  # the length came from the plan, not from the person


def budget_of(request: DeadlineRequest) -> tuple[int, Budget]:
    """The period in ns and the budget, with the defaults that depend on each other. Raises UsageError."""
    period = period_ns(request.rate_hz)
    deadline = period if request.deadline_ns is None else request.deadline_ns
    if deadline <= 0:
        raise UsageError(f"a deadline of {deadline / 1e6} ms is not positive", do="Give --deadline-ms above 0.")
    for name, value in (("--miss-rate", request.miss_rate), ("--confidence", request.confidence)):
        if not (0 < value < 1):
            raise UsageError(f"{name} {value} is out of range", why="Allowed: above 0 and below 1.")
    if request.miss_rate < 1e-9:
        raise UsageError(f"--miss-rate {request.miss_rate} is out of range", why="Below 1e-9 no run is long enough.")
    if not 0.5 <= request.confidence <= 0.999999:
        raise UsageError(f"--confidence {request.confidence} is out of range", why="Allowed: 0.5 to 0.999999.")
    burst = request.assumed_burst
    if burst is None:
        burst = default_burst(request.overrun, deadline, period)
    if not 1 <= burst <= MOST_BURST:
        raise UsageError(
            f"--assume-burst {burst} is out of range", why="It is a number of misses per overrun: at least 1."
        )
    budget = Budget(
        deadline_ns=deadline,
        miss_rate=request.miss_rate,
        confidence=request.confidence,
        assumed_burst=burst,
        m_in_k=request.m_in_k,
        max_consecutive_misses=request.max_consecutive_misses,
        percentile_limits_ns=dict(request.percentile_limits_ns),
        release_jitter_limit_ns=request.release_jitter_limit_ns,
    )
    return period, budget


def prepare(request: DeadlineRequest, *, saved: bool = True) -> Prepared:
    """Settles everything that can be settled without running the policy. Raises RobotPerfError for whatever can't.

    `saved` says whether there will be a Run file: a place for it is looked at then.
    """
    from robot_perf import policies
    from robot_perf.backends import BACKENDS, default_backend, why_not

    if request.backend is not None and request.backend not in BACKENDS:
        raise unknown("backend", request.backend, BACKENDS)

    period, budget = budget_of(request)
    steps = _steps(request, period, budget)
    loop = LoopSpec(
        period_ns=period,
        deadline_ns=budget.deadline_ns,
        steps=steps,
        warmup_max=request.warmup_max,
        overrun=request.overrun,
        wait=request.wait,
        shape=request.shape,
        spin_margin_ns=request.spin_margin_ns,
        gc=request.gc,
        keep_warm=loop_part(request.keep_warm),
        real_time=request.real_time,
    )
    _refuse_livelock(loop)
    request = _with_polling(request)
    policy = policies.describe(
        request.policy,
        shapes=request.shapes,
        state=list(request.state),
        action=request.action,
        counters=request.counters,
        preset=request.preset,
        seed=request.seed,
        options=request.policy_options,
        observations=str(request.observations) if request.observations else None,
        ort_library=request.backend_options.get("ort_library"),
    )
    backend = request.backend or default_backend(policy)
    if reason := why_not(backend, policy):
        raise PolicyError(f"{policy.name}: backend {backend} can't take it", why=reason)
    output = request.output or default_output(policy.name, backend, request.rate_hz)
    if saved:
        check_run_file(output, force=request.force)
    return Prepared(
        request, policy, backend, loop, budget, output, request.steps is None and request.duration_ns is None
    )


def _steps(request: DeadlineRequest, period: int, budget: Budget) -> int:
    if request.steps is not None and request.duration_ns is not None:
        raise UsageError("--steps and --duration exclude each other", do="Give one of them.")
    if request.steps is not None:
        steps = request.steps
    elif request.duration_ns is not None:
        steps = math.ceil(request.duration_ns / period)
    else:
        steps = plan_steps(budget.miss_rate, budget.confidence, allowed=1, burst=budget.assumed_burst)
    if not 1 <= steps <= MAX_STEPS:
        raise UsageError(
            f"{steps:,} releases are out of range",
            why=f"Allowed: 1 to {MAX_STEPS:,}.",
            do="Change --steps, --duration or --miss-rate.",
        )
    return steps


def _refuse_livelock(loop: LoopSpec) -> None:
    if loop.real_time.fifo_priority is None:
        return
    if loop.wait == "spin":
        raise UsageError(
            "--wait spin under --fifo can starve the whole machine",
            why="A FIFO thread that never sleeps keeps its processor for ever.",
            do="Use --wait sleep, or hybrid with a margin below 1 ms.",
        )
    if loop.wait == "hybrid" and loop.spin_margin_ns >= 1_000_000:
        raise UsageError(
            f"a spin margin of {loop.spin_margin_ns / 1e6} ms under --fifo is too long", why="Allowed: below 1 ms."
        )


def _with_polling(request: DeadlineRequest) -> DeadlineRequest:
    """Keep-warm spin-sync is the backend's option `sync`: it waits for the device by polling."""
    if not parse_keep_warm(request.keep_warm).spin_sync:
        return request
    return replace(request, backend_options={**request.backend_options, "sync": "spin"})


def run_deadline(prepared: Prepared, on_progress: Progress | None = None) -> tuple[Run, Path]:
    """Measures and saves. The Run is saved whatever happened to the worker; a policy that can't be loaded raises."""
    run = measure_deadline(prepared, on_progress)
    return run, keep(run, prepared.output, force=prepared.request.force)


def measure_deadline(
    prepared: Prepared,
    on_progress: Progress | None = None,
    *,
    ready: Callable[[], bool] | None = None,
    stop: Callable[[], str | None] | None = None,
) -> Run:
    """Measures. `ready` and `stop` belong to several policies that run at once (`robot_perf.tasks.together`)."""
    from robot_perf.policies.rate import check_rate

    request = prepared.request
    _, rate_words = check_rate(str(request.config) if request.config else None, Fraction(request.rate_hz))
    conditions: dict[str, Any] = {
        "version": __version__,
        "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "argv": sys.argv[1:],
        "run_file": prepared.output.name,
        "rate_hz": request.rate_hz,
        "rate_checked": rate_words,
        "notes": [rate_words] if request.config else [],
        "planned": prepared.planned,
        "budget": to_json(prepared.budget),
        "backend": {"name": prepared.backend, "options": request.backend_options},
        "seed": request.seed,
        "host": fingerprint(),
    }
    order = WorkOrder(
        map_path="",
        policy=prepared.policy,
        backend=prepared.backend,
        loop=prepared.loop,
        options=request.backend_options,
        observations=str(request.observations) if request.observations else None,
        cast=request.cast,
        seed=request.seed,
        hold=ready is not None,
    )
    output = prepared.output
    with Scratch() as folder:
        order, reference = with_reference(order, folder, request.python)
        plan = Plan(
            order=order,
            conditions=conditions
            | {"truth": reference.conditions(), "notes": [*conditions["notes"], *reference.notes()]},
            python=request.python.get(prepared.backend, sys.executable),
            disk_copy=output.with_name(f"{output.stem}-{os.getpid()}.map"),  # two runs may be meant for one name
            flush_s=request.flush_s,
            hang_s=request.hang_s,
            ready=ready,
            stop=stop,
        )
        return measure(plan, on_progress)
