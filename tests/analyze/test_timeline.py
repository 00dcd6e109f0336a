"""The golden timelines: ten releases and coordinated omission, under both overrun policies."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from fake_loops import MS, fake_loop, golden_ten, run_of, simulated
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.analyze.summary import summarize
from robot_perf.analyze.timeline import timeline
from robot_perf.stats.burst import miss_runs, worst_window
from robot_perf.stats.ranks import Sample, parse_percentile


def ms(values) -> list[float]:
    return [v / MS for v in np.asarray(values).tolist()]


def percentiles(values, names, infinite=0):
    sample = Sample.of(np.asarray(values), infinite)
    return [sample.percentile(parse_percentile(name)) / MS for name in names]


def test_ten_releases_skip():
    line = timeline(golden_ten("skip"))
    assert line.step.tolist() == [0, 1, 2, 5, 6, 7, 8, 9]
    assert ms(line.release - line.release[0]) == [0, 10, 20, 50, 60, 70, 80, 90]
    assert ms(line.start - line.release[0]) == [0.1, 10.1, 20.1, 50.1, 60.1, 70.1, 80.1, 90.1]
    assert ms(line.end - line.release[0]) == [4.1, 14.1, 45.1, 54.1, 64.1, 74.1, 84.1, 94.1]
    assert ms(line.wakeup_ns) == ms(line.start_latency_ns) == [0.1] * 8
    assert ms(line.execution_ns) == [4, 4, 25, 4, 4, 4, 4, 4]
    assert ms(line.response_ns) == [4.1, 4.1, 25.1, 4.1, 4.1, 4.1, 4.1, 4.1]
    assert ms(line.lateness_ns) == [-5.9, -5.9, 15.1, -5.9, -5.9, -5.9, -5.9, -5.9]
    assert ms(line.tardiness_ns) == [0, 0, 15.1, 0, 0, 0, 0, 0]
    assert line.miss.tolist() == [False, False, True, True, True, False, False, False, False, False]
    assert ms(line.period_jitter_ns) == [0, 0, 20, 0, 0, 0, 0]
    assert ms(line.output_jitter_ns) == [0, 21, -1, 0, 0, 0, 0]
    assert line.has_gap.tolist() == [False, False, True, False, False, False, False]
    assert ms(line.staleness_ns) == [9.9, 9.9, 19.9, 29.9, 29.9, 9.9, 9.9, 9.9, 9.9]
    assert (line.executed, line.skipped, int(line.late.sum()), line.unfinished) == (8, 2, 1, 0)
    assert miss_runs(line.miss).longest == 3
    assert worst_window(line.miss, 5)[0] == 3
    assert line.max_gap == (31 * MS, 2)
    assert line.drift_ppm == 0
    assert percentiles(line.response_ns, ("p50", "p80", "p90"), line.infinite) == [4.1, 25.1, float("inf")]
    assert percentiles(line.response_ns, ("p90",)) == [25.1]
    summary = summarize(golden_ten("skip"))
    assert summary.utilisation_mean == pytest.approx(0.6625)
    assert (summary.misses, summary.miss_rate, summary.late, summary.skipped) == (3, 0.3, 1, 2)


def test_ten_releases_queue():
    line = timeline(golden_ten("queue"))
    assert line.step.tolist() == list(range(10))
    assert line.waited.tolist() == [True] * 3 + [False] * 3 + [True] * 4
    assert ms(line.start - line.release[0])[3:7] == [45.1, 49.1, 53.1, 60.1]
    assert ms(line.end - line.release[0])[3:7] == [49.1, 53.1, 57.1, 64.1]
    assert ms(line.start_latency_ns)[3:7] == [15.1, 9.1, 3.1, 0.1]
    assert ms(line.response_ns)[3:7] == [19.1, 13.1, 7.1, 4.1]
    assert ms(line.lateness_ns)[3:7] == [9.1, 3.1, -2.9, -5.9]
    assert ms(line.period_jitter_ns)[2:6] == [15, -6, -6, -3]
    assert ms(line.output_jitter_ns)[2:6] == [-6, -6, -6, -3]
    assert ms(line.staleness_ns)[2:6] == [19.9, 29.9, 4.9, 6.9]
    assert np.flatnonzero(line.miss).tolist() == [2, 3, 4]
    assert len(line.wakeup_ns) == 7
    assert percentiles(line.response_ns, ("p50", "p80", "p90")) == [4.1, 13.1, 19.1]
    summary = summarize(golden_ten("queue"))
    assert summary.utilisation_mean == pytest.approx(0.61)
    assert (summary.executed, summary.skipped, summary.misses, summary.longest_miss_run) == (10, 0, 3, 3)
    assert (summary.queue.without_wait, summary.queue.deepest_backlog, summary.queue.deepest_at) == (3, 2, 3)


def stalled(overrun):
    execution = np.full(10_000, MS // 2)
    execution[5000] = 1000 * MS
    return timeline(simulated(execution.tolist(), period_ns=MS, overrun=overrun))


NAMES = ("p50", "p90", "p99", "p99.9", "p100")


def table(values, infinite=0):
    sample = Sample.of(values, infinite)
    return [sample.percentile(Fraction(p) / 100) / MS for p in ("50", "90", "99", "99.9", "100")]


def test_coordinated_omission_queue():
    line = stalled("queue")
    assert table(line.execution_ns) == [0.5, 0.5, 0.5, 0.5, 1000]
    assert table(line.response_ns) == [0.5, 500, 950, 995, 1000]
    assert int(line.miss.sum()) == 1998
    assert int((line.execution_ns > MS).sum()) == 1


def test_coordinated_omission_skip():
    line = stalled("skip")
    infinity = float("inf")
    assert (line.executed, line.skipped, int(line.late.sum())) == (9001, 999, 1)
    assert table(line.response_ns) == [0.5, 0.5, 0.5, 0.5, 1000]
    assert table(line.response_ns, line.infinite) == [0.5, 0.5, infinity, infinity, infinity]
    assert int(line.miss.sum()) == 1000
    assert line.miss.mean() == 0.1


def test_a_deadline_met_exactly_is_a_hit():
    on_time = timeline(simulated([10 * MS] * 5, period_ns=10 * MS))
    assert not on_time.miss.any()
    assert on_time.executed == 5
    one_ns_over = timeline(simulated([10 * MS] * 2 + [10 * MS + 1] + [10 * MS] * 4, period_ns=10 * MS))
    assert np.flatnonzero(one_ns_over.miss).tolist() == [2, 3]
    assert one_ns_over.step.tolist() == [0, 1, 2, 4, 5, 6]


def test_first_and_last_release():
    first = timeline(simulated([25 * MS] + [MS] * 4, period_ns=10 * MS))
    assert np.flatnonzero(first.miss).tolist() == [0, 1, 2]
    # the releases that the last job swallows have no row at all: they count by the number scheduled
    last = timeline(simulated([MS] * 3 + [25 * MS, MS, MS], period_ns=10 * MS))
    assert last.step.tolist() == [0, 1, 2, 3]
    assert (last.skipped, np.flatnonzero(last.miss).tolist()) == (2, [3, 4, 5])


def test_never_finished_is_a_miss_and_no_skip():
    rows = fake_loop([MS] * 4, period_ns=10 * MS, overrun="skip")
    rows[2]["end_ns"] = -1
    line = timeline(run_of(rows, steps=4, period_ns=10 * MS))
    assert (line.executed, line.unfinished, line.skipped) == (3, 1, 0)
    assert line.miss.tolist() == [False, False, True, False]


def test_an_interrupted_run_counts_the_releases_it_reached():
    rows = fake_loop([MS] * 4, period_ns=10 * MS, overrun="skip")
    stopped = timeline(run_of(rows, steps=100, period_ns=10 * MS, state="interrupted by SIGINT", reached=4))
    assert (stopped.releases, stopped.scheduled, stopped.skipped, int(stopped.miss.sum())) == (4, 100, 0, 0)
    flying = {"step": 4, "release_ns": 0, "start_ns": 1}
    hung = timeline(run_of(rows, steps=100, period_ns=10 * MS, state="the policy hung", reached=4, in_flight=flying))
    assert (hung.releases, hung.unfinished, np.flatnonzero(hung.miss).tolist()) == (5, 1, [4])
    empty = timeline(run_of([], steps=100, period_ns=10 * MS, state="interrupted in warm-up"))
    assert (empty.releases, empty.executed) == (0, 0)
    assert len(empty.staleness_ns) == len(empty.backlog_ns) == 0


def test_drift_is_told_apart_from_jitter():
    rows = [
        {"step": k, "release_ns": k * MS, "wake_ns": -1, "start_ns": k * MS + k * 20, "end_ns": k * MS + k * 20 + 1000}
        for k in range(100)
    ]
    line = timeline(run_of(rows, steps=100, period_ns=MS, loop={"shape": "sleep-rest"}))
    assert line.drift_ppm == pytest.approx(20)


def test_warmup_rows_are_in_no_metric():
    rows = fake_loop([MS] * 5, period_ns=10 * MS, overrun="skip")
    cold = [{"step": -1, "release_ns": 0, "wake_ns": 0, "start_ns": 0, "end_ns": 999 * MS}]
    line = timeline(run_of(cold + rows, steps=5, period_ns=10 * MS))
    assert line.executed == 5
    assert max(line.execution_ns) == MS


executions = st.lists(st.integers(0, 50), min_size=1, max_size=60)


@given(executions, st.sampled_from(["skip", "queue"]), st.integers(0, 3))
def test_every_release_is_accounted_for_once(execution, overrun, wake):
    """period 10: misses are late jobs and releases without a row; the denominator is what was scheduled."""
    line = timeline(simulated(execution, period_ns=10, overrun=overrun, wake_delay_ns=wake))
    assert line.executed + line.skipped == len(execution)
    assert int(line.miss.sum()) == int(line.late.sum()) + line.skipped
    assert (line.response_ns == line.start_latency_ns + line.execution_ns).all()
    assert (line.wakeup_ns == wake).all()
    assert overrun == "skip" or line.skipped == 0
    assert (line.staleness_ns >= 0).all()
    assert len(line.period_jitter_ns) == max(0, line.executed - 1)
    if overrun == "skip":
        before = np.concatenate(([line.release[0]], line.end[:-1]))
        assert (line.release >= before).all()  # a job starts on the first grid point at or after the finish


@given(executions, st.integers(0, 200))
def test_misses_fall_as_the_deadline_grows(execution, deadline):
    runs = [simulated(execution, period_ns=10, deadline_ns=d) for d in (deadline, deadline + 5)]
    tight, loose = (int(timeline(run).miss.sum()) for run in runs)
    assert tight >= loose


def _started(late_ns):
    """A run on a grid of 1 ms whose step k starts `late_ns[k]` after its release."""
    rows = [
        {"step": k, "release_ns": k * MS, "wake_ns": -1, "start_ns": k * MS + d, "end_ns": k * MS + d + 1000}
        for k, d in enumerate(late_ns)
    ]
    return timeline(run_of(rows, steps=len(rows), period_ns=MS))


@pytest.mark.parametrize(("at", "seen"), [(0, -61), (50, 20), (99, 101)])
def test_one_late_step_at_an_end_is_no_drift_to_the_resistant_line(at, seen):
    late = [20 * k for k in range(100)]
    late[at] = 20 * at + 8_000
    line = _started(late)
    assert line.drift_ppm == pytest.approx(seen, abs=1) and line.resistant_drift_ppm == pytest.approx(20, abs=1)


@pytest.mark.parametrize("steps", [10, 1000])
def test_scattered_wake_ups_tell_no_drift(steps):
    """Ten steps whose wake-ups scatter by 100 µs read as a clock that is wrong by hundreds of ppm."""
    line = _started(np.random.default_rng(steps).integers(100_000, 200_000, steps).tolist())
    assert line.drift_ppm is not None and line.resistant_drift_ppm is None


def test_a_handful_of_steps_tells_no_drift():
    line = _started([1000 * k for k in range(8)])
    assert line.drift_ppm == pytest.approx(1000) and line.resistant_drift_ppm is None
