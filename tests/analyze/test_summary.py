"""The summary: every figure with its n and interval or the words why not; plain JSON there and back."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import MISSING, fields

import numpy as np
import pytest
from fake_loops import MS, fake_loop, golden_ten, run_of, simulated
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.analyze.distribution import distribution, suppressed
from robot_perf.analyze.summary import summarize
from robot_perf.analyze.types import Distribution, Summary
from robot_perf.render.parts.sheet import sheet_of
from robot_perf.render.parts.table import metric_table
from robot_perf.specs import from_json, to_json


def ramp(n, *, stall=None):
    execution = (MS + np.arange(n) * 100).tolist()
    for at, ns in (stall or {}).items():
        execution[at] = ns
    return simulated(execution, period_ns=10 * MS, wake_delay_ns=50_000)


def shuffled(n, *, stall=None):
    """The same steps in an order without a memory."""
    execution = (MS + np.random.default_rng(5).permutation(n) * 100).tolist()
    for at, ns in (stall or {}).items():
        execution[at] = ns
    return simulated(execution, period_ns=10 * MS, wake_delay_ns=50_000)


def test_percentiles_carry_their_interval():
    summary = summarize(shuffled(1000))
    p99 = summary.response.quantile("p99")
    at = [50_000 + MS + 100 * (rank - 1) for rank in (983, 990, 997)]
    assert [p99.low, p99.value, p99.high] == at
    assert p99.coverage == pytest.approx(0.976095, abs=5e-7)
    assert (summary.response.n, summary.response.min, summary.response.max) == (1000, 1_050_000, 1_149_900)
    assert summary.response.max_step == int(np.argmax(np.random.default_rng(5).permutation(1000)))
    assert (p99.deff, p99.open_ended) == (1, False)
    p999 = summary.response.quantile("p99.9")
    assert (p999.value, p999.reason) == (None, "not estimable (needs n >= 3688)")
    with pytest.raises(KeyError):
        summary.response.quantile("p42")


def test_the_interval_of_steps_that_are_alike_is_that_of_fewer():
    """A ramp of 1000 steps is worth few independent ones: its p99 has no end above, and says so."""
    summary = summarize(ramp(1000))
    p50, p99 = summary.response.quantile("p50"), summary.response.quantile("p99")
    independent = summarize(shuffled(1000)).response
    assert (p50.value, p99.value) == (independent.quantile("p50").value, independent.quantile("p99").value)
    assert p50.deff > 20
    assert p50.high - p50.low > 4 * (independent.quantile("p50").high - independent.quantile("p50").low)
    assert (p99.high, p99.open_ended, p99.low < independent.quantile("p99").low) == (None, True, True)
    lines = "\n".join(str(line) for line in metric_table(summary, 100))
    assert "≥ " in lines
    assert "steps are alike in a row: intervals as of so many independent steps: p50 " in lines
    assert dict(sheet_of(ramp(1000)).diagnostics)["intervals of response"].startswith(
        "as of so many independent steps: p50 "
    )
    assert dict(sheet_of(shuffled(1000)).diagnostics)["intervals of response"] == "independent steps assumed"
    assert "which the ranks contradict" in dict(sheet_of(ramp(100)).diagnostics)["intervals of response"]
    assert "alike" not in "\n".join(str(line) for line in metric_table(summarize(shuffled(1000)), 100))


def test_one_stall_does_not_hide_that_steps_are_alike():
    execution = np.where(np.arange(1000) // 50 % 2, MS, 2 * MS) + np.random.default_rng(3).integers(0, MS, 1000)
    execution[500] = 5000 * MS
    found = summarize(simulated(execution.tolist(), period_ns=10 * MS, overrun="queue")).dependence
    assert found.lag1 > 0.5
    assert found.ljung_box_p < 1e-6
    steady = np.random.default_rng(3).integers(MS, 2 * MS, 1000)
    steady[500] = 5 * MS
    assert summarize(simulated(steady.tolist(), period_ns=10 * MS)).dependence.ljung_box_p > 0.01


def test_skipped_releases_reach_the_response_percentiles_alone():
    summary = summarize(ramp(1000, stall={400: 205 * MS}))  # 20 releases dropped
    assert (summary.skipped, summary.late, summary.misses, summary.queue) == (20, 1, 21, None)
    assert (summary.response.n, summary.response.infinite) == (1000, 20)
    p99 = summary.response.quantile("p99")
    assert (p99.value, p99.reason, p99.high) == (None, "skipped", None)
    p95 = summary.response.quantile("p95")
    assert p95.value is not None
    assert p95.high is None  # 20 skipped at once are one event: an end above them would take more like it
    assert p95.deff > 3
    assert (summary.response.max, summary.response.max_step) == (None, None)
    executed = summary.response_executed
    assert (executed.n, executed.infinite, executed.max, executed.max_step) == (980, 0, 205 * MS + 50_000, 400)
    assert summary.execution.quantile("p99").value is not None
    assert summary.period_jitter.max == 200 * MS
    assert summary.period_jitter_without_gaps.n == summary.period_jitter.n - 1
    assert summary.period_jitter_without_gaps.max == 0
    assert summary.staleness.max > 200 * MS
    assert (summary.max_gap.step, summary.max_gap.value_ns > 200 * MS) == (400, True)


def test_early_steps_and_bursts_are_counted():
    quiet = summarize(ramp(100))
    assert (quiet.early_steps, quiet.bursts_after_stall) == (0, 0)
    assert not {"early steps", "burst after a stall"} & set(quiet.labels)
    caught_up = summarize(golden_ten("queue"))  # starts 4, 4 and 7 ms after the one before
    assert (caught_up.early_steps, caught_up.bursts_after_stall) == (2, 1)
    assert {"early steps", "burst after a stall"} <= set(caught_up.labels)
    dropped = summarize(golden_ten("skip"))
    assert (dropped.early_steps, dropped.bursts_after_stall) == (0, 0)


@pytest.mark.parametrize(("stall_ms", "bursts"), [(9, 0), (15, 0), (17, 1), (25, 1)])
def test_a_burst_is_two_or_more_steps_that_did_not_wait(stall_ms, bursts):
    execution = [4 * MS] * 60
    for at in (0, 20, 40):
        execution[at] = stall_ms * MS
    assert summarize(simulated(execution, period_ns=10 * MS, overrun="queue")).bursts_after_stall == 3 * bursts


def test_early_is_below_half_a_period_strictly():
    rows = fake_loop([MS] * 3, period_ns=10 * MS, overrun="skip")
    for late_ns, early in ((5 * MS, 0), (5 * MS + 1, 1)):
        rows[1] |= {"wake_ns": rows[1]["release_ns"] + late_ns, "start_ns": rows[1]["release_ns"] + late_ns}
        rows[1]["end_ns"] = rows[1]["start_ns"] + MS
        assert summarize(run_of(rows, steps=3, period_ns=10 * MS)).early_steps == early


def test_jitter_shows_its_low_side():
    summary = summarize(ramp(1000))
    names = [q.name for q in summary.period_jitter.quantiles]
    assert names == ["p1", "p50", "p90", "p95", "p99", "p99.9"]
    assert summary.output_jitter.quantile("p1").value == 100
    assert summary.release_jitter.peak_to_peak == summary.release_jitter.p99_minus_p1 == 0
    assert summary.drift_ppm == 0


def test_offered_load_above_capacity_suppresses_what_grows():
    queue = summarize(simulated([12 * MS] * 500, period_ns=10 * MS, overrun="queue"))
    assert queue.utilisation_mean == pytest.approx(1.2)
    assert queue.labels[0] == "offered load exceeds capacity"
    for grows in (queue.response, queue.start_latency, queue.lateness, queue.staleness):
        assert (grows.reason, grows.max) == ("offered load exceeds capacity", None)
        assert {q.reason for q in grows.quantiles} == {"offered load exceeds capacity"}
    assert queue.queue is None
    assert queue.execution.quantile("p50").value == 12 * MS
    assert queue.misses == 500
    skip = summarize(simulated([12 * MS] * 500, period_ns=10 * MS))
    assert "offered load exceeds capacity" in skip.labels
    assert skip.response.min == 12 * MS
    exactly = summarize(simulated([10 * MS] * 500, period_ns=10 * MS, overrun="queue"))
    assert exactly.utilisation_mean == 1
    assert "offered load exceeds capacity" not in exactly.labels


def test_windows_and_runs():
    summary = summarize(ramp(1000, stall={400: 25 * MS}))
    assert (summary.longest_miss_run, summary.longest_miss_run_at, summary.misses_per_run) == (3, 400, 3)
    assert 0 < summary.longest_run_probability < 1e-4
    worst = {w.window: w for w in summary.windows}
    assert (worst[10].misses, worst[10].first_release) == (3, 393)
    assert 0 < worst[10].probability < 0.01
    short = summarize(golden_ten("skip"))
    assert {w.window: w.misses for w in short.windows} == {10: 3, 100: None}


def test_drift_label_needs_size_and_evidence():
    rng = np.random.default_rng(1)
    steady = (MS + rng.integers(0, 100_000, 4000)).tolist()
    slower = steady[:2000] + [ns + 100_000 for ns in steady[2000:]]
    assert summarize(simulated(steady, period_ns=10 * MS)).labels == ()
    assert summarize(simulated(slower, period_ns=10 * MS)).labels[0].startswith("drift (thermal?): median response +")
    # ten steps say nothing about drift
    assert not any("drift" in label for label in summarize(golden_ten("queue")).labels)


@pytest.mark.parametrize(
    ("response", "own", "told"),
    [(1.5, 1.4, "own work between the steps +40% with it"), (0.7, 0.75, "own work between the steps -25% with it"),
     (1.5, 1.1, ""), (1.5, 0.7, ""), (1.06, 1.06, "")],
)  # fmt: skip
def test_a_drift_that_our_own_work_shares_is_the_processors(response, own, told):
    halves = [round(MS * f) for f in (1.0, response) for _ in range(500)]
    run = simulated(halves, period_ns=10 * MS)
    own_ns = np.array([round(40_000 * f) for f in (1.0, own) for _ in range(500)])
    run = dataclasses.replace(run, columns={**run.columns, "own_ns": own_ns})
    (label,) = summarize(run).labels
    assert label.startswith("drift (thermal?): median response")
    assert told in label and ("the processor's doing" in label) == bool(told)


def test_recorded_labels_pass_through():
    run = simulated([MS] * 50, period_ns=10 * MS, labels=["throttled"], warmup={"settled": False})
    assert summarize(run).labels == ("throttled", "warm-up not settled")


def test_constant_and_tiny_runs_have_a_defined_answer():
    for n in (1, 2, 3):
        summary = summarize(simulated([MS] * n, period_ns=10 * MS))
        assert summary.executed == n
        assert summary.dependence.lag1 is None
        assert summary.response.quantile("p50").reason == "not estimable (needs n >= 6)"
    empty = summarize(run_of([], steps=5, period_ns=MS, state="interrupted in warm-up"))
    assert (empty.executed, empty.releases, empty.miss_rate, empty.response.reason) == (0, 0, None, "no samples")
    never = summarize(run_of([], steps=5, period_ns=MS))
    assert (never.executed, never.skipped, never.misses, never.response.max) == (0, 5, 5, None)
    assert never.response.quantile("p50").reason == "skipped"


def test_back_to_back_runs_have_no_deadline_figures():
    rows = [{"step": k, "release_ns": k * MS, "start_ns": k * MS, "end_ns": k * MS + 900_000} for k in range(500)]
    summary = summarize(run_of(rows, steps=500, period_ns=0, deadline_ns=MS))
    assert summary.rate_asked_hz is None
    assert summary.utilisation_mean is None
    assert summary.miss_rate is None
    assert summary.drift_ppm is None
    assert summary.execution.quantile("p99").value == 900_000
    assert summary.rate_achieved_hz == pytest.approx(1000)


def test_device_time_observation_age_and_harness():
    rows = fake_loop([MS] * 400, period_ns=10 * MS, overrun="skip", wake_delay_ns=1000)
    bare = summarize(run_of(rows, steps=400, period_ns=10 * MS))
    assert bare.device is None
    assert bare.observation_age is None
    assert set(bare.not_available) == {"device time", "observation age", "starved steps"}
    for row in rows:
        row |= {"device_ns": 700_000, "own_ns": 3000 + row["step"], "observation_ns": row["start_ns"] - 2 * MS}
    rows[5]["device_ns"] = rows[6]["observation_ns"] = -1
    full = summarize(run_of(rows, steps=400, period_ns=10 * MS))
    assert (full.device.n, full.device.quantile("p99").value) == (399, 700_000)
    assert (full.observation_age.n, full.observation_age.max) == (399, 2 * MS)
    assert (full.harness.n, full.harness.min, full.harness.max) == (400, 3000, 3399)
    assert full.not_available == {}


def test_plain_json_there_and_back():
    for run in (golden_ten("skip"), ramp(1000, stall={3: 99 * MS}), run_of([], steps=0, period_ns=MS)):
        summary = summarize(run)
        text = json.dumps(to_json(summary), allow_nan=False)
        assert from_json(Summary, json.loads(text)) == summary
        document = json.loads(text)
        assert from_json(Summary, {**document, "from a later version": 1}) == summary
        required = [f.name for f in fields(Summary) if f.default is MISSING and f.default_factory is MISSING]
        for name in (required[0], required[7], required[-1]):
            lacking = {k: v for k, v in document.items() if k != name}
            with pytest.raises(TypeError):
                from_json(Summary, lacking)
    assert document["schema"] == "robot-perf/1"


def test_a_million_steps_are_summarised():
    n = 1_000_000
    step = np.arange(n)
    rng = np.random.default_rng(0)
    start = step * MS + 1000
    run = run_of([], steps=n, period_ns=MS)
    columns = {name: np.full(n, -1) for name in run.columns}
    columns |= {"step": step, "release_ns": step * MS, "wake_ns": start, "start_ns": start}
    columns["end_ns"] = start + rng.integers(100_000, 200_000, n)
    summary = summarize(type(run)(columns, run.conditions))
    assert summary.response.quantile("p99.9").value is not None
    assert summary.executed == n


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=500), st.integers(0, 40))
def test_percentiles_are_ordered_and_within_min_and_max(values, infinite):
    array = np.array(values)
    d = distribution("x", "", array, np.arange(len(values)), infinite=infinite)
    shown = [q for q in d.quantiles if q.value is not None]
    assert [q.value for q in shown] == sorted(q.value for q in shown)
    for q in shown:
        assert d.min == min(values) <= q.low <= q.value <= (q.high if q.high is not None else q.value)
        assert q.coverage >= 0.95 - 1e-9
    if not infinite:
        assert d.max == max(values) == values[d.max_step]
    assert all((q.value is None) == (q.reason is not None) for q in d.quantiles)


def test_suppressed_distributions_give_their_reason_everywhere():
    d = suppressed("x", "", 7, "why")
    assert isinstance(d, Distribution)
    assert ({q.reason for q in d.quantiles}, d.reason, d.n) == ({"why"}, "why", 7)
