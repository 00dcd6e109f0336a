"""The five-rung ladder, and the utilisation numbers that it must never look at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_runs import MS, make_run

from robot_perf.analyze.utilisation import RUNGS, climb
from robot_perf.analyze.utilisation.model import Evidence, HostTime, Inside, LadderThresholds, Load, documented
from robot_perf.analyze.utilisation.numbers import cost_of_sampling, host_time, neighbours, readings
from robot_perf.analyze.utilisation.of_run import CUPTI, MARKS, busy_of, evidence_of, load_of
from robot_perf.tasks.profiling.diagnose import DiagnoseRequest, diagnose_file

TRACES = Path(__file__).resolve().parents[2] / "reports" / "nvidia-h200" / "diagnose"
S = 1_000_000_000

FULL = Load(8.0, 0.0, 8, "request", "a gauge", 10.0, 0.8)
GPU = Inside("a trace", host_pct=2.0, transfer_pct=1.0, communication_pct=0.0, dependency_pct=3.0, gpu_pct=94.0, unknown_pct=0.0)  # fmt: skip
HOST = HostTime(5.0, 0.0, 0, 0.5, 0.0, 99.0)
ALL_CLEAR = Evidence(FULL, GPU, HOST, neighbours=0, gpus=1)


def outcomes(evidence: Evidence) -> list[str]:
    return [f.outcome for f in climb(evidence).rungs]


def test_only_when_nothing_else_is_found_the_kernels_are():
    ladder = climb(ALL_CLEAR)
    assert [f.rule for f in ladder.rungs] == list(RUNGS)
    assert [f.outcome for f in ladder.rungs] == ["clean"] * 4 + ["found"]
    assert ladder.found is not None and ladder.found.share == 94.0
    assert ladder.not_asked == ()


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (1, {"load": replace(FULL, running=4.0)}),
        (2, {"load": replace(FULL, waiting=0.8)}),
        (3, {"inside": replace(GPU, host_pct=20.0)}),
        (3, {"host": replace(HOST, quota_share=1.0)}),
        (3, {"host": replace(HOST, queue_share=10.0)}),
        (3, {"host": replace(HOST, steal_share=5.0)}),
        (3, {"host": replace(HOST, clock_share=79.9)}),
        (3, {"on_cpu": True}),
        (4, {"inside": replace(GPU, transfer_pct=20.0)}),
        (4, {"inside": replace(GPU, communication_pct=20.0)}),
        (4, {"neighbours": 1}),
    ],
)
def test_each_rung_stops_the_climb_at_its_threshold(number: int, change: dict[str, Any]):
    ladder = climb(replace(ALL_CLEAR, **change))
    assert [f.outcome for f in ladder.rungs] == ["clean"] * (number - 1) + ["found"]
    assert ladder.not_asked == tuple(RUNGS)[number:]
    assert ladder.headline.startswith(f"rung {number}, ")
    assert ladder.rungs[-1].fixes and ladder.rungs[-1].confirm


@pytest.mark.parametrize(
    "change",
    [
        {"load": replace(FULL, running=4.1)},
        {"load": replace(FULL, waiting=0.79)},
        {"inside": replace(GPU, host_pct=19.9)},
        {"host": replace(HOST, quota_share=0.99)},
        {"host": replace(HOST, queue_share=9.9)},
        {"host": replace(HOST, steal_share=4.9)},
        {"host": replace(HOST, clock_share=80.0)},
        {"inside": replace(GPU, transfer_pct=19.9)},
    ],
)
def test_just_below_its_threshold_no_rung_stops_it(change: dict[str, Any]):
    assert outcomes(replace(ALL_CLEAR, **change)) == ["clean"] * 4 + ["found"]


def test_the_first_cause_wins_over_larger_later_ones():
    bad = replace(ALL_CLEAR, load=replace(FULL, running=1.0), inside=replace(GPU, host_pct=60.0), neighbours=3)
    assert climb(bad).headline.startswith("rung 1, is there work")


def test_places_that_are_empty_while_requests_wait_are_no_lack_of_work():
    stuck = replace(ALL_CLEAR, load=replace(FULL, running=2.0, waiting=30.0))
    assert climb(stuck).rungs[0].outcome == "clean"


def test_a_loop_that_wakes_late_still_has_little_to_do():
    late = replace(ALL_CLEAR, load=Load(0.05, 0.12, 1, "step", "a Run", 50.0, 0.001))
    assert climb(late).rungs[0].outcome == "found"


def test_nothing_known_is_never_clean():
    ladder = climb(Evidence(absent={"load": "no Run", "inside": "no trace", "neighbours": "no NVML"}))
    assert [f.outcome for f in ladder.rungs] == ["can't answer"] * 5
    assert not ladder.answered
    assert "no trace" in ladder.rungs[2].reason and "no NVML" in ladder.rungs[3].reason
    assert ladder.headline == "can't answer: no rung has evidence here"


def test_an_unanswered_rung_is_named_beside_what_was_found_later():
    ladder = climb(replace(ALL_CLEAR, load=None, absent={"load": "only watched"}))
    assert ladder.found is not None and ladder.found.rule == "kernels"
    assert "rung 1, 2 could not be answered" in ladder.headline


def test_what_the_host_does_not_show_is_said():
    blind = HostTime(5.0, reasons={"clock_share": "the kernel shows no processor clock"})
    reason = climb(replace(ALL_CLEAR, host=blind)).rungs[2].reason
    assert "not readable here" in reason and "no processor clock" in reason and "quota" in reason


def test_every_threshold_has_its_source():
    assert {name for name, _, _ in documented()} == set(LadderThresholds.__dataclass_fields__)
    assert all(source for _, _, source in documented())


# a robot's loop


def test_steps_under_way_are_rate_times_duration():
    load = load_of(make_run([2 * MS] * 200, period_ns=20 * MS))
    assert load is not None
    assert load.running == pytest.approx(0.1) and load.places == 1
    assert load.rate_hz * load.duration_s == pytest.approx(load.running)  # type: ignore[operator]
    assert load.waiting < 0.01


def test_releases_that_queue_are_waiting():
    load = load_of(make_run([25 * MS] * 100, period_ns=20 * MS, overrun="queue"))
    assert load is not None
    assert load.running == 1.0
    assert load.waiting > 1


def test_a_fast_policy_at_a_low_rate_has_slack_and_no_fault():
    ladder = climb(Evidence(load=load_of(make_run([1 * MS] * 100)), inside=replace(GPU, host_pct=70, gpu_pct=24)))
    assert ladder.found is not None and ladder.found.rule == "is there work"
    assert "5.0 % of the time" in ladder.headline and "slack" in ladder.found.fixes[0].what


def test_between_half_and_full_the_larger_idle_part_decides():
    load = load_of(make_run([12 * MS] * 100))
    tight = climb(Evidence(load=load, inside=replace(GPU, host_pct=2, dependency_pct=3, unknown_pct=0)))
    loose = climb(Evidence(load=load, inside=replace(GPU, host_pct=75, gpu_pct=20)))
    assert tight.found is not None and tight.found.rule == "is there work"
    assert tight.found.evidence["idle_between_steps_pct"] == pytest.approx(40, abs=0.5)
    assert loose.found is not None and loose.found.rule == "is the CPU in the path"


def test_back_to_back_steps_have_no_load_to_judge():
    run = make_run([2 * MS] * 50, period_ns=0)
    evidence = evidence_of(run, {"samples": []}, None, "no trace was asked for")
    assert evidence.load is None and "back to back" in evidence.why("load")
    assert evidence.why("inside") == "no trace was asked for"


@pytest.mark.parametrize(
    ("trace", "rate", "period_ms", "rung", "named"),
    [
        ("launch_bound", "100", 10, "is the CPU in the path", "launch"),
        ("planted_item", "100", 10, "is the CPU in the path", "read back in mid-step"),
        ("memory_bound", "50", 20, "is the CPU in the path", "launch"),
        ("transfer_bound", "50", 20, "transfers or other GPUs", "transfers take"),
        ("compute_bound", "20", 50, "kernels", "kernels fill"),
    ],
)
def test_traces_of_known_limit_stop_at_their_rung(trace: str, rate: str, period_ms: int, rung: str, named: str):
    """Traces of an H200 (reports/nvidia-h200/diagnose), as if the step filled its period."""
    diagnosis = diagnose_file(DiagnoseRequest(TRACES / f"{trace}.json.gz", rate_hz=rate)).diagnosis
    run = make_run([round(0.97 * period_ms * MS)] * 100, period_ns=period_ms * MS)
    run = type(run)(dict(run.columns), {**run.conditions, "backend": {"name": "x", "options": {"device": "cuda:0"}}})
    ladder = climb(evidence_of(run, {"samples": []}, diagnosis, ""))
    assert ladder.found is not None and ladder.found.rule == rung
    assert named in ladder.found.reason
    busy = busy_of(diagnosis, "", run, float(rate))
    assert busy.source == CUPTI
    assert busy.all_work_pct == pytest.approx(100 * diagnosis.profile["busy_fraction"])


def test_without_a_trace_the_marks_bound_the_busy_fraction():
    run = make_run([2 * MS] * 100, period_ns=20 * MS)
    columns = {k: v.copy() for k, v in run.columns.items()}
    columns["device_ns"][:] = 1 * MS
    busy = busy_of(None, "torch is not installed", type(run)(columns, run.conditions), 50.0)
    assert busy.source == MARKS
    assert busy.all_work_pct == pytest.approx(5.0)
    assert busy_of(None, "torch is not installed", run, 50.0).reason == "torch is not installed"


# numbers out of samples


def sample(at_s: float, **gpu: Any) -> dict[str, Any]:
    return {"host": {"at_ns": int(at_s * S), "pid": None}, "gpu": {"at_ns": int(at_s * S), "took_ns": 1000, **gpu}}


def by_field(kept: dict[str, Any], low_s: float, high_s: float) -> dict[str, Any]:
    return {r.field: r for r in readings(kept, int(low_s * S), int(high_s * S))}


def test_numbers_are_cut_to_the_window():
    kept = {"source": "NVML", "samples": [sample(i, utilisation_pct=10.0 * i) for i in range(10)]}
    r = by_field(kept, 3, 6)["utilisation_pct"]
    assert (r.mean, r.low, r.high, r.n) == (45.0, 30.0, 60.0, 4)


def test_a_counter_over_the_windows_edge_is_left_out_and_long_ones_weigh_more():
    kept = {"samples": [sample(5, sm_activity_pct=90.0, gpm_ns=2 * S), sample(6, sm_activity_pct=10.0, gpm_ns=1 * S), sample(9, sm_activity_pct=40.0, gpm_ns=3 * S)]}  # fmt: skip
    r = by_field(kept, 4, 10)["sm_activity_pct"]
    assert r.mean == pytest.approx((10 * 1 + 40 * 3) / 4)
    assert r.n == 2 and r.source == "GPM counters"


def test_the_drivers_own_period_is_shown():
    kept = {"samples": [sample(i, utilisation_pct=5.0, driver_samples=[(i * 1_000_000 + j * 250_000, 10 * j) for j in range(4)]) for i in range(5)]}  # fmt: skip
    found = by_field(kept, 0, 5)
    assert found["utilisation_pct"].period_s == pytest.approx(0.25)
    assert found["driver_samples"].mean == pytest.approx(15.0)
    assert found["driver_samples"].n == 16  # the first look holds what was before the window


def test_a_field_that_is_absent_has_its_reason():
    kept = {"source": "NVML", "gpu_reasons": {"sm_activity_pct": "GPM counters: Not Supported"}, "samples": [sample(1, utilisation_pct=1.0)]}  # fmt: skip
    found = by_field(kept, 0, 2)
    assert found["sm_activity_pct"].mean is None
    assert found["sm_activity_pct"].reason == "GPM counters: Not Supported"
    assert by_field({"reason": "NVML is not there", "samples": []}, 0, 2)["utilisation_pct"].reason == "NVML is not there"  # fmt: skip


def host(at_s: float, pid: int | None, **more: Any) -> dict[str, Any]:
    return {"host": {"at_ns": int(at_s * S), "pid": pid, **more}, "gpu": None}


def test_host_shares_are_differences_within_the_window():
    kept = {"samples": [
        host(0, None, steal_ticks=0, all_ticks=0),
        host(1, 7, steal_ticks=0, all_ticks=100, throttled_ns=0, throttled_periods=0, run_ns=0, wait_ns=0, cpu_hz=1e9, cpu_max_hz=2e9),
        host(3, 7, steal_ticks=4, all_ticks=300, throttled_ns=S // 10, throttled_periods=2, run_ns=3 * S // 2, wait_ns=S // 2, cpu_hz=2e9, cpu_max_hz=2e9),
        host(99, 7, steal_ticks=100, all_ticks=400, throttled_ns=S, run_ns=9 * S, wait_ns=9 * S),
    ]}  # fmt: skip
    found = host_time(kept, 0, 10 * S)
    assert found.quota_share == pytest.approx(5.0) and found.quota_stops == 2
    assert found.queue_share == pytest.approx(25.0)
    assert found.steal_share == pytest.approx(100 * 4 / 300)
    assert found.clock_share == pytest.approx(75.0)


def test_one_sample_of_the_host_is_no_difference():
    found = host_time({"samples": [host(1, 7, run_ns=5, wait_ns=5)], "host_reasons": {"clock": "none"}}, 0, 10 * S)
    assert (found.quota_share, found.queue_share, found.steal_share, found.clock_share) == (None,) * 4
    assert found.reasons == {"clock_share": "none"}


@pytest.mark.parametrize(
    ("lists", "expected"),
    [([[10], [10, 99], [10]], 1), ([[10]], 0), ([[4242]], 0), ([[4242, 4243]], None), ([[]], None), ([], None)],
)
def test_neighbours_are_counted_only_where_numbers_can_be_compared(lists: list[list[int]], expected: int | None):
    kept = {"samples": [sample(i, processes=found) for i, found in enumerate(lists)]}
    count, why = neighbours(kept, 0, 10 * S, (10,))
    assert count == expected
    assert bool(why) == (expected is None)


def test_the_sampling_says_what_it_cost():
    kept = {"every_s": 0.5, "samples": [sample(0, utilisation_pct=1.0), sample(1, utilisation_pct=1.0)]}
    assert cost_of_sampling(kept) == {"looks": 2, "every_s": 0.5, "median_ns": 1000.0, "longest_ns": 1000}


def test_no_rung_looks_at_a_utilisation_number():
    """profiles.md section 12: the same evidence gives the same ladder, whatever NVML and GPM said."""
    run = make_run([2 * MS] * 100)
    low, high = int(run.measured["release_ns"][0]) / S, int(run.measured["end_ns"][-1]) / S
    ladders = []
    for value in (0.0, 100.0):
        at = [low + (high - low) * f for f in (0.2, 0.5, 0.8)]
        kept = {"samples": [sample(t, utilisation_pct=value, sm_activity_pct=value, gpm_ns=1) for t in at]}
        assert by_field(kept, low, high)["utilisation_pct"].mean == value
        ladders.append(climb(evidence_of(run, kept, None, "no trace")))
    assert ladders[0] == ladders[1]


def test_one_foreign_process_is_ours_only_where_ours_is_known_to_be_on_the_gpu():
    kept = {"samples": [{"gpu": {"at_ns": S, "processes": [77]}}]}
    assert neighbours(kept, 0, 10 * S, (10,)) == (0, "")
    count, why = neighbours(kept, 0, 10 * S, (10,), on_it=False)
    assert count is None and "1 process" in why
