"""Every sample file imports with the facts that its manifest states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robot_perf.analyze.diagnose.facts import launch_facts, profile_counts
from robot_perf.analyze.diagnose.intervals import union
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.diagnose.work import devices_of
from robot_perf.errors import ProfileError
from robot_perf.profiles import load
from robot_perf.profiles.model import GRAPH, KERNEL, MEMCPY, MEMSET, NULL, Profile

# file: kernels, copies and memsets, launches, span, busy, busy fraction, busy in kernels alone (of the device with most work)
TIMELINES = {
    "kineto_h200_mlp_eager_200hz.json.gz": (210, 60, 210, 145_438_437, 463_027, 0.003184, 395_832),
    "kineto_h200_mlp_compiled_200hz.json.gz": (210, 60, 210, 145_634_004, 409_366, 0.002811, 342_483),
    "kineto_h200_mlp_graph_200hz.json.gz": (210, 60, 30, 145_067_624, 479_132, 0.003303, 412_125),
    "kineto_h200_transformer_eager.json.gz": (1072, 100, 1072, 41_640_244, 3_792_289, 0.091073, 3_712_482),
    "kineto_h200_transformer_graph.json.gz": (1072, 100, 4, 4_805_805, 3_891_782, 0.809809, 3_799_558),
    "kineto_h200_camera_pageable.json.gz": (50, 20, 50, 23_679_597, 17_750_338, 0.749605, 818_462),
    "kineto_h100_bert_small.json.gz": (60, 1, 60, 3_907_825, 309_437, 0.079184, 307_197),
    "kineto_h100_timesformer.json.gz": (446, 88, 446, 159_992_427, 158_433_174, 0.990254, 154_855_595),
    "kineto_mi300x_graph_decode.json.gz": (425, 9, 5, 10_743_181, 10_717_708, 0.997629, 10_674_517),
    "kineto_a100_event_sync_int_us.json.gz": (4, 1, 4, 263_000, 51_000, 0.193916, 49_000),
    "kineto_a100_triton_one_kernel.json.gz": (1, 0, 1, 1_760, 1_760, 1.0, 1_760),
    "kineto_v100_resnet_epoch_us.json.gz": (4350, 1745, 4350, 480_029_179, 472_454_441, 0.984220, 468_153_602),
    "nsys_2022.2_a100_saxpy.sqlite": (5, 15, 5, 1_097_327_843, 373_273_080, 0.340166, 88_573_480),
    "nsys_2025.3_t4_power_iteration.sqlite": (3689, 89, 3689, 1_790_613_909, 1_132_064_724, 0.632222, 1_131_742_684),
    "nsys_2025.5_rtx3060_graph.sqlite": (3, 1, 6, 186_815, 7_808, 0.041795, 3_840),
    "nsys_2026.1_rtx3080_lazy_load.sqlite": (2, 1, 2, 22_453_059, 5_761, 0.000257, 4_129),
    "nsys_2026.2_h100x2_transfer.sqlite.gz": (3442, 926, 3346, 969_447_605, 962_890_247, 0.993236, 22_385_163),
    "nsys_synthetic_minimal.sqlite": (400, 0, 400, 403_990_000, 400_000_000, 0.990124, 400_000_000),
    "stats_a100_saxpy_cuda_kern_exec_trace.csv": (5, 0, 5, None, None, None, 88_573_480),
    "stats_rtx3060_graph_cuda_gpu_trace.csv": (3, 1, 0, None, None, None, 3_840),
}
NO_DEVICE_ROWS = {
    "kineto_h200_no_device_events.json.gz": "repeat=1",
    "kineto_cpu_only.json.gz": "profiled without CUDA",
    "nsys_2023.4_v100_no_cuda.sqlite": "-t cuda was missing",
}


@pytest.mark.parametrize("name", TIMELINES)
def test_a_timeline_has_the_facts_of_its_manifest(samples: Path, name: str) -> None:
    kernels, copies, launches, span, busy, fraction, kernel_busy = TIMELINES[name]
    profile = load(samples / name)
    works = devices_of(profile)
    counts = profile_counts(profile, works)
    assert (counts["kernels"], counts["copies"], counts["launches"]) == (kernels, copies, launches)
    work = works[0]
    only = work.ops["kind"] == KERNEL
    assert union(work.start[only], work.end[only]).length == kernel_busy
    if span is not None:
        assert work.last - work.first == span
        assert work.unions[2].length == busy
        assert counts["busy_fraction"] == pytest.approx(fraction, abs=5e-7)


@pytest.mark.parametrize("name", NO_DEVICE_ROWS)
def test_a_file_without_device_rows_says_why(samples: Path, name: str) -> None:
    profile = load(samples / name)
    assert profile.kernel_count == 0
    assert NO_DEVICE_ROWS[name] in profile.header.no_device_rows


def test_both_gpus_of_the_transfer_capture(samples: Path) -> None:
    profile = load(samples / "nsys_2026.2_h100x2_transfer.sqlite.gz")
    first, second = devices_of(profile)
    assert (first.device, second.device) == (0, 1)
    for work in (first, second):
        assert int((work.ops["kind"] == KERNEL).sum()) == 1721
        assert int(np.isin(work.ops["kind"], (MEMCPY, MEMSET)).sum()) == 463
    assert second.unions[2].length == 962_810_705
    assert second.last - second.first == 969_258_578
    kernels = profile.kernels["kind"] == KERNEL
    assert int((profile.kernels["api"][kernels] < 0).sum()) == 1810
    h2d = (profile.kernels["kind"] == MEMCPY) & (profile.kernels["copy"] == 0)
    assert int(profile.kernels["bytes"][h2d].sum()) == 50_950_507_584
    assert int(profile.kernels["dur_ns"][h2d].sum()) == 1_841_630_798
    assert [int((profile.kernels["host_mem"][h2d] == m).sum()) for m in (1, 0)] == [446, 4]
    full = profile.overhead["kind"] == 8
    assert int(full.sum()) == 198
    assert int(profile.overhead["dur_ns"][full].sum()) == 911_969_806


def test_joining_by_correlation_alone_would_link_another_process(samples: Path) -> None:
    profile = load(samples / "nsys_2026.2_h100x2_transfer.sqlite.gz")
    kernels, known = profile.kernels, set(profile.apis["corr"].tolist())
    unlinked = (kernels["kind"] == KERNEL) & (kernels["api"] < 0)
    assert sum(c in known for c in kernels["corr"][unlinked].tolist()) == 11


def launches(profile: Profile) -> dict[str, float]:
    return launch_facts(profile, devices_of(profile)[0], Thresholds())


@pytest.mark.parametrize(
    ("name", "median"),
    [
        ("kineto_h200_mlp_eager_200hz.json.gz", 8647),
        ("kineto_h200_mlp_compiled_200hz.json.gz", 8448.5),
        ("kineto_h200_mlp_graph_200hz.json.gz", 26_369),
        ("kineto_h200_transformer_eager.json.gz", 5720),
        ("kineto_h200_transformer_graph.json.gz", 310_663),
        ("kineto_h100_bert_small.json.gz", 4925),
        ("kineto_h100_timesformer.json.gz", 5255.5),
        ("kineto_v100_resnet_epoch_us.json.gz", 5221),
    ],
)
def test_median_launch_call(samples: Path, name: str, median: float) -> None:
    assert launches(load(samples / name))["call_median_ns"] == median


def test_a_full_queue_is_taken_out_of_launch_calls(samples: Path) -> None:
    facts = launches(load(samples / "nsys_2026.2_h100x2_transfer.sqlite.gz"))
    assert facts["call_median_ns"] == 5465.5
    assert facts["call_mean_ns"] == pytest.approx(278_624.6, abs=0.05)
    assert facts["call_median_net_ns"] == 5444.5
    assert facts["call_mean_net_ns"] == pytest.approx(6069.4, abs=0.05)


def test_queue_of_the_power_iteration(samples: Path) -> None:
    facts = launches(load(samples / "nsys_2025.3_t4_power_iteration.sqlite"))
    work = devices_of(load(samples / "nsys_2025.3_t4_power_iteration.sqlite"))[0]
    kernels = work.ops["kind"] == KERNEL
    queue = (work.start - work.of_call("end_ns"))[work.linked & kernels]
    assert int((queue > 0).sum()) == 3643
    assert facts["queue_median_ns"] == pytest.approx(14.9e6, rel=0.01)


def test_graph_replays_share_one_call(samples: Path) -> None:
    eager = load(samples / "kineto_h200_mlp_graph_200hz.json.gz")
    calls = eager.apis["kind"] == 1
    assert int(calls.sum()) == 30
    work = devices_of(eager)[0]
    kernels = work.ops["kind"] == KERNEL
    assert np.bincount(work.call[kernels]).max() == 7
    decode = load(samples / "kineto_mi300x_graph_decode.json.gz")
    graph = int(np.flatnonzero(decode.apis["kind"] == 1)[0])
    assert int(((decode.kernels["api"] == graph) & (decode.kernels["kind"] == KERNEL)).sum()) == 421


def test_whole_graph_intervals_are_rows_and_busy(samples: Path) -> None:
    profile = load(samples / "nsys_2025.5_rtx3060_graph.sqlite")
    graphs = profile.kernels["kind"] == GRAPH
    assert sorted(
        zip(profile.kernels["corr"][graphs].tolist(), profile.kernels["dur_ns"][graphs].tolist(), strict=True)
    ) == [(141, 1728), (142, 1376)]
    assert profile.header.graph_mode == "graph"


def test_lazy_loading_rows(samples: Path) -> None:
    profile = load(samples / "nsys_2026.1_rtx3080_lazy_load.sqlite")
    loading = np.isin(profile.overhead["kind"], (6, 7))
    assert [int((profile.overhead["kind"] == k).sum()) for k in (6, 7)] == [4, 2]
    assert int(profile.overhead["dur_ns"][loading].sum()) == 30_713_468
    calls = profile.apis["kind"] == 0
    assert sorted((profile.apis["end_ns"] - profile.apis["start_ns"])[calls].tolist()) == [17_436_399, 17_764_006]


def test_copies_of_the_saxpy_capture(samples: Path) -> None:
    table = load(samples / "nsys_2022.2_a100_saxpy.sqlite").kernels
    for copy, total in ((0, 2_621_440_000), (1, 1_310_720_000)):
        rows = (table["kind"] == MEMCPY) & (table["copy"] == copy)
        assert int(table["bytes"][rows].sum()) == total
        assert set(table["host_mem"][rows].tolist()) == {0}


def test_pageable_camera_copies(samples: Path) -> None:
    table = load(samples / "kineto_h200_camera_pageable.json.gz").kernels
    rows = (table["kind"] == MEMCPY) & (table["copy"] == 0)
    assert table["bytes"][rows].tolist() == [18_662_400] * 10
    assert int(table["dur_ns"][rows].sum()) == 16_911_970
    assert set(table["host_mem"][rows].tolist()) == {0}


def test_devices_named_in_the_files(samples: Path) -> None:
    t4 = load(samples / "nsys_2025.3_t4_power_iteration.sqlite").device(0)
    assert t4 is not None and (t4.name, t4.sm_count, t4.bandwidth_bytes_s) == ("Tesla T4", 40, 320_064_000_000)
    mi300x = load(samples / "kineto_mi300x_graph_decode.json.gz").device(2)
    assert mi300x is not None and mi300x.name is None and mi300x.sm_count == 304
    assert load(samples / "nsys_2026.2_h100x2_transfer.sqlite.gz").header.devices == ()


def test_versions(samples: Path) -> None:
    versions = {
        n: (load(samples / n).header.tool_version, load(samples / n).header.schema_version)
        for n in TIMELINES
        if n.startswith("nsys")
    }
    assert versions["nsys_2022.2_a100_saxpy.sqlite"] == ("2022.2.1.31", "2.9.1")
    assert versions["nsys_2026.2_h100x2_transfer.sqlite.gz"] == ("2026.2.1.210", "3.25.0")


# file: rows, kernels, total ns of kernels or operations
SUMMARIES = {
    "stats_rtx5090_decode_cuda_gpu_kern_sum.csv": (46, 78_016, 179_072_697),
    "stats_h100x2_cuda_gpu_kern_sum_us.csv": (41, 3442, 44_829_522),
    "stats_t4_power_cuda_kern_exec_sum.csv": (10, 3689, None),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_summaries(samples: Path, name: str) -> None:
    rows, kernels, total = SUMMARIES[name]
    profile = load(samples / name)
    assert (len(profile.kernels), profile.kernel_count) == (rows, kernels)
    if total is not None:
        assert profile.kernels["total_ns"].sum() == total


def test_api_summary_keeps_medians(samples: Path) -> None:
    calls = load(samples / "stats_h100x2_cuda_api_sum.csv").apis
    row = [calls.text("name", i) for i in range(len(calls))].index("cudaLaunchKernel")
    assert (len(calls), int(calls["count"][row]), float(calls["med_ns"][row]), float(calls["dur_ns"][row])) == (
        10,
        2788,
        5398.0,
        182_833.0,
    )
    raw = [calls.text("raw_name", i) for i in range(len(calls))]
    assert "cudaLaunchKernelExC_v11060" in raw


def test_milliseconds_note_their_resolution(samples: Path) -> None:
    profile = load(samples / "stats_t4_power_cuda_gpu_mem_time_sum_ms.csv")
    assert float(profile.kernels["total_ns"][0]) == 322_000
    assert int(profile.kernels["count"][0]) == 89
    assert profile.header.resolution_ns == 100
    assert any("100 ns" in n for n in profile.header.notes)


def test_console_output_of_two_reports(samples: Path) -> None:
    profile = load(samples / "stats_h100x2_stdout_mixed.txt")
    assert len(profile.kernels) == 4
    assert any(n.startswith("SKIPPED") and "TARGET_INFO_GPU" in n for n in profile.header.notes)


def test_nvtx_projection_lists_steps(samples: Path) -> None:
    ranges = load(samples / "stats_t4_power_nvtx_gpu_proj_sum.csv").ranges
    steps = [i for i in range(len(ranges)) if ranges.text("name", i).startswith("Step ")]
    ops = sorted(int(ranges["ops"][i]) for i in steps)
    assert (len(ranges), len(steps), ops[0], ops[1:]) == (178, 44, 24, [87] * 43)


def test_wrapper_rows_do_not_double_launches(samples: Path) -> None:
    profile = load(samples / "stats_a100_saxpy_cuda_kern_exec_trace.csv")
    assert profile.launch_count == 5
    assert profile.kernels["grid_x"].tolist() == [2] * 5
    assert profile.apis["start_ns"][0] == 924_889_832, "the outermost call is kept"


H200 = [  # id, range, ns, sm, mem, dram, l2, waves, few: ns, read, written
    (0, "stream_add", 127_072, 8.14, 87.43, 87.43, 90.20, 31.03, 123_680, 268_445_952, 243_585_536),
    (1, "gemm_8192", 1_376_128, 93.44, 94.61, 20.96, 49.28, 1, 1_375_488, 1_249_967_872, 134_847_488),
    (2, "policy", 3_648, 0.38, 1.07, 0, 0.75, 0.01, 3_872, 19_200, 0),
    (3, "policy", 2_944, 0.04, 0.55, 0.00, 0.55, 0.00, 3_008, 17_408, 0),
    (4, "policy", 3_968, 1.85, 13.44, 0.00, 2.75, 0.16, 4_032, 16_640, 0),
    (5, "policy", 2_464, 0.03, 0.64, 0.00, 0.64, 0.00, 2_624, 15_360, 0),
    (6, "policy", 3_200, 1.10, 2.44, 0, 1.36, 0.08, 3_424, 16_640, 0),
    (7, "policy", 2_368, 0.03, 0.67, 0.00, 0.67, 0.00, 2_624, 15_360, 0),
    (8, "policy", 2_784, 0.11, 0.62, 0, 0.62, 0.01, 2_976, 17_152, 0),
    (9, "up_proj", 5_088, 11.34, 22.53, 0, 22.44, 0.67, 6_048, 8_536_576, 0),
    (10, "add_8MiB", 5_024, 7.00, 40.30, 6.13, 40.75, 0.97, 5_760, 8_393_472, 256),
    (11, "sum_4MiB", 6_528, 9.60, 6.83, 0.00, 6.84, 0.24, 7_648, 4_258_048, 0),
    (12, "exp_8MiB", 4_384, 15.79, 46.12, 5.01, 46.12, 0.97, 5_920, 8_396_544, 0),
]
COLUMNS = ("dur_ns", "sm_pct", "mem_pct", "dram_pct", "l2_pct", "waves")


@pytest.mark.parametrize(
    ("name", "rows", "within"),
    [("ncu_h200_raw_base_C.csv", range(13), 0.006), ("ncu_h200_raw_auto_de_DE.csv", range(13), 0.006), ("ncu_h200_details_base_de_DE_nvtx.csv", (0, 1, 4, 9, 10), 0.006)],
)  # fmt: skip
def test_three_exports_of_one_ncu_report_agree(samples: Path, name: str, rows: range, within: float) -> None:
    table = load(samples / name).kernels
    assert len(table) == len(rows)
    for at, number in enumerate(rows):
        expected = H200[number]
        assert table.text("nvtx", at) == expected[1]
        assert int(table["dur_ns"][at]) == expected[2]
        for column, value in zip(COLUMNS[1:], expected[3:8], strict=True):
            assert float(table[column][at]) == pytest.approx(value, abs=within), (number, column)


def test_few_metrics_hold_dram_bytes_and_modes(samples: Path) -> None:
    profile = load(samples / "ncu_h200_metrics_few_stdout.csv")
    assert (profile.header.cache_control, profile.header.clock_control) == ("none", "none")
    for row in H200:
        at = row[0]
        assert (
            int(profile.kernels["dur_ns"][at]),
            float(profile.kernels["dram_read_bytes"][at]),
            float(profile.kernels["dram_write_bytes"][at]),
        ) == row[8:11]


def test_device_facts_ride_along_in_the_raw_page(samples: Path) -> None:
    for name in ("ncu_h200_raw_base_C.csv", "ncu_h200_raw_auto_de_DE.csv"):
        device = load(samples / name).device(0)
        assert device is not None and device.name == "NVIDIA H200" and device.sm_count == 132
        assert device.bandwidth_bytes_s == pytest.approx(4.814e12, rel=1e-3)
        assert device.l2_bytes == 62_914_560


@pytest.mark.parametrize(
    ("name", "us"),
    [("k0001", 6.75), ("k0003", 23.42), ("k0005", 111.81), ("k0009", 160.74), ("k0010", 94.91), ("k0019", 18.08)],
)
def test_rtx_5090_kernels(samples: Path, name: str, us: float) -> None:
    profile = load(samples / f"ncu_rtx5090_details_{name}.csv")
    assert len(profile.kernels) == 1
    assert int(profile.kernels["dur_ns"][0]) == round(us * 1000)
    assert profile.header.devices == (), "these files name no device"


def test_commas_are_thousands_in_the_t4_file(samples: Path) -> None:
    table = load(samples / "ncu_t4_copy_blocked_details_en_US.csv").kernels
    assert int(table["dur_ns"][0]) == 21_058_944
    assert float(table["waves"][0]) == 6.40


def test_a_failed_ncu_run_is_repeated_with_its_meaning(samples: Path) -> None:
    with pytest.raises(ProfileError, match="exact identifier or regex"):
        load(samples / "ncu_error_only.csv")


def test_every_sample_is_covered(samples: Path) -> None:
    named = {*TIMELINES, *NO_DEVICE_ROWS, *SUMMARIES}
    rest = {
        p.name for p in samples.iterdir() if p.is_file() and p.suffix not in (".md",) and p.name != "SHA256SUMS"
    } - named
    for name in sorted(rest):
        if name != "ncu_error_only.csv":
            assert load(samples / name).header.source == name
    assert len(rest) + len(named) == 43


def test_absent_is_null_and_listed(samples: Path) -> None:
    profile = load(samples / "nsys_synthetic_minimal.sqlite")
    assert {"process", "bytes", "registers"} <= set(profile.header.missing)
    assert set(profile.kernels["process"].tolist()) == {NULL}
