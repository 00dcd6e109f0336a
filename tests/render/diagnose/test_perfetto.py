"""Chrome traces of Runs and Profiles: valid, on one time line, with steps, phases, misses and kernels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fake_loops import MS, simulated
from made_profiles import Timeline, steady

from robot_perf.analyze.diagnose.of_run import diagnose_run
from robot_perf.errors import UsageError
from robot_perf.render.diagnose.perfetto import profile_trace, run_trace
from robot_perf.render.diagnose.text import diagnose_document, diagnose_html, diagnose_markdown, diagnose_text


def events(text: str) -> list[dict]:  # type: ignore[type-arg]
    document = json.loads(text)
    for e in document["traceEvents"]:
        assert e["ph"] in ("X", "M", "i") and isinstance(e["pid"], int) and isinstance(e["tid"], int)
        assert 0 <= e["pid"] < 2**32 and 0 <= e["tid"] < 2**32, "Perfetto reads both as unsigned 32 bits"
        if e["ph"] == "X":
            assert e["ts"] >= 0 and e["dur"] >= 0
    return document["traceEvents"]


def test_a_profile_holds_kernels_calls_ranges_and_steps_on_one_line() -> None:
    t = steady(3)
    found = events(
        profile_trace(t.profile(), (np.array([1_000_000, 2_000_000]), np.array([1_100_000, 2_200_000])), "policy_step")
    )
    by = {
        c: [e for e in found if e.get("cat") == c]
        for c in ("kernel", "cuda_runtime", "user_annotation", "robot_perf_step")
    }
    assert [len(v) for v in by.values()] == [12, 12, 3, 2]
    assert by["kernel"][0]["ts"] - by["cuda_runtime"][0]["ts"] == 9
    assert by["robot_perf_step"][1]["ts"] == 1000


def test_a_run_shows_misses_skips_and_phases() -> None:
    execution = [2 * MS] * 20
    execution[7] = 25 * MS
    run = simulated(execution, period_ns=10 * MS, wake_delay_ns=50_000)
    found = events(run_trace(run))
    assert sum(e["name"].startswith("step ") for e in found) == len(run.measured["step"])
    assert any(e["name"].startswith("missed by") for e in found)
    assert any("skipped" in e["name"] for e in found)
    assert any(e["name"] == "wake-up latency" for e in found)


def test_a_summary_has_no_time_line() -> None:
    from dataclasses import replace

    profile = Timeline().profile()
    with pytest.raises(UsageError, match="no timeline"):
        profile_trace(replace(profile, header=replace(profile.header, shape="summary")))


def test_a_run_is_diagnosed_from_what_it_holds() -> None:
    run = simulated([2 * MS] * 50, period_ns=10 * MS, wake_delay_ns=50_000)
    d = diagnose_run(run, "r.parquet")
    assert d.primary == "can't answer" and "no kernel timeline" in d.headline
    assert all(f.reason for f in d.findings)
    columns = dict(run.columns)
    start, end = columns["start_ns"], columns["end_ns"]
    for device, enqueue, primary in ((0.1, 0.8, "launch/CPU"), (0.9, 0.05, "GPU, class not measured")):
        length = end - start
        measured = type(run)(
            {
                **columns,
                "device_ns": (length * device).astype(np.int64),
                "enqueue_end_ns": start + (length * enqueue).astype(np.int64),
            },
            run.conditions,
        )
        d = diagnose_run(measured, "r.parquet")
        assert d.primary == primary
        json.dumps(diagnose_document(d), allow_nan=False)
        assert diagnose_text(d).plain and diagnose_markdown(d) and diagnose_html(d)


def test_a_fallback_counted_by_the_backend_is_found() -> None:
    run = simulated([2 * MS] * 50, period_ns=10 * MS, wake_delay_ns=50_000)
    spoiled = type(run)(run.columns, {**run.conditions, "invalid": ["3 recompilations inside the measured window"]})
    assert diagnose_run(spoiled, "r").checks[0].outcome == "found"
    assert diagnose_run(run, "r").checks[0].outcome == "clean"
