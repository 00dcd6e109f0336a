"""A control loop on a fake clock: scripted durations in, a Run out. Exact integers, no sleeping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.model import SCHEMA, Run, empty_columns
from robot_perf.specs import Budget, LoopSpec, PolicySpec, to_json

MS = 1_000_000


def fake_loop(
    execution_ns: Sequence[int], *, period_ns: int, overrun: str, wake_delay_ns: int = 0, origin_ns: int = 7 * 10**12
) -> list[dict[str, int]]:
    """Rows of a loop whose job at release k takes execution_ns[k]; times start at `origin_ns`."""
    now, k, rows = origin_ns, 0, []
    while k < len(execution_ns):
        release = origin_ns + k * period_ns
        waits = now <= release
        wake = release + wake_delay_ns if waits else -1
        start = wake if waits else now
        now = start + execution_ns[k]
        rows.append({"step": k, "release_ns": release, "wake_ns": wake, "start_ns": start, "end_ns": now})
        k = max(k + 1, -(-(now - origin_ns) // period_ns)) if overrun == "skip" else k + 1
    return rows


def run_of(
    rows: Sequence[Mapping[str, int]],
    *,
    steps: int,
    period_ns: int,
    deadline_ns: int | None = None,
    overrun: str = "skip",
    budget: Budget | None = None,
    loop: Mapping[str, Any] | None = None,
    **conditions: Any,
) -> Run:
    """A Run of these rows; cells that a row leaves out are "not measured"."""
    columns = empty_columns(len(rows))
    for name in {*STEP_COLUMNS, *(key for row in rows for key in row)}:
        columns[name] = np.array([row.get(name, -1) for row in rows], dtype=np.int64)
    deadline = period_ns if deadline_ns is None else deadline_ns
    spec = LoopSpec(period_ns=period_ns, deadline_ns=deadline, steps=steps, overrun=overrun, **(loop or {}))
    return Run(
        columns,
        {
            "schema": SCHEMA,
            "policy": to_json(PolicySpec("spin", "builtin")),
            "loop": to_json(spec),
            "budget": to_json(budget or Budget(deadline_ns=deadline)),
            "backend": {"name": "python"},
            "state": "complete",
            "invalid": [],
            **conditions,
        },
    )


def simulated(
    execution_ns: Sequence[int], *, period_ns: int, overrun: str = "skip", wake_delay_ns: int = 0, **options: Any
) -> Run:
    """`fake_loop` as a Run."""
    rows = fake_loop(execution_ns, period_ns=period_ns, overrun=overrun, wake_delay_ns=wake_delay_ns)
    return run_of(rows, steps=len(execution_ns), period_ns=period_ns, overrun=overrun, **options)


def golden_ten(overrun: str, **options: Any) -> Run:
    """Ten releases, T = D = 10 ms, wake delay 0.1 ms, execution 4 ms, job 2 takes 25 ms."""
    execution = [4 * MS] * 10
    execution[2] = 25 * MS
    return simulated(execution, period_ns=10 * MS, overrun=overrun, wake_delay_ns=MS // 10, **options)
