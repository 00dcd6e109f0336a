"""Damaged Runs: an answer or one clear error, never a traceback, a warning, NaN or infinity."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from fake_loops import MS, golden_ten, run_of, simulated
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from robot_perf.analyze.comparison.compare import compare
from robot_perf.analyze.document import deadline_document
from robot_perf.analyze.explain.tail import tail_advice
from robot_perf.analyze.summary import summarize
from robot_perf.errors import RobotPerfError
from robot_perf.run.model import Run
from robot_perf.specs import to_json

BASE = golden_ten(
    "skip", clock={"samples": [[0, 0], [10**9, 10**9]]}, cold_start={"load_ns": 5}, warmup={"settled": True}
)
INT64 = st.integers(-(2**63), 2**63 - 1)
CELLS = st.one_of(INT64, st.integers(-2, 30), st.just(-1))


def answers(run):
    """Every analysis of a Run, or the error that a person would see."""
    for analysis in (
        deadline_document,
        lambda r: to_json(summarize(r)),
        lambda r: to_json(tail_advice(r)),
        lambda r: to_json(compare(r, BASE)),
    ):
        try:
            json.dumps(analysis(run), allow_nan=False)
        except RobotPerfError as error:
            assert str(error)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["step", "release_ns", "wake_ns", "start_ns", "end_ns", "own_ns", "gc_ns", "cpu"]),
        st.lists(CELLS, min_size=8, max_size=8),
        min_size=1,
    )
)
def test_any_cells(columns):
    damaged = {name: np.array(columns.get(name, column.tolist())) for name, column in BASE.columns.items()}
    answers(Run(damaged, BASE.conditions))


LEAVES = [
    ("loop", "steps"), ("loop", "period_ns"), ("loop", "deadline_ns"), ("loop", "overrun"), ("loop", "shape"),
    ("budget", "miss_rate"), ("budget", "confidence"), ("budget", "assumed_burst"), ("budget", "m_in_k"),
    ("budget", "percentile_limits_ns"), ("budget", "max_consecutive_misses"), ("budget", "release_jitter_limit_ns"),
    ("state",), ("invalid",), ("labels",), ("clock",), ("clock", "samples"), ("cold_start",), ("cold_start", "load_ns"),
    ("cold_start", "first_calls_ns"), ("warmup",), ("warmup", "steady_from_call"), ("reached",), ("in_flight",),
    ("executed",), ("host",), ("policy", "batch"),
]  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.integers(-2, 20),
    st.floats(allow_nan=False),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(LEAVES), VALUES, st.sampled_from(["complete", "interrupted"]))
@example(("cold_start", "first_calls_ns"), [2**63], "complete")
def test_any_condition(path, value, state):
    conditions = copy.deepcopy(dict(BASE.conditions)) | {"state": state}
    at = conditions
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    answers(Run(dict(BASE.columns), conditions))


@pytest.mark.parametrize("period", [1, 10 * MS])
def test_zero_durations(period):
    for run in (simulated([0] * 3000, period_ns=period), simulated([0] * 8, period_ns=period, overrun="queue")):
        answers(run)


def test_loops_without_a_grid():
    rows = [
        {"step": k, "release_ns": k * MS, "wake_ns": 2 * k * MS, "start_ns": 2 * k * MS, "end_ns": (2 * k + 1) * MS}
        for k in range(500)
    ]
    drifting = summarize(run_of(rows, steps=500, period_ns=MS, loop={"shape": "sleep-after"}))
    assert drifting.drift_ppm == pytest.approx(1e6)
    answers(run_of(rows, steps=500, period_ns=MS, loop={"shape": "sleep-after"}))
