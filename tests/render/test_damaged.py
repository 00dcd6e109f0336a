"""Damaged Runs through every renderer: a report or one clear error, never a traceback or a warning."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from fake_runs import MS, executions, make_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robot_perf.errors import RobotPerfError
from robot_perf.render.ci.github import annotations
from robot_perf.render.ci.junit import junit_xml
from robot_perf.render.markdown import report_markdown
from robot_perf.render.parts.curves import curves_of
from robot_perf.render.text import deadline_report
from robot_perf.run.model import Run

SAMPLE = {"at_ns": 10**12, "host_c": 50.0, "device_hz": 1.3e9, "power_w": 15.0, "throttle": ["power cap"]}
BASE = make_run(
    executions(30, slow={12: 50 * MS}),
    clock={"samples": [[0, 0]]},
    soak={"samples": [SAMPLE], "device": "NVML", "zones": []},
)
RENDERERS = {
    "text": deadline_report,
    "markdown": lambda run: report_markdown([("x", run)]),
    "junit": lambda run: junit_xml([("x", run)]),
    "github": lambda run: annotations([("x", run)]),
    "curves": curves_of,
}
CELLS = st.sampled_from([0, -1, -2, 1, 40, 10**9, 10**12, 2**59, 2**62, -(2**62)])
VALUES = st.sampled_from([None, 0, -1, 1.5, "", "x", "\x1b[2J\n", [], ["a"], [1], {}, {"a": 1}, True, 10**30])


def places(value: object, path: tuple = ()):
    """The path of everything inside the conditions."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


PLACES = list(places(dict(BASE.conditions)))


def render_all(columns, conditions):
    try:
        run = Run(columns, conditions)
        _ = run.policy, run.loop, run.budget
    except (RobotPerfError, KeyError, TypeError, ValueError, AttributeError):
        return  # `run.parquet.load` refuses these, and has its own tests
    for render in RENDERERS.values():
        try:
            assert render(run) is not None
        except RobotPerfError as error:
            assert str(error)


@given(st.sampled_from(PLACES), VALUES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_condition_of_the_wrong_kind(place, value):
    conditions = copy.deepcopy(dict(BASE.conditions))
    inner = conditions
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    render_all({k: v.copy() for k, v in BASE.columns.items()}, conditions)


@given(
    st.lists(st.tuples(st.sampled_from(list(BASE.columns)), st.integers(0, 31), CELLS), max_size=4), st.integers(0, 33)
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_row_of_nonsense(cells, rows):
    columns = {k: v.copy() for k, v in BASE.columns.items()}
    for name, row, value in cells:
        columns[name][row] = value
    render_all({k: v[:rows].copy() for k, v in columns.items()}, dict(BASE.conditions))


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_hardly_any_row_in_the_figures(rows):
    pytest.importorskip("plotly", reason="the extra `report` is not installed: plotly")
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed: matplotlib")
    from robot_perf.render.html import report_html
    from robot_perf.render.png import report_png

    run = Run({k: np.array(v[: 3 + rows]) for k, v in BASE.columns.items()}, dict(BASE.conditions))
    assert report_html([("x", run)]).startswith("<!doctype html>")
    assert (report_png(run) is None) == (rows == 0)
