"""The one-line graphs: their width, and that no late or lost release is left out of them."""

from __future__ import annotations

import numpy as np
import pytest
from fake_runs import MS, executions, make_run
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.render.parts.graphs import BARS, DEADLINE, LATE, LOST, ON_TIME, histogram, timeline_marks

DURATIONS = st.lists(st.integers(1, 10**10), min_size=1, max_size=60)


@given(DURATIONS, st.integers(1, 10**10), st.integers(5, 100))
def test_histogram_shows_the_deadline_once_and_each_side_that_has_steps(values, deadline, cells):
    response = np.array(values, np.int64)
    bars = histogram(response, deadline, cells)
    assert len(bars) == cells
    assert bars.count(DEADLINE) == 1
    left, right = bars.split(DEADLINE)
    assert set(left + right) <= set(BARS + " ")
    assert bool(right.strip()) == bool((response > deadline).any())
    assert bool(left.strip()) == bool((response <= deadline).any())


def test_a_single_step_among_thousands_is_drawn():
    response = np.array([MS] * 10_000 + [19 * MS], np.int64)
    assert histogram(response, 20 * MS, 60).rstrip(DEADLINE).rstrip().endswith("▁")


@pytest.mark.parametrize("cells", [1, 7, 40, 100])
def test_timeline_of_late_and_lost_releases(cells):
    run = make_run(executions(97, slow={50: 45 * MS}))
    marks, per_mark = timeline_marks(run, cells)
    assert len(marks) == min(cells, run.scheduled)
    assert per_mark == run.scheduled / len(marks)
    assert LOST in marks


def test_each_release_has_its_mark_where_there_is_room():
    run = make_run(executions(9, slow={3: 45 * MS}))  # skips two releases
    assert timeline_marks(run, 100)[0] == ON_TIME * 3 + LATE + LOST * 2 + ON_TIME * 5


def test_releases_never_reached_are_blank():
    run = make_run(executions(5), scheduled=10, state="interrupted after 5 of 10 releases")
    assert timeline_marks(run, 10)[0] == ON_TIME * 5 + " " * 5


def test_a_complete_run_without_steps_lost_them_all():
    run = make_run([], scheduled=4)
    assert timeline_marks(run, 10)[0] == LOST * 4
