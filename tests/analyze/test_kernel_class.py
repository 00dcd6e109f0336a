"""The Speed-Of-Light rule at its borders, sides, waves, and the predictions of the reference against real reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robot_perf.analyze.diagnose.kernel_class import classify, kernel_classes, side_of, waves_of
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.prediction import predict as p
from robot_perf.analyze.prediction.report import Launch, compare
from robot_perf.errors import UsageError
from robot_perf.profiles import load

L = Thresholds()


@pytest.mark.parametrize(
    ("sm", "mem", "waves", "kind"),
    [
        (59.9, 59.9, 0.99, "small grid"), (59.9, 59.9, 1.0, "latency"), (59.9, 59.9, None, "small grid or latency"),
        (60.0, 59.9, 0.5, "balanced"), (60.0, 50.1, 0.5, "balanced"), (60.0, 50.0, 0.5, "compute"), (50.0, 60.0, 5.0, "memory"), (50.1, 60.0, 5.0, "balanced"),
        (79.9, 10.0, 5.0, "compute"), (80.0, 10.0, 0.1, "high throughput"), (10.0, 79.9, 5.0, "memory"), (10.0, 80.0, 5.0, "high throughput"), (0.0, 0.0, 0.0, "small grid"),
    ],
)  # fmt: skip
def test_classes_at_their_borders(sm: float, mem: float, waves: float | None, kind: str) -> None:
    assert classify(sm, mem, waves, L) == kind


@pytest.mark.parametrize(
    ("kind", "sm", "mem", "dram", "l2", "l1", "side"),
    [
        ("high throughput", 8.14, 87.43, 87.43, 90.20, 30.12, "DRAM"), ("memory", 41.5, 61.83, 8.13, 61.83, 20, "L2"), ("high throughput", 93.4, 94.6, 21.0, 49.3, 98, "compute"),
        ("high throughput", 85, 82, 82, 40, 10, "DRAM"), ("high throughput", 90, 40, 40, 10, 10, "compute"), ("memory", 10, 70, None, None, 70, "side not measured"),
        ("memory", 10, 70, 20, 30, 10, "L1, shared memory or a link"), ("memory", 10, 70, 20, 30, 70.4, "L1"), ("latency", 10, 20, 20, 20, 20, None), ("compute", 70, 30, 30, 10, 10, "compute"),
    ],
)  # fmt: skip
def test_the_side_is_the_part_within_half_a_point(
    kind: str, sm: float, mem: float, dram: Any, l2: Any, l1: Any, side: str | None
) -> None:
    assert side_of(kind, sm, mem, dram, l2, l1, L) == side


def row(**given: Any) -> dict[str, Any]:
    names = (
        "waves",
        "limit_sm",
        "limit_registers",
        "limit_shared",
        "limit_warps",
        "limit_barriers",
        *(f"{s}_{a}" for s in ("grid", "block") for a in "xyz"),
    )
    return {**dict.fromkeys(names), **given}


def test_waves_without_a_launch_section() -> None:
    shape = {"grid_x": 224, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    assert waves_of(row(waves=0.97, **shape), None)[0] == 0.97
    assert waves_of(row(limit_registers=2, limit_warps=12, **shape), 170)[0] == pytest.approx(0.6588, abs=1e-4)
    assert waves_of(row(**shape), None)[0] is None
    assert waves_of(row(**{**shape, "grid_x": 100}), 132)[0] == pytest.approx(100 / 132)
    assert waves_of(row(**{**shape, "grid_x": 132 * 16}), 132)[0] == 1.0, "at most 16 blocks of 128 threads an SM"
    assert waves_of(row(**{**shape, "grid_x": 132 * 16 - 1}), 132)[0] is None, "neither proved"


BF16 = p.Ceiling("H200 SXM", 4.814e12, 989e12, 62_914_560, 1.83e9)
FP32 = p.Ceiling("H200 SXM", 4.814e12, 67e12, 62_914_560, 1.98e9)
ADD, ADD_8 = p.elementwise(64 << 20, "fp32", 4), p.elementwise(2 << 20, "fp32", 4)
GEMM, UP, LAYER = (
    p.linear(8192, 8192, 8192, "bf16", 2),
    p.linear(64, 1024, 4096, "bf16", 2),
    p.linear(1, 512, 256, "fp32", 4),
)
RAW, COLD, FEW = "ncu_h200_raw_base_C.csv", "ncu_h200_details_auto_C_cold.csv", "ncu_h200_metrics_few_stdout.csv"
WORKED = [  # file, row, expectation, ceiling, cache, floors us (m, c), us, implied DRAM, measured DRAM, outcome, words of the reason
    (RAW, 0, ADD, FP32, "none", (111.5, 1.0), 127.072, 87.8, 87.43, "confirmed", "DRAM"),
    (RAW, 1, GEMM, BF16, "none", (83.6, 1111.7), 1376.128, 6.1, 20.96, "confirmed", "compute"),
    (RAW, 9, UP, BF16, "none", (1.88, 0.54), 5.088, 36.9, 0, "confirmed", "small grid"),
    (COLD, 3, UP, BF16, "all", (1.88, 0.54), 6.11, 30.7, 29.17, "confirmed", "small grid"),
    (FEW, 9, UP, BF16, "none", (1.88, 0.54), 6.048, 31.1, None, "confirmed", "small grid"),
    (COLD, 4, ADD_8, FP32, "all", (3.49, 0.03), 5.66, 61.6, 30.98, "disagrees", "writes stayed in L2"),
    (RAW, 4, LAYER, FP32, "none", (0.11, 0.00), 3.968, 2.8, 0, "confirmed", "small grid"),
]  # fmt: skip


@pytest.mark.parametrize("case", WORKED, ids=lambda c: f"{c[0][9:17]}-{c[1]}")
def test_worked_values_of_the_reference(shared_dir: Path, case: tuple[Any, ...]) -> None:
    name, at, expected, ceiling, cache, floors, us, implied, measured, outcome, words = case
    kernel = kernel_classes(load(shared_dir / "profiles" / name), L, None)[at]
    assert kernel is not None and kernel.dur_ns is not None
    prediction = p.predict(expected, ceiling)
    digits = 1 if floors[0] > 10 else 2
    assert (round(prediction.memory_ns / 1000, digits), round(prediction.compute_ns / 1000, digits)) == pytest.approx(
        floors, abs=0.011
    )
    result = compare(prediction, Launch(kernel.name, kernel.dur_ns, kernel.kind, kernel.numbers, cache))
    assert kernel.dur_ns == round(us * 1000)
    assert result.dram.implied_pct == pytest.approx(implied, abs=0.06)
    assert result.dram.measured_pct == measured
    assert result.outcome == outcome and words in result.reason


def compared(
    shared_dir: Path, name: str, at: int, expected: p.Expectation, ceiling: p.Ceiling, cache: str | None, **more: Any
) -> Any:
    kernel = kernel_classes(load(shared_dir / "profiles" / name), L, None)[at]
    assert kernel is not None
    return compare(
        p.predict(expected, ceiling),
        Launch(kernel.name, float(kernel.dur_ns or 0), kernel.kind, kernel.numbers, cache, **more),
    )


def test_the_product_runs_below_its_peaks_clock_and_rereads(shared_dir: Path) -> None:
    r = compared(shared_dir, RAW, 1, GEMM, BF16, "none")
    assert r.compute.agrees and r.compute.implied_pct == pytest.approx(92.0, abs=0.05)
    assert "80.8 % unscaled" in r.notes[0] and "1.606 GHz" in r.notes[0]
    assert r.dram.agrees is False and r.dram.reason.startswith("re-reads: 3.4 times")


def test_replay_warms_the_cache_and_flushing_makes_a_cold_call(shared_dir: Path) -> None:
    warm = compared(shared_dir, RAW, 9, UP, BF16, "none")
    assert "L2-resident at 79 %" in warm.dram.reason and "20 passes" in warm.dram.reason
    cold = compared(shared_dir, COLD, 3, UP, BF16, "all")
    assert cold.dram.agrees and "cold call" in cold.notes[0]
    loop = compared(shared_dir, FEW, 9, UP, BF16, "none")
    assert any("the loop reads it from DRAM" in n for n in loop.notes)


def test_other_reasons_in_their_order(shared_dir: Path) -> None:
    from dataclasses import replace

    wrong = compared(shared_dir, RAW, 0, replace(ADD, grid=5), FP32, "none")
    assert wrong.outcome == "can't answer", "DRAM agrees, but the grid that was named is another kernel's"
    small = compared(shared_dir, RAW, 0, replace(p.elementwise(1 << 30, "fp32", 4), grid=65_536), FP32, "none")
    assert "below the floor" in small.reason
    grid = compared(shared_dir, RAW, 0, replace(p.elementwise(32 << 20, "fp32", 4), grid=7), FP32, "none")
    assert "grid of 65536 blocks, expected 7" in grid.reason
    cold = compared(
        shared_dir, RAW, 0, p.elementwise(20 << 20, "fp32", 4), FP32, "none", same_median_ns=30_000.0, same_count=5
    )
    assert "cold launch: 4.2 times" in cold.reason
    reread = compared(shared_dir, RAW, 0, p.elementwise(20 << 20, "fp32", 4), FP32, "none")
    assert reread.reason.startswith("re-reads")


def test_the_limit_of_a_prediction_and_its_refusals() -> None:
    assert p.predict(GEMM, BF16).limit == p.LIMIT_COMPUTE
    assert p.predict(ADD, FP32).limit == p.LIMIT_DRAM
    assert p.predict(LAYER, FP32).limit == p.LIMIT_LAUNCH
    q = p.predict(GEMM, BF16)
    assert (q.ridge, q.intensity) == (pytest.approx(205.4, abs=0.1), pytest.approx(2730.7, abs=0.1))
    with pytest.raises(UsageError):
        p.predict(p.Expectation(1, 0, 0, "bf16"), BF16)
