"""A Run meets its ceiling: shares, flags with reasons, cache residence, missing numbers."""

from __future__ import annotations

import numpy as np
import pytest

from robot_perf.analyze.ceiling.meets import (
    bench_meets_ceiling,
    meets_ceiling,
    probe_bandwidth,
    run_meets_ceiling,
    step_times_ns,
)
from robot_perf.devices import find, mode_of, with_overrides
from robot_perf.errors import UsageError
from robot_perf.run.bench_report import BenchReport, Figure, Machine, Point, PolicyHead, Row
from robot_perf.run.model import SCHEMA, Run, empty_columns
from robot_perf.specs import Budget, LoopSpec, PolicyCost, PolicySpec, to_json
from robot_perf.specs.device import ProbeReading, ProbeReport

ORIN, H100 = find("Jetson AGX Orin 64GB"), find("H100 SXM")
BIG = PolicyCost(parameters=10**9, bytes_read=2 * 10**9, flop=2 * 10**9)


def run_of(times_ns: list[int], cost: PolicyCost | None, device_ns: list[int] | None = None) -> Run:
    columns = empty_columns(len(times_ns))
    n = np.arange(len(times_ns), dtype=np.int64)
    columns["step"], columns["release_ns"], columns["wake_ns"] = n, n * 10**7, n * 10**7
    columns["start_ns"] = n * 10**7
    columns["end_ns"] = columns["start_ns"] + np.array(times_ns, dtype=np.int64)
    if device_ns is not None:
        columns["device_ns"] = np.array(device_ns, dtype=np.int64)
    policy = PolicySpec("p", "onnx", cost=cost)
    conditions = {
        "schema": SCHEMA, "policy": to_json(policy), "loop": to_json(LoopSpec(10**7, 10**7, len(times_ns))),
        "budget": to_json(Budget(10**7)), "backend": {"name": "onnxruntime"}, "state": "complete", "invalid": [],
    }  # fmt: skip
    return Run(columns, conditions)


def test_a_plausible_share_is_ok() -> None:
    s = meets_ceiling("p", 20e6, BIG, ORIN, dtype="bf16")
    assert s.bound_ns == pytest.approx(2e9 / 204.8e9 * 1e9)
    assert s.share == pytest.approx(0.488, abs=1e-3) and s.flag == "ok" and s.limited_by == "DRAM"
    assert s.achieved_bytes_s == pytest.approx(100e9) and s.achieved_flop_s == pytest.approx(100e9)
    assert s.bandwidth_share == pytest.approx(100 / 204.8)
    assert any("share this bandwidth" in n for n in s.notes)  # an integrated GPU


def test_above_100_percent_is_flagged_and_not_clamped() -> None:
    s = meets_ceiling("p", 5e6, BIG, ORIN, dtype="bf16")
    assert s.flag == "above" and (s.share or 0) > 1.9
    assert [r.split(":")[0] for r in s.reasons] == [
        "cache",
        "wrong bytes or FLOP",
        "sparsity",
        "wrong device or power mode",
    ]


def test_under_20_percent_asks_for_the_path() -> None:
    s = meets_ceiling("p", 100e6, BIG, ORIN, dtype="bf16")
    assert s.flag == "low" and s.reasons[0].startswith("wrong path")


def test_a_policy_in_cache_is_compared_with_arithmetic_alone() -> None:
    small = PolicyCost(parameters=190_860, bytes_read=763_440, flop=379_904)
    s = meets_ceiling("mlp", 50e3, small, ORIN, dtype="fp32")
    assert s.bandwidth_share is None and s.limited_by == "compute" and s.flag == "low"
    assert s.reasons[0].startswith("launch overhead")  # what bounds such a policy comes first
    assert any("L2-resident" in n for n in s.notes)


def test_unknown_numbers_are_said() -> None:
    s = meets_ceiling("p", 1e6, PolicyCost(parameters=1), H100)
    assert s.flag == "not checkable" and s.share is None and s.bound_ns is None
    assert {"bytes of a call unknown", "FLOP of a call unknown"} <= set(s.notes)
    s = meets_ceiling("p", 1e6, BIG, find("Jetson AGX Orin Industrial"))
    assert s.limited_by == "compute" and any("bandwidth unknown" in n for n in s.notes)


def test_a_probe_is_a_share_of_its_own() -> None:
    probe = ProbeReport(
        "d",
        None,
        None,
        None,
        (ProbeReading("copy", "bytes/s", 150e9, 1, 2, 3, 4), ProbeReading("gemv", "bytes/s", 173.3e9, 1, 2, 3, 4)),
    )
    assert probe_bandwidth(probe) == ("gemv", 173.3e9)
    s = meets_ceiling("p", 20e6, BIG, ORIN, dtype="bf16", probe=probe)
    assert s.probe_share == pytest.approx(100 / 173.3) and s.bandwidth_share == pytest.approx(100 / 204.8)
    assert probe_bandwidth(ProbeReport("d", None, None, None, ())) is None


