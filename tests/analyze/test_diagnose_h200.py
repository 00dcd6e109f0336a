"""The policies of known limit that were profiled on an H200: their committed traces are still diagnosed right."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_perf.tasks.profiling.diagnose import DiagnoseRequest, diagnose_file

REPORTS = Path(__file__).resolve().parents[2] / "reports" / "nvidia-h200" / "diagnose"
CASES = {  # name: rate, primary of the trace, primary with counters, prediction, outcome
    "launch_bound": ("100", "launch/CPU", "launch/CPU", "gemv|kernel@linear=1x256x256,dtype=fp32"),
    "memory_bound": ("50", "GPU, class not measured", "high throughput, DRAM", "nvjet@linear=1x16384x16384,dtype=bf16"),
    "compute_bound": (
        "20",
        "GPU, class not measured",
        "high throughput, compute",
        "nvjet@linear=8192x8192x8192,dtype=bf16",
    ),
    "transfer_bound": ("50", "transfer", "transfer", "reduce_kernel@elements=388800,dtype=fp32"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_policy_of_known_limit(name: str) -> None:
    rate, primary, counted, predict = CASES[name]
    trace = REPORTS / f"{name}.json.gz"
    alone = diagnose_file(DiagnoseRequest(trace, on="H200 SXM", rate_hz=rate)).diagnosis
    assert alone.primary == primary and alone.deadline.startswith("deadline met")
    done = diagnose_file(
        DiagnoseRequest(
            trace,
            on="H200 SXM",
            rate_hz=rate,
            counters=REPORTS / f"{name}.ncu.csv",
            predict=(predict,),
            cache_control="none",
            clock_control="none",
        )
    )
    assert done.diagnosis.primary == counted
    assert [p.outcome for p in done.predictions] == ["confirmed"]


def test_the_planted_item_is_found() -> None:
    d = diagnose_file(DiagnoseRequest(REPORTS / "planted_item.json.gz", rate_hz="100")).diagnosis
    found = next(f for f in d.findings if f.rule == "sync")
    assert (found.outcome, found.concerned) == ("found", ("aten::item",))
    assert found.evidence["mid_step_reads"]["per_step"] == 8


def test_committed_traces_name_no_host() -> None:
    import gzip

    for path in REPORTS.glob("*.json.gz"):
        assert b"host_name" not in gzip.decompress(path.read_bytes())
