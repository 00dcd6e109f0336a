"""The paced loop against the worked timelines, on a fake clock: no test sleeps."""

from __future__ import annotations

from dataclasses import replace

import loop_fakes as fakes
import numpy as np
import pytest

from robot_perf.measure.clock import timer_granularity_ns
from robot_perf.measure.loop import run_window
from robot_perf.measure.step import OutputWatch, make_step
from robot_perf.specs import LoopSpec

MS = 1_000_000
TEN = LoopSpec(period_ns=10 * MS, deadline_ns=10 * MS, steps=10)


def run(loop, durations_ns, overshoot=lambda _: 0, origin=0, begin=-MS, stop=None):
    clock = fakes.FakeClock(overshoot)
    clock.time_ns = begin
    rows = fakes.Rows()
    runner = fakes.ScriptedRunner(clock, durations_ns)
    step = make_step(runner, fakes.NoObservations(), rows, clock, OutputWatch(0))
    reached = run_window(loop, origin, step, rows, clock, stop or [False])
    return rows, reached


def job(k):
    """4 ms, except the third call: 25 ms."""
    return (25 if k == 2 else 4) * MS


def test_skip_timeline():
    rows, reached = run(TEN, job, overshoot=lambda _: MS // 10)
    assert rows.column("step") == [0, 1, 2, 5, 6, 7, 8, 9]
    assert reached == 10
    start = [s / MS for s in rows.column("start_ns")]
    assert start == [0.1, 10.1, 20.1, 50.1, 60.1, 70.1, 80.1, 90.1]
    assert [e / MS for e in rows.column("end_ns")] == [4.1, 14.1, 45.1, 54.1, 64.1, 74.1, 84.1, 94.1]
    assert all(w == s for w, s in zip(rows.column("wake_ns"), rows.column("start_ns"), strict=True))


def test_queue_timeline():
    rows, reached = run(replace(TEN, overrun="queue"), job, overshoot=lambda _: MS // 10)
    assert rows.column("step") == list(range(10))
    assert reached == 10
    assert [s / MS for s in rows.column("start_ns")] == [0.1, 10.1, 20.1, 45.1, 49.1, 53.1, 60.1, 70.1, 80.1, 90.1]
    assert [w == -1 for w in rows.column("wake_ns")] == [False] * 3 + [True] * 3 + [False] * 4
    assert sum(w != -1 for w in rows.column("wake_ns")) == 7


def test_coordinated_omission():
    loop = LoopSpec(period_ns=MS, deadline_ns=MS, steps=10_000)
    duration = lambda k: 1000 * MS if k == 5000 else MS // 2  # noqa: E731
    skip, _ = run(loop, duration)
    assert len(skip.rows) == 9001
    queue, _ = run(replace(loop, overrun="queue"), duration)
    late = sum(r["end_ns"] - r["release_ns"] > MS for r in queue.rows)
    assert (len(queue.rows), late) == (10_000, 1998)


def test_a_finish_exactly_on_a_grid_point_skips_nothing():
    rows, _ = run(TEN, lambda k: 10 * MS if k == 0 else MS)
    assert rows.column("step") == list(range(10))
    rows, _ = run(TEN, lambda k: 10 * MS + 1 if k == 0 else MS)
    assert rows.column("step") == [0, *range(2, 10)]


def test_trailing_skips_end_the_window():
    rows, reached = run(TEN, lambda k: 35 * MS if k == 8 else MS)
    assert rows.column("step") == list(range(9))
    assert reached >= 10


@pytest.mark.parametrize("which", [0, 9])
def test_first_and_last_step_stall(which):
    rows, reached = run(TEN, lambda k: 12 * MS if k == which else MS)
    assert rows.column("step") == [k for k in range(10) if k != which + 1]
    assert reached >= 10


def test_the_grid_is_never_re_anchored():
    rows, _ = run(TEN, lambda _: MS, overshoot=lambda k: (7 * MS) if k == 3 else 0)
    assert rows.column("release_ns") == [k * 10 * MS for k in range(10)]


def test_a_late_start_is_counted_but_has_no_wakeup():
    rows, _ = run(TEN, lambda _: MS, begin=3 * MS)
    assert rows.rows[0]["wake_ns"] == -1
    assert rows.rows[0]["start_ns"] == 3 * MS


def test_stop_ends_before_the_next_step():
    stop = [False]

    def duration(k: int) -> int:
        stop[0] = k == 4
        return MS

    rows, reached = run(TEN, duration, stop=stop)
    assert rows.column("step") == [0, 1, 2, 3, 4]
    assert reached == 5


def test_sleep_after_is_slower_than_it_says():
    # 10 ms of work and a whole period of sleep after it: the published deploy loop that gives 33 Hz at "50 Hz".
    loop = LoopSpec(period_ns=20 * MS, deadline_ns=20 * MS, steps=50, shape="sleep-after")
    rows, _ = run(loop, lambda _: 10 * MS)
    starts = rows.column("start_ns")
    assert (starts[-1] - starts[0]) / 49 == 30 * MS
    assert rows.column("release_ns")[1] == 20 * MS


def test_sleep_rest_turns_each_late_wakeup_into_drift():
    loop = LoopSpec(period_ns=20 * MS, deadline_ns=20 * MS, steps=50, shape="sleep-rest")
    rows, _ = run(loop, lambda _: MS, overshoot=lambda _: MS // 10)
    starts = rows.column("start_ns")
    assert (starts[-1] - starts[0]) / 49 == 20.1 * MS


def test_tight_loop_has_no_waits():
    rows, reached = run(replace(TEN, period_ns=0), lambda _: MS)
    assert reached == 10
    assert rows.column("wake_ns") == [-1] * 10
    assert all(row["own_ns"] == 0 for row in rows.rows)


def test_own_work_is_wake_to_start_plus_end_to_ready():
    class Costly(fakes.FakeClock):
        """Every clock read takes 1 µs, so that the harness's own work can be counted by hand."""

        def now(self):
            self.time_ns += 1000
            return self.time_ns

    clock, rows = Costly(), fakes.Rows()
    clock.time_ns = -MS
    step = make_step(fakes.ScriptedRunner(clock, lambda _: MS), fakes.NoObservations(), rows, clock, OutputWatch(0))
    run_window(replace(TEN, steps=3), 0, step, rows, clock, [False])
    # wake (read) -> begin's start (read) -> start (read): 2 µs; end (read) -> ready (read): 1 µs
    assert rows.column("own_ns") == [3000, 3000, 3000]
    assert [r["end_ns"] - r["start_ns"] for r in rows.rows] == [MS + 1000] * 3


def test_nan_action_is_counted_with_its_step():
    class Nan:
        def step(self, observation):
            clock.time_ns += 1
            return [np.full((1, 3), np.nan if rows.rows[-1]["step"] == 4 else 1e30, np.float32)]

    clock, rows, watch = fakes.FakeClock(), fakes.Rows(), OutputWatch(0)
    clock.time_ns = -MS
    with np.errstate(over="ignore"):
        run_window(TEN, 0, make_step(Nan(), fakes.NoObservations(), rows, clock, watch), rows, clock, [False])
    # 1e30 squared overflows float32: the action is finite all the same, and is not counted
    assert (watch.nonfinite_steps, watch.first_nonfinite) == (1, 4)


def test_unsynchronised_device_work_is_caught():
    class Early:
        def enqueue(self, observation):
            clock.time_ns += 10

        def finish(self):
            return [np.zeros(2, np.float32)]

        def device_ns(self):
            return 123

        def pending(self):
            return True

    clock, rows, watch = fakes.FakeClock(), fakes.Rows(), OutputWatch(0)
    clock.time_ns = -MS
    run_window(TEN, 0, make_step(Early(), fakes.NoObservations(), rows, clock, watch), rows, clock, [False])
    assert watch.pending_steps == 10
    assert rows.column("device_ns") == [123] * 10


def test_stages_are_stamped_within_one_response():
    class Staged:
        stage_names = ("encoder", "policy")

        def run_stage(self, index, observation):
            clock.time_ns += (index + 1) * MS

        def outputs(self):
            return [np.zeros(2, np.float32)]

    clock, rows = fakes.FakeClock(), fakes.Rows()
    clock.time_ns = -MS
    run_window(TEN, 0, make_step(Staged(), fakes.NoObservations(), rows, clock, OutputWatch(0)), rows, clock, [False])
    first = rows.rows[0]
    assert first["stages"] == (MS, 3 * MS)
    assert first["end_ns"] == 3 * MS


def test_a_busy_machine_does_not_coarsen_the_timer():
    """Forty of fifty waits that ended in the queue for a processor made 500 Hz a rate that the timer can't express."""
    assert timer_granularity_ns(fakes.FakeClock(lambda wait: 55_000 if wait % 5 == 0 else 4 * MS)) == 56_000