def test_power_mode_and_emc_percent() -> None:
    s = meets_ceiling("p", 20e6, BIG, ORIN, mode_of(ORIN, "15W"), dtype="bf16", emc_percent=81)
    assert s.power_mode == "15W" and s.bandwidth_share == pytest.approx(100 / 136.5)
    assert any("EMC 81 %" in n for n in s.notes)


def test_a_runs_median_step() -> None:
    run = run_of([9_000_000, 6_000_000, 3_000_000], BIG)
    s = run_meets_ceiling(run, ORIN, dtype="bf16")
    assert s.measured_ns == 6_000_000 and s.measured == "execution, median"


def test_device_time_is_used_where_every_step_has_it() -> None:
    assert step_times_ns(run_of([30, 20], BIG, [15, 12]))[1] == "device time, median"
    assert step_times_ns(run_of([30, 20], BIG, [15, -1]))[1] == "execution, median"


def test_runs_that_can_not_be_compared() -> None:
    with pytest.raises(UsageError, match="bytes and FLOP of a call are unknown"):
        run_meets_ceiling(run_of([10], None), ORIN)
    with pytest.raises(UsageError, match="no finished step"):
        run_meets_ceiling(run_of([], BIG), ORIN)
    with pytest.raises(UsageError, match="must be above 0"):
        meets_ceiling("p", 0, BIG, ORIN)


def bench_of(*points: Point, parameters: int | None = 10**9) -> BenchReport:
    head = PolicyHead("p", None, "", "", parameters, "")
    return BenchReport(Machine("d"), (head,), (Row("p", "eager", "eager", points=points),))


def test_a_bench_report_point_by_point() -> None:
    paced = Point("50", 20_000_000, execution=(Figure("p50", 40_000_000),), device_p50_ns=20_000_000)
    tight = Point("tight", 0, execution=(Figure("p50", 30_000_000),))
    broken = Point("200", 5_000_000, status="INVALID", reason="fell back", execution=(Figure("p50", 1),))
    shares = bench_meets_ceiling(bench_of(paced, tight, broken), ORIN, dtype="bf16")
    assert [(s.name, s.measured_ns) for s in shares] == [
        ("p, eager, 50 Hz", 20_000_000),
        ("p, eager, tight", 30_000_000),
    ]
    assert [s.measured for s in shares] == ["device time, median", "execution, median"]
    assert shares[0].bandwidth_share == pytest.approx(100 / 204.8)
    assert "parameter count" in shares[0].notes[-1]


def test_a_bench_report_without_parameters_can_not_be_compared() -> None:
    point = Point("50", 20_000_000, execution=(Figure("p50", 40_000_000),))
    with pytest.raises(UsageError, match="no valid point"):
        bench_meets_ceiling(bench_of(point, parameters=None), ORIN)


def run_on(**conditions: object) -> Run:
    run = run_of([20_000_000], BIG)
    return Run(run.columns, {**run.conditions, **conditions})


@pytest.mark.parametrize(
    ("conditions", "device", "words"),
    [
        ({"host": {"cpu_model": "AMD EPYC"}}, H100, "measured on AMD EPYC, but this is the ceiling of H100 SXM"),
        ({"backend_facts": {"device_name": "NVIDIA H200"}}, H100, "measured on NVIDIA H200, but"),
        ({"backend_facts": {"device_name": "NVIDIA H100 80GB HBM3"}, "host": {"cpu_model": "AMD EPYC"}}, H100, ""),
        ({"host": {"device_tree_model": "NVIDIA Jetson AGX Orin Developer Kit", "cpu_model": "ARMv8"}}, ORIN, ""),
        ({"backend": {"options": {"device": "cuda:0"}}, "host": {"cpu_model": "AMD EPYC"}}, H100, ""),
        ({}, H100, ""),
        ({"host": {"cpu_model": "AMD EPYC"}}, with_overrides(None, bandwidth_bytes_s=1e12), ""),
    ],
)
def test_a_run_of_another_device_is_said_once(conditions, device, words) -> None:
    notes = [n for n in run_meets_ceiling(run_on(**conditions), device).notes if "two devices" in n]
    assert len(notes) == bool(words) and all(n.startswith(words) for n in notes)


def test_a_bench_of_another_device_is_said() -> None:
    point = Point("tight", 0, execution=(Figure("p50", 30_000_000),))
    assert "measured on d, but this is the ceiling of" in bench_meets_ceiling(bench_of(point), ORIN)[0].notes[0]
