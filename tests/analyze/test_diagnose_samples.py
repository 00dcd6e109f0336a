"""The verdict of every sample file, its shares, and the traps that the manifest names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_perf.analyze.diagnose import RULES, SUMMARY_RULES, Diagnosis, diagnose
from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND
from robot_perf.analyze.diagnose.steps import find_steps
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.diagnose.work import devices_of
from robot_perf.devices import find
from robot_perf.profiles import load

GPU = "GPU, class not measured"
COMPONENT_RULES = {"launch/CPU", "sync", "host stage", "transfer", "communication", "dependency", "GPU"}


@pytest.fixture(scope="module")
def samples(shared_dir: Path) -> Path:
    return shared_dir / "profiles"


def of(samples: Path, name: str, **options: Any) -> Diagnosis:
    return diagnose(load(samples / name), **options)


# file: primary, also listed, steps, median window ns, shares compute / copy / communication / idle
VERDICTS = {
    "kineto_h200_mlp_eager_200hz.json.gz": ("launch/CPU", (), 30, 562_767.5, (2.4, 0.4, 0, 97.2)),
    "kineto_h200_mlp_compiled_200hz.json.gz": ("launch/CPU", (), 30, 819_877, (1.4, 0.3, 0, 98.3)),
    "kineto_h200_mlp_graph_200hz.json.gz": ("launch/CPU", (), 30, 173_296, (7.9, 1.3, 0, 90.8)),
    "kineto_h200_transformer_eager.json.gz": ("launch/CPU", (), 4, 10_236_594.5, (9.1, 0.2, 0, 90.7)),
    "kineto_h200_transformer_graph.json.gz": (GPU, ("dependency",), 4, 1_192_086.5, (79.7, 1.9, 0, 18.4)),
    "kineto_h200_camera_pageable.json.gz": ("transfer", ("launch/CPU",), 10, 2_287_740, (3.6, 73.7, 0, 22.7)),
    "kineto_h100_bert_small.json.gz": ("launch/CPU", (), 1, 4_426_114, (6.9, 0.1, 0, 93.0)),
    "kineto_h100_timesformer.json.gz": ("host stage", ("GPU",), 1, 382_535_558, (40.5, 0.9, 0, 58.6)),
    "kineto_mi300x_graph_decode.json.gz": (GPU, (), 1, 10_743_181, (99.4, 0.4, 0, 0.2)),
    "kineto_v100_resnet_epoch_us.json.gz": (GPU, (), 5, 95_663_323, (97.9, 0.9, 0, 1.2)),
    "nsys_2022.2_a100_saxpy.sqlite": ("launch/CPU", ("transfer",), 0, None, (8.1, 25.9, 0, 66.0)),
    "nsys_2025.3_t4_power_iteration.sqlite": (GPU, ("host stage",), 44, 40_891_425.5, (64.4, 0.0, 0, 35.6)),
    "nsys_2026.2_h100x2_transfer.sqlite.gz": ("transfer", (), 0, None, (2.3, 97.0, 0, 0.7)),
    "nsys_synthetic_minimal.sqlite": (GPU, (), 0, None, (99.0, 0, 0, 1.0)),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_of_a_timeline(samples: Path, name: str) -> None:
    primary, also, steps, window, shares = VERDICTS[name]
    d = of(samples, name)
    assert d.primary == primary
    found = {f.rule for f in d.findings if f.outcome == FOUND} & COMPONENT_RULES
    assert found == {"GPU" if primary == GPU else primary, *also}
    main = d.facts["devices"][0]["shares_pct"]
    assert [main[k] for k in ("compute", "copy", "communication", "idle")] == pytest.approx(shares, abs=0.06)
    step = d.facts["step"]
    assert (step["steps"] if not step["whole_capture"] else 0) == steps
    if window is not None:
        assert step["window_median_ns"] == window
    assert d.answered and {f.rule for f in d.findings} == set(RULES)


CANT_ANSWER = {
    "kineto_h200_no_device_events.json.gz": "repeat=1",
    "kineto_cpu_only.json.gz": "profiled without CUDA",
    "kineto_a100_event_sync_int_us.json.gz": "too little data",
    "kineto_a100_triton_one_kernel.json.gz": "too little data",
    "nsys_2023.4_v100_no_cuda.sqlite": "-t cuda was missing",
    "nsys_2025.5_rtx3060_graph.sqlite": "too little data",
    "nsys_2026.1_rtx3080_lazy_load.sqlite": "too little data",
    "stats_a100_saxpy_cuda_kern_exec_trace.csv": "too little data",
    "stats_rtx3060_graph_cuda_gpu_trace.csv": "too little data",
    "stats_rtx5090_decode_cuda_gpu_kern_sum.csv": "a summary has no timeline; give the sqlite export",
    "stats_h100x2_cuda_api_sum.csv": "a summary has no timeline",
    "stats_h100x2_cuda_gpu_kern_sum_us.csv": "a summary has no timeline",
    "stats_h100x2_stdout_mixed.txt": "a summary has no timeline",
    "stats_t4_power_cuda_gpu_mem_time_sum_ms.csv": "a summary has no timeline",
    "stats_t4_power_cuda_kern_exec_sum.csv": "a summary has no timeline",
    "stats_t4_power_nvtx_gpu_proj_sum.csv": "a summary has no timeline",
}


@pytest.mark.parametrize("name", CANT_ANSWER)
def test_a_file_that_cant_answer_says_why_and_what_would(samples: Path, name: str) -> None:
    d = of(samples, name)
    assert d.primary == CANT
    assert CANT_ANSWER[name] in " ".join(d.reasons)
    assert d.cant_answer and all(c.capture for c in d.cant_answer)
    assert not any(f.outcome == CLEAN for f in d.findings if f.rule in COMPONENT_RULES), "never clean without data"


def test_lazy_loading_is_cold_start_and_not_launch_bound(samples: Path) -> None:
    d = of(samples, "nsys_2026.1_rtx3080_lazy_load.sqlite")
    assert len(d.reasons) == 2 and "cold start: 77 %" in d.reasons[1]
    assert finding(d, "cold start").outcome == FOUND
    assert finding(d, "launch/CPU").outcome == CANT


def test_facts_are_shown_even_without_a_verdict(samples: Path) -> None:
    d = of(samples, "kineto_a100_event_sync_int_us.json.gz")
    assert d.facts["devices"][0]["shares_pct"]["idle"] == pytest.approx(98.4, abs=0.06)
    assert d.facts["step"]["window_median_ns"] == 3_154_000
    graph = of(samples, "nsys_2025.5_rtx3060_graph.sqlite")
    assert graph.profile["graphs"] == 2 and graph.facts["graph_mode"] == "graph"


def finding(d: Diagnosis, rule: str) -> Any:
    return next(f for f in d.findings if f.rule == rule)


def test_the_deadline_holds_although_the_step_is_host_overhead(samples: Path) -> None:
    d = of(samples, "kineto_h200_mlp_eager_200hz.json.gz", period_ns=5_000_000)
    assert d.deadline.startswith("deadline met with 89 % slack")
    step = d.facts["step"]
    assert (step["distance_median_ns"], step["slack_median_ns"], step["window_max_ns"]) == (
        pytest.approx(5_003_672, abs=20_000),
        4_454_864,
        690_980,
    )
    assert (step["gaps_per_step"], step["launches_per_step"]) == (10, 7)
    assert step["largest_gap_share_pct"] == pytest.approx(22, abs=0.5)


def test_a_missed_deadline_is_counted(samples: Path) -> None:
    d = of(samples, "kineto_h200_mlp_eager_200hz.json.gz", period_ns=500_000)
    assert d.deadline.startswith("deadline missed by ")


def test_the_profiler_step_with_its_sleep_is_not_the_step(samples: Path) -> None:
    profile = load(samples / "kineto_h200_mlp_eager_200hz.json.gz")
    steps = find_steps(profile, devices_of(profile)[0], Thresholds())
    assert steps.name == "policy_step" and steps.how == "one annotation in each ProfilerStep"
    outer = find_steps(profile, devices_of(profile)[0], Thresholds(), "ProfilerStep")
    assert np.median(outer.window_ns) > 4_500_000


def test_a_compiled_step_can_be_longer_with_less_device_time(samples: Path) -> None:
    eager, compiled = (of(samples, f"kineto_h200_mlp_{k}_200hz.json.gz") for k in ("eager", "compiled"))
    assert compiled.facts["step"]["window_median_ns"] > eager.facts["step"]["window_median_ns"]
    assert compiled.facts["devices"][0]["kernel_busy_ns"] < eager.facts["devices"][0]["kernel_busy_ns"]
    assert any("compare step times" in x.gains for x in finding(eager, "launch/CPU").fixes)


def test_one_graph_launch_a_step_is_not_told_to_use_a_graph(samples: Path) -> None:
    f = finding(of(samples, "kineto_h200_mlp_graph_200hz.json.gz"), "launch/CPU")
    assert f.reason.startswith("one graph launch a step already")
    assert not any("graph: one launch" in x.what for x in f.fixes)
    assert any("before and after the graph launch" in x.what for x in f.fixes)


def test_the_eager_transformer(samples: Path) -> None:
    d = of(samples, "kineto_h200_transformer_eager.json.gz")
    step = d.facts["step"]
    assert (step["launches_per_step"], step["gaps_per_step"]) == (268, 294)
    assert step["gap_median_ns"] == pytest.approx(30_800, abs=100)
    assert "closed loop" in d.deadline and d.facts["closed_loop"]


def test_the_graph_transformer_idles_inside_its_graph(samples: Path) -> None:
    d = of(samples, "kineto_h200_transformer_graph.json.gz")
    shares = d.facts["devices"][0]["shares_pct"]
    assert (shares["queued"], shares["host_late"]) == (pytest.approx(13.4, abs=0.06), pytest.approx(4.9, abs=0.06))
    work = devices_of(load(samples / "kineto_h200_transformer_graph.json.gz"))[0]
    assert int((work.queue_ns < 0).sum()) >= 4 * 74, "the launch call is still running when its first ops start"


def test_pageable_camera_copies_are_named(samples: Path) -> None:
    d = of(samples, "kineto_h200_camera_pageable.json.gz")
    f = finding(d, "transfer")
    assert "pageable" in f.reason and "11.0 GB/s" in f.reason
    assert "pinned" in f.fixes[0].what
    assert d.facts["devices"][0]["busy_fraction_kernels_only"] == pytest.approx(0.035, abs=0.001)


def test_video_preprocessing_is_the_host_stage(samples: Path) -> None:
    f = finding(of(samples, "kineto_h100_timesformer.json.gz"), "host stage")
    assert "preprocess" in f.concerned[0]
    assert f.evidence["range_ns"] == pytest.approx(217.5e6, rel=0.001)
    assert f.evidence["gap_ns"] == pytest.approx(218.1e6, rel=0.001)
    assert f.evidence["share_of_idle"] == pytest.approx(0.97, abs=0.005)


def test_file_output_is_the_host_stage_of_the_power_iteration(samples: Path) -> None:
    d = of(samples, "nsys_2025.3_t4_power_iteration.sqlite")
    f = finding(d, "host stage")
    assert f.concerned == ("IO #",) and f.evidence["share_of_idle"] == pytest.approx(0.99, abs=0.006)
    assert finding(d, "host ahead").outcome == FOUND
    assert d.facts["kernels"][0]["share"] == pytest.approx(0.95, abs=0.01)


def test_gaps_of_the_power_iteration(samples: Path) -> None:
    profile = load(samples / "nsys_2025.3_t4_power_iteration.sqlite")
    work = devices_of(profile)[0]
    start, end = work.unions[2].gaps(work.first, work.last)
    long = (end - start) > 1_000_000
    assert (int(long.sum()), int((end - start)[long].sum())) == (44, 652_453_545)


def test_the_two_gpu_export_is_transfer_and_not_launch(samples: Path) -> None:
    d = of(samples, "nsys_2026.2_h100x2_transfer.sqlite.gz")
    assert finding(d, "launch/CPU").outcome == CLEAN
    first, second = d.facts["devices"]
    assert (first["device"], second["device"]) == (0, 1)
    assert first["busy_fraction_all_device_work"] == pytest.approx(0.993236, abs=1e-6)
    assert first["busy_fraction_kernels_only"] == pytest.approx(0.023, abs=0.0005)
    assert "pinned host memory, 27.7 GB/s" in finding(d, "transfer").reason
    assert not any(x.what.startswith("pinned") for x in finding(d, "transfer").fixes), "it is pinned already"
    assert any("launch call" in c.reason for c in d.cant_answer), "52 % of the work is unlinked and that is said"


def test_saxpy_ranges_are_no_steps(samples: Path) -> None:
    assert of(samples, "nsys_2022.2_a100_saxpy.sqlite").facts["step"]["whole_capture"]


def test_host_ahead_windows(samples: Path) -> None:
    for name in ("kineto_v100_resnet_epoch_us.json.gz", "kineto_mi300x_graph_decode.json.gz"):
        d = of(samples, name)
        assert finding(d, "host ahead").outcome == FOUND
        assert "not latency" in d.deadline


def test_whole_seconds_of_clock_steps_are_noted(samples: Path) -> None:
    profile = load(samples / "kineto_a100_event_sync_int_us.json.gz")
    assert profile.header.resolution_ns == 1000
    assert any("clock step" in n for n in profile.header.notes)


SUMMARIES = {  # file: outcomes of the rules that a summary can answer
    "stats_rtx5090_decode_cuda_gpu_kern_sum.csv": {"short kernels": FOUND, "blocked calls": CANT, "host ahead": CANT},
    "stats_h100x2_cuda_api_sum.csv": {"short kernels": CANT, "blocked calls": FOUND, "host ahead": CANT},
    "stats_h100x2_cuda_gpu_kern_sum_us.csv": {"short kernels": CLEAN, "blocked calls": CANT, "host ahead": CANT},
    "stats_t4_power_cuda_kern_exec_sum.csv": {"short kernels": CLEAN, "blocked calls": CLEAN, "host ahead": FOUND},
    "stats_t4_power_nvtx_gpu_proj_sum.csv": {"short kernels": CANT, "blocked calls": CANT, "host ahead": CANT},
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_what_a_summary_can_answer(samples: Path, name: str) -> None:
    d = of(samples, name)
    assert {r: finding(d, r).outcome for r in SUMMARY_RULES} == SUMMARIES[name]
    assert d.answered == any(o != CANT for o in SUMMARIES[name].values())


def test_numbers_of_the_summary_rules(samples: Path) -> None:
    short = finding(of(samples, "stats_rtx5090_decode_cuda_gpu_kern_sum.csv"), "short kernels").evidence
    assert (short["time_share"], short["kernel_share"]) == (
        pytest.approx(0.841, abs=5e-4),
        pytest.approx(0.969, abs=5e-4),
    )
    assert (short["kernels"], short["mean_ns"]) == (78_016, pytest.approx(2295.3, abs=0.05))
    blocked = finding(of(samples, "stats_h100x2_cuda_api_sum.csv"), "blocked calls")
    ratios = {c["name"]: c["ratio"] for c in blocked.evidence["calls"]}
    assert ratios["cudaLaunchKernel"] == pytest.approx(34, abs=0.5)
    assert "calls blocked" in blocked.reason
    ahead = finding(of(samples, "stats_t4_power_cuda_kern_exec_sum.csv"), "host ahead").evidence
    assert ahead["queued_share"] == pytest.approx(0.988, abs=5e-4)


NCU = {  # file: (options, label of each kernel, primary)
    "ncu_rtx5090_details_k0001.csv": (["small grid"], "small grid"),
    "ncu_rtx5090_details_k0003.csv": (["memory, L2"], "memory, L2"),
    "ncu_rtx5090_details_k0005.csv": (["latency"], "latency"),
    "ncu_rtx5090_details_k0009.csv": (["latency"], "latency"),
    "ncu_rtx5090_details_k0010.csv": (["high throughput, L2"], "high throughput, L2"),
    "ncu_rtx5090_details_k0019.csv": (["memory, L2"], "memory, L2"),
    "ncu_t4_copy_blocked_details_en_US.csv": (["memory, DRAM"], "memory, DRAM"),
    "ncu_h200_raw_base_C.csv": (
        ["high throughput, DRAM", "high throughput, compute", *["small grid"] * 11],
        "high throughput, compute",
    ),
    "ncu_h200_raw_auto_de_DE.csv": (
        ["high throughput, DRAM", "high throughput, compute", *["small grid"] * 11],
        "high throughput, compute",
    ),
    "ncu_h200_details_base_de_DE_nvtx.csv": (
        ["high throughput, DRAM", "high throughput, compute", *["small grid"] * 3],
        "high throughput, compute",
    ),
    "ncu_h200_details_auto_C_cold.csv": (
        ["high throughput, DRAM", "high throughput, compute", *["small grid"] * 3],
        "high throughput, compute",
    ),
}


@pytest.mark.parametrize("name", NCU)
@pytest.mark.parametrize("on", [None, "GeForce RTX 5090"])
def test_kernel_classes(samples: Path, name: str, on: str | None) -> None:
    if on is not None and "rtx5090" not in name:
        pytest.skip("only these files name no device")
    labels, primary = NCU[name]
    d = of(samples, name, device=None if on is None else find(on))
    assert [k.label for k in d.kernels] == labels
    assert d.primary == primary
    for kernel in d.kernels:
        assert kernel.tool_verdict in (None, kernel.kind), "our class is ncu's own"


WAVES = {"k0001": 0.659, "k0003": 1.788, "k0005": 1.953, "k0009": 3.812, "k0010": 7.059, "k0019": 2.353}


@pytest.mark.parametrize("name", WAVES)
def test_waves_from_block_limits_and_the_table(samples: Path, name: str) -> None:
    d = of(samples, f"ncu_rtx5090_details_{name}.csv", device=find("GeForce RTX 5090"))
    assert d.kernels[0].numbers["waves_used"] == pytest.approx(WAVES[name], abs=5e-4)


def test_without_waves_and_sm_count_two_classes_stay_open(samples: Path) -> None:
    alone = of(samples, "ncu_h200_metrics_few_stdout.csv")
    assert [k.label for k in alone.kernels[2:]] == ["small grid or latency"] * 11
    known = of(samples, "ncu_h200_metrics_few_stdout.csv", device=find("H200 SXM"))
    open_ = [i for i, k in enumerate(known.kernels) if k.label == "small grid or latency"]
    assert open_ == [10, 12]
    assert [k.label for k in known.kernels[:2]] == ["high throughput, side not measured"] * 2


def test_time_weights_the_ncu_verdict(samples: Path) -> None:
    d = of(samples, "ncu_h200_raw_base_C.csv")
    assert d.facts["total_ns"] == 1_545_600
    assert d.facts["by_class"]["high throughput, compute"] == pytest.approx(0.890, abs=5e-4)
    assert all(finding(d, r).outcome == CANT for r in RULES if r != "GPU")


def test_low_occupancy_is_no_fault_at_high_throughput(samples: Path) -> None:
    gemm = of(samples, "ncu_h200_raw_base_C.csv").kernels[1]
    assert any("18.8 %" in n and "no fault" in n for n in gemm.notes)


def test_a_kernel_near_the_probed_bandwidth_is_done(samples: Path) -> None:
    d = of(samples, "ncu_h200_raw_base_C.csv", probed_bytes_s=4.3e12)
    assert [k.done for k in d.kernels] == [True, *[False] * 12]
    assert any("only fewer bytes help" in n for n in d.kernels[0].notes)


def test_counters_name_the_class_of_a_timeline(samples: Path) -> None:
    timeline, counters = (
        load(samples / "kineto_h200_mlp_graph_200hz.json.gz"),
        load(samples / "ncu_h200_raw_base_C.csv"),
    )
    d = diagnose(timeline, counters=counters)
    assert d.kernels and not any(c.question == "memory or compute bound" for c in d.cant_answer)
    evidence = finding(d, "GPU").evidence
    assert evidence["classes"] and 0 < evidence["counters_cover"] <= 1


def test_every_found_rule_carries_evidence_and_what_to_do(samples: Path) -> None:
    for name in (*VERDICTS, *NCU):
        for f in of(samples, name).findings:
            assert f.reason
            if f.outcome == FOUND and f.rule in COMPONENT_RULES:
                assert f.evidence and f.fixes and f.confirm, (name, f.rule)
                assert all(x.gains and x.costs for x in f.fixes)
