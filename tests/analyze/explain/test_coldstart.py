"""Cold start: rows before the first call, first calls singly, and what they would have cost with the motors on."""

from __future__ import annotations

from fake_loops import MS, fake_loop, run_of

from robot_perf.analyze.explain.coldstart import cold_start


def run_with(warmup_ms, **conditions):
    """Warm-up in one grid per call, as a loop that restarts its grid after each chunk leaves it."""
    rows = []
    for i, ms in enumerate(warmup_ms):
        at = i * 1000 * MS
        rows.append(
            {"step": i - len(warmup_ms), "release_ns": at, "wake_ns": at, "start_ns": at, "end_ns": at + round(ms * MS)}
        )
    window = fake_loop([MS] * 10, period_ns=10 * MS, overrun="skip", origin_ns=10**13)
    return run_of([*rows, *window], steps=10, period_ns=10 * MS, **conditions)


def test_rows_and_calls():
    told = {"process_ns": 80 * MS, "import_ns": 300 * MS, "load_ns": 40 * MS, "capture_ns": 7 * MS}
    found = cold_start(run_with([120, 35, 2, 1, 1, 1, 1, 1], cold_start=told))
    assert found.rows == (
        ("process start", 80 * MS),
        ("import of the backend", 300 * MS),
        ("load of the policy", 40 * MS),
        ("capture", 7 * MS),
    )
    assert found.calls == (120 * MS, 35 * MS, 2 * MS)
    assert (found.from_call, found.steady_execution_ns) == (4, MS)
    assert found.first_action_ns == (80 + 300 + 40 + 7 + 120) * MS
    # 120 ms: late, and releases at 10 .. 110 fall into it; 35 ms: late, and 3 fall into it
    assert found.would_have_missed == 12 + 4


def test_first_calls_apart_from_the_warmup_grid():
    apart = cold_start(run_with([1] * 6, cold_start={"first_calls_ns": [50 * MS, 20 * MS, 20 * MS + 1]}))
    assert apart.calls == (50 * MS, 20 * MS, 20 * MS + 1)
    assert apart.would_have_missed == 5 + 2 + 3
    assert apart.from_call == 4
    same = cold_start(run_with([50, 20, 3, 1, 1, 1, 1], cold_start={"first_calls_ns": [50 * MS, 20 * MS, 3 * MS]}))
    assert same.calls == (50 * MS, 20 * MS, 3 * MS)
    assert same.would_have_missed == 5 + 2


def test_nothing_recorded():
    found = cold_start(run_with([]))
    assert (found.rows, found.calls, found.from_call, found.would_have_missed) == ((), (), None, None)
    assert found.first_action_ns is None


def test_the_recorder_knows_from_which_call_it_was_steady():
    found = cold_start(run_with([120, 35, 2, 1, 1, 1, 1, 1], warmup={"calls": 8, "steady_from_call": 3}))
    assert (found.from_call, found.steady_execution_ns) == (3, MS)
    assert cold_start(run_with([9] * 8, warmup={"steady_from_call": None})).from_call is None


def test_never_typical():
    found = cold_start(run_with([1000, 500, 250, 120, 60, 30, 15, 7]))
    assert found.from_call is None
    assert found.steady_execution_ns is None
