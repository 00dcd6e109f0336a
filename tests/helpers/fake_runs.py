"""Runs made of given durations, by the real loop's rules: no measurement, no clock, the same every time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.model import SCHEMA, Run
from robot_perf.specs import Budget, LoopSpec, PolicyCost, PolicySpec, TensorSpec, to_json
from robot_perf.stats.burst import default_burst

MS, US = 1_000_000, 1_000

HOST: dict[str, Any] = {
    "kernel": "6.8.0-45-generic",
    "kernel_version": "#45-Ubuntu SMP PREEMPT_DYNAMIC",
    "preemption": "PREEMPT_DYNAMIC",
    "clock_source": "tsc",
    "governors": ["powersave"],
    "cpu_model": "Example CPU 4 Cores",
    "cpus": 4,
    "memory_bytes": 16_000_000_000,
    "virtualization": [],
    "limits": {"rtprio": 0, "rttime_us": "unlimited", "memlock_bytes": 8_388_608},
    "affinity": [0, 1, 2, 3],
    "python": "CPython 3.11.2",
    "machine": "x86_64",
    "packages": {"robot-perf": "0.1.0", "numpy": "2.1.0", "onnxruntime": "1.22.0"},
    "unread": {"device_tree_model": "FileNotFoundError: No such file or directory"},
}


def executions(n: int, seed: int = 1, typical_ns: int = 312 * US, slow: dict[int, int] | None = None) -> list[int]:
    """Execution times spread by about a tenth around `typical_ns`, with the slow ones at given steps.

    From `random.random`, whose sequence Python promises to keep: golden files are made of them.
    """
    draw = random.Random(seed)
    values = [round(typical_ns * (0.7 + 0.05 * sum(draw.random() for _ in range(12)))) for _ in range(n)]
    for step, ns in (slow or {}).items():
        values[step] = ns
    return values


def policy(**changes: Any) -> PolicySpec:
    """A quadruped-sized policy."""
    known: dict[str, Any] = {
        "name": "go1.onnx",
        "kind": "onnx",
        "path": "go1.onnx",
        "sha256": "1f3a9c0277aa" + "0" * 52,
        "inputs": (TensorSpec("obs", "float32", (1, 48)),),
        "outputs": (TensorSpec("actions", "float32", (1, 12)),),
        "action": 0,
        "cost": PolicyCost(192_504),
    }
    return PolicySpec(**{**known, **changes})


def make_run(
    execution_ns: Sequence[int],
    *,
    period_ns: int = 20 * MS,
    deadline_ns: int | None = None,
    overrun: str = "skip",
    scheduled: int | None = None,
    warmup_ns: Sequence[int] = (2 * MS, 400 * US, 350 * US),
    spec: PolicySpec | None = None,
    budget: dict[str, Any] | None = None,
    loop: dict[str, Any] | None = None,
    **conditions: Any,
) -> Run:
    """A Run whose jobs last `execution_ns`, in order, on the grid of `period_ns`, woken 50 to 80 µs after the release."""
    deadline = period_ns if deadline_ns is None else deadline_ns
    origin, draw = 10**12, random.Random(7)
    wakes = [50 * US + int(draw.random() * 30 * US) for _ in range(len(execution_ns) + len(warmup_ns))]
    rows: list[dict[str, int]] = []

    def job(k: int, duration: int, free: int) -> int:
        release = origin + k * period_ns if period_ns else max(free, origin)  # back to back: released when ready
        waits = period_ns > 0 and release >= free
        wake = release + wakes[len(rows)] if waits else -1
        start = (wake if waits else max(free, release)) + 2 * US
        rows.append(
            {
                "step": k, "release_ns": release, "wake_ns": wake, "start_ns": start, "enqueue_end_ns": -1,
                "end_ns": start + duration, "device_ns": -1, "nvcsw": 1, "nivcsw": int(duration > 5 * MS), "minflt": 0,
                "majflt": 0, "gc_ns": 0, "cpu": 1, "own_ns": 4200 + 10 * (k % 7),
            }
        )  # fmt: skip
        return start + duration

    free = 0
    for i, duration in enumerate(warmup_ns):
        free = job(i - len(warmup_ns), duration, free)
    k, free = 0, 0
    for duration in execution_ns:
        if scheduled is not None and k >= scheduled:
            break
        free = job(k, duration, free)
        k += 1
        if overrun == "skip" and period_ns:
            k = max(k, -(-(free - origin) // period_ns))
    steps = k if scheduled is None else scheduled
    columns = {name: np.array([row[name] for row in rows], np.int64) for name in STEP_COLUMNS}
    burst = default_burst(overrun, deadline, period_ns)
    asked = {"deadline_ns": deadline, "assumed_burst": burst, **(budget or {})}
    known: dict[str, Any] = {
        "schema": SCHEMA,
        "version": "0.1.0",
        "started_utc": "2026-11-29T20:15:00Z",
        "argv": ["deadline", "go1.onnx", "--rate", "50"],
        "rate_hz": "50",
        "planned": True,
        "policy": to_json(spec or policy()),
        "loop": to_json(
            LoopSpec(period_ns=period_ns, deadline_ns=deadline, steps=steps, overrun=overrun, **(loop or {}))
        ),
        "budget": to_json(Budget(**asked)),
        "backend": {"name": "onnxruntime", "options": {}},
        "backend_facts": {
            "backend": "onnxruntime",
            "onnxruntime": "1.22.0",
            "providers": ["CPUExecutionProvider"],
            "threads": 1,
        },
        "host": HOST,
        "real_time": {"scheduler": "SCHED_OTHER", "priority": 0, "affinity": [0, 1, 2, 3], "refused": []},
        "cold_start": {"process_ns": 60 * MS, "modules_ns": 90 * MS, "import_ns": 120 * MS, "load_ns": 14 * MS},
        "warmup": {"calls": len(warmup_ns), "settled": True, "steady_from_call": 2},
        "state": "complete",
        "invalid": [],
        "notes": [],
    }
    return Run(columns, {**known, **conditions})
