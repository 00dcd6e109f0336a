"""INVALID: every reason with its evidence, and what must not be called invalid."""

from __future__ import annotations

import numpy as np
import pytest
from fake_loops import MS, fake_loop, golden_ten, run_of, simulated

from robot_perf.analyze.validity import clock_anomaly, invalid_reasons
from robot_perf.analyze.verdict import judge
from robot_perf.errors import RunFileError

S = 1_000_000_000


def rows(n=20, overrun="skip"):
    return fake_loop([MS] * n, period_ns=10 * MS, overrun=overrun, wake_delay_ns=1000)


def reasons(rows_, steps=20, **options):
    return invalid_reasons(run_of(rows_, steps=steps, period_ns=10 * MS, **options))


def test_good_runs_are_valid():
    assert reasons(rows()) == ()
    for overrun in ("skip", "queue"):
        assert invalid_reasons(golden_ten(overrun)) == ()
        execution = np.random.default_rng(4).integers(1, 40, 300) * MS
        assert invalid_reasons(simulated(execution.tolist(), period_ns=10 * MS, overrun=overrun)) == ()


@pytest.mark.parametrize(
    ("cell", "earlier"),
    [("wake_ns", "release_ns"), ("start_ns", "wake_ns"), ("end_ns", "start_ns")],
)
def test_negative_durations_name_both_stamps(cell, earlier):
    bad = rows()
    bad[7][cell] = bad[7][earlier] - 3
    found = reasons(bad)
    expected = f"negative duration: {cell} {bad[7][cell]} lies before {earlier} {bad[7][earlier]} at step 7"
    assert any(reason.startswith(expected) for reason in found)
    assert judge(run_of(bad, steps=20, period_ns=10 * MS)).status == "INVALID"


def test_negative_durations_of_warmup_count_too():
    cold = {"step": -1, "release_ns": 0, "wake_ns": 0, "start_ns": 5, "end_ns": 4}
    assert "at step -1" in reasons([cold, *rows()])[0]


def test_overlapping_jobs():
    bad = rows()
    bad[4]["end_ns"] = bad[5]["start_ns"] + 1
    assert any("step 5 starts at" in reason for reason in reasons(bad))


def test_interrupted():
    assert reasons(rows(7), state="interrupted") == ("interrupted after 7 of 20 releases",)
    hung = "stopped after 7 of 20 releases: the policy hung: step 7 had not returned after 20 s"
    found = reasons(rows(7), state=hung, invalid=["the policy hung: step 7 had not returned after 20 s"])
    assert found == (hung,)
    assert reasons(rows(), invalid=["3 compiles inside the measured window"]) == (
        "3 compiles inside the measured window",
    )


def test_an_end_while_loading_counts_no_releases():
    words = "interrupted by SIGINT while the policy was loading"
    assert reasons([], state=words) == (words,)


def test_counts_that_do_not_agree():
    assert "1 step lies beyond the 19 scheduled releases" in reasons(rows(), steps=19)
    assert "the step numbers do not rise from row to row" in reasons([*rows(), rows()[3]])
    assert reasons(rows(), executed=20) == ()
    assert reasons(rows(), executed=21) == ("the recorder counted 21 executed steps and the Run holds 20",)
    assert "drops none" in reasons([r for r in rows(overrun="queue") if r["step"] != 5], overrun="queue")[0]


def test_rows_missing_where_the_previous_job_had_finished():
    found = reasons([r for r in rows() if r["step"] not in (5, 6)])
    assert found == ("releases 5 to 6 have no step although step 4 had finished before: rows are missing",)
    # own work after a finish makes the next step late; the loop drops no release for it
    stalled = rows()
    stalled[4]["own_ns"] = 25 * MS
    assert "rows are missing" in reasons([r for r in stalled if r["step"] not in (5, 6)])[0]
    assert "rows are missing" in reasons(rows(15))[0]


@pytest.mark.parametrize("lost", [1, 4, 7, 8, 19])
def test_one_lost_row_is_noticed(lost):
    execution = [MS] * 20
    execution[4] = 25 * MS  # covers the releases 5 and 6: the row of 4, 7 or 8 may be lost beside that gap
    whole = fake_loop(execution, period_ns=10 * MS, overrun="skip")
    assert reasons(whole) == ()
    found = reasons([r for r in whole if r["step"] != lost])
    assert len(found) == 1
    words = "releases 4 to 6 have" if lost == 4 else f"release {lost} has"
    assert found[0].startswith(words)


def test_a_finish_on_the_grid_drops_nothing():
    assert reasons(fake_loop([10 * MS] * 20, period_ns=10 * MS, overrun="skip")) == ()
    whole = fake_loop([20 * MS] * 20, period_ns=10 * MS, overrun="skip")
    assert [r["step"] for r in whole[:3]] == [0, 2, 4]
    assert reasons(whole) == ()


def test_a_step_that_skip_would_have_dropped():
    queued = fake_loop([MS] * 4 + [25 * MS] + [MS] * 15, period_ns=10 * MS, overrun="queue")
    assert reasons(queued, overrun="queue") == ()
    assert reasons(queued) == ("step 5 ran although step 4 still ran at its release, which skip drops",)


def test_a_block_may_begin_with_skipped_releases():
    assert reasons(rows()[3:]) == ()


def test_trailing_skips_are_no_missing_rows():
    run = simulated([MS] * 15 + [60 * MS] + [MS] * 4, period_ns=10 * MS)
    assert invalid_reasons(run) == ()
    assert judge(run).skipped == 4


def test_releases_off_the_grid():
    bad = rows()
    bad[9]["release_ns"] += 5
    assert "the release of step 9 is off the grid r_0 + k * 10.00 ms" in reasons(bad)
    assert reasons(bad, loop={"shape": "sleep-rest"}) == ()


def samples(rates, step_at=None, step_ns=0):
    mono = np.arange(len(rates) + 1) * S
    wall = np.concatenate(([0], np.cumsum([round(S * (1 + r)) for r in rates])))
    if step_at is not None:
        wall[step_at:] += step_ns
    return np.stack([mono, wall], axis=1).tolist()


@pytest.mark.parametrize(
    ("pairs", "invalid"),
    [
        (samples([0.0] * 30), False),
        (samples([5e-4] * 30), False),  # as fast as clock discipline may slew
        (samples([0.0] * 30, step_at=10, step_ns=3600 * S), False),  # a single step is harmless
        (samples([0.0] * 30, step_at=10, step_ns=-2 * S), False),
        (samples([0.0, 4e-3, -4e-3, 0.0] * 7), False),  # a preempted reading
        (samples([1.1e-3] * 30), True),
        (samples([-2e-3] * 3), True),
        (samples([-2e-3] * 2), False),  # too few to call it sustained
        (samples([0.0] * 20 + [2e-3] * 5), True),
        ([], False),
        ([[0, 0]], False),
        ([[5, 0], [5, 1], [6, 2], [7, 3]], True),
    ],
)
def test_clocks(pairs, invalid):
    assert (clock_anomaly(pairs) is not None) == invalid
    found = reasons(rows(), clock={"samples": pairs})
    assert bool(found) == invalid
    assert not found or found[0].startswith("clock anomaly")


@pytest.mark.parametrize(
    "damage",
    [
        {"clock": {"samples": [[1, "x"]]}},
        {"clock": 7},
        {"invalid": "text"},
    ],
)
def test_damaged_conditions_are_one_message(damage):
    with pytest.raises(RunFileError, match="is damaged"):
        reasons(rows(), **damage)
