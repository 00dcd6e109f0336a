"""A Run: what was asked, under which conditions, and every step. Read-only; no statistics on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.errors import RunFileError
from robot_perf.run.columns import NOT_MEASURED, STEP_COLUMNS
from robot_perf.specs import Budget, LoopSpec, PolicySpec, from_json

SCHEMA = "robot-perf/1"
Column = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Run:
    """Rows in the order they were executed (warm-up first), and the conditions.

    Required keys of `conditions`: schema, policy, loop, budget, backend, state ("complete" or why not), invalid (list of
    reasons found while measuring). docs/metrics.md lists the others.
    """

    columns: Mapping[str, Column]
    conditions: Mapping[str, Any]

    def __post_init__(self) -> None:
        missing = [c for c in ("step", "release_ns", "wake_ns", "start_ns", "end_ns") if c not in self.columns]
        if missing:
            raise RunFileError(f"the Run lacks the columns {', '.join(missing)}")
        lost = [
            k for k in ("schema", "policy", "loop", "budget", "backend", "state", "invalid") if k not in self.conditions
        ]
        if lost:
            raise RunFileError(f"the Run's conditions lack {', '.join(lost)}")
        if self.conditions["schema"] != SCHEMA:
            raise RunFileError(
                f"the Run has schema {self.conditions['schema']!r}",
                why=f"This version reads {SCHEMA}.",
                do="Upgrade robot-perf.",
            )
        lengths = {len(c) for c in self.columns.values()}
        if len(lengths) > 1:
            raise RunFileError("the Run's columns differ in length", why=f"Lengths: {sorted(lengths)}.")
        for column in self.columns.values():
            column.setflags(write=False)
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        object.__setattr__(self, "conditions", MappingProxyType(dict(self.conditions)))

    @cached_property
    def policy(self) -> PolicySpec:
        """The policy as the worker resolved it."""
        return from_json(PolicySpec, self.conditions["policy"])

    @cached_property
    def loop(self) -> LoopSpec:
        """The loop as asked."""
        return from_json(LoopSpec, self.conditions["loop"])

    @cached_property
    def budget(self) -> Budget:
        """The budget as asked."""
        return from_json(Budget, self.conditions["budget"])

    @property
    def scheduled(self) -> int:
        """Releases of the measured window, fixed before the run: the denominator of every ratio."""
        return self.loop.steps

    @cached_property
    def measured(self) -> Mapping[str, Column]:
        """The executed steps of the measured window: the rows with step >= 0 that finished."""
        keep = (self.columns["step"] >= 0) & (self.columns["end_ns"] != NOT_MEASURED)
        return {name: column[keep] for name, column in self.columns.items()}

    @cached_property
    def warmup(self) -> Mapping[str, Column]:
        """The warm-up rows (step < 0), kept but never in a statistic of the window."""
        keep = self.columns["step"] < 0
        return {name: column[keep] for name, column in self.columns.items()}


def empty_columns(rows: int = 0) -> dict[str, Column]:
    """The standard columns, every cell "not measured"."""
    return {name: np.full(rows, NOT_MEASURED, dtype=np.int64) for name in STEP_COLUMNS}
