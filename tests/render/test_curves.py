"""What the figures draw: thinning keeps every miss and the extremes, percentiles are observed values."""

from __future__ import annotations

import numpy as np
import pytest
from fake_runs import MS, executions, make_run

from robot_perf.render.parts import curves
from robot_perf.render.parts.curves import curves_of
from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.model import Run


def long_run(n: int, late_every: int) -> Run:
    """A Run of n releases at 1 kHz; each late step covers the release after it."""
    base = make_run(executions(3), period_ns=MS)
    step = np.arange(n, dtype=np.int64)
    release = 10**12 + step * MS
    duration = 250_000 + (step * 7919) % 90_001
    if late_every:
        duration[::late_every] = MS + 1 + (step[::late_every] * 31) % 900_000
    columns = {name: np.full(n, -1, np.int64) for name in STEP_COLUMNS}
    columns |= {
        "step": step,
        "release_ns": release,
        "wake_ns": release,
        "start_ns": release,
        "end_ns": release + duration,
    }
    keep = np.ones(n, np.bool_)
    if late_every:
        keep[1::late_every] = False
    conditions = {**base.conditions, "loop": {**base.conditions["loop"], "steps": n}}
    return Run({k: v[keep].copy() for k, v in columns.items()}, conditions)


def test_every_late_step_and_lost_release_is_kept():
    run = long_run(100_000, 50)
    drawn = curves_of(run)
    response = run.columns["end_ns"] - run.columns["release_ns"]
    late = response > MS
    assert drawn.late_step.tolist() == run.columns["step"][late].tolist()
    assert drawn.late.tolist() == response[late].tolist()
    assert (drawn.lost_last - drawn.lost_first + 1).sum() == drawn.infinite == 2000
    assert drawn.largest == response.max()
    assert run.columns["step"][response.argmax()] == drawn.largest_step


def test_steps_on_time_become_the_band_of_each_stretch():
    run = long_run(100_000, 0)
    drawn = curves_of(run)
    response = run.columns["end_ns"] - run.columns["release_ns"]
    assert drawn.on_time_thinned
    assert len(drawn.on_time_low) < 3_000
    assert drawn.on_time_low.min() == response.min()
    assert drawn.on_time_high.max() == response.max()


def test_few_steps_stay_points():
    drawn = curves_of(make_run(executions(500)))
    assert not drawn.on_time_thinned
    assert len(drawn.on_time_step) == 500


def test_more_misses_than_a_page_can_hold_keep_their_extremes(monkeypatch):
    monkeypatch.setattr(curves, "MOST_SINGLE", 100)
    run = long_run(30_000, 3)
    drawn = curves_of(run)
    response = run.columns["end_ns"] - run.columns["release_ns"]
    assert len(drawn.late) <= 100
    assert drawn.late_total == 10_000
    assert drawn.late.max() == response.max()
    assert drawn.late.min() == response[response > MS].min()
    assert drawn.lost_runs == 10_000
    assert drawn.lost_last.max() == 29_998


def test_percentiles_are_observed_values_within_their_band():
    run = make_run(executions(3000, slow={9: 30 * MS}))
    drawn = curves_of(run)
    response = run.measured["end_ns"] - run.measured["release_ns"]
    assert set(drawn.value.tolist()) <= set(response.tolist())
    assert (np.diff(drawn.value) >= 0).all()
    assert (drawn.low <= drawn.value).all()
    known = ~np.isnan(drawn.high)
    assert known.any()
    assert not known.all()  # the end of the band lies on the skipped release
    assert (drawn.value[known] <= drawn.high[known]).all()


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_hardly_any_step(n):
    drawn = curves_of(make_run(executions(n), scheduled=max(n, 1), warmup_ns=()))
    assert len(drawn.tail) == len(drawn.value) == len(drawn.low) == len(drawn.high)
    assert drawn.n == max(n, 1)
