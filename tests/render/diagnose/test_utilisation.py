"""Utilisation as text: every number with its source, every absent one with its reason, once."""

from __future__ import annotations

import json
from pathlib import Path

from robot_perf.analyze.utilisation import climb
from robot_perf.analyze.utilisation.model import Busy, Evidence, Inside, Load, Reading, documented
from robot_perf.render.diagnose.utilisation import utilisation_document, utilisation_text

READINGS = (
    Reading("utilisation_pct", "nvidia-smi utilisation", "%", "NVML", "a kernel ran", 31.4, 0.0, 62.0, 40, 0.2),
    Reading("sm_activity_pct", "SM activity", "%", "GPM counters", "a warp was there", 2.25, 1.0, 3.0, 39, 0.5),
    Reading("pcie_rx_mib_s", "PCIe to the GPU", "MiB/s", "GPM counters", "traffic", 12.0, 10.0, 14.0, 39, 0.5),
    Reading("nvlink_rx_mib_s", "NVLink in", "MiB/s", "GPM counters", "traffic", reason="GPM counters: NVML error 3"),
    Reading("nvlink_tx_mib_s", "NVLink out", "MiB/s", "GPM counters", "traffic", reason="GPM counters: NVML error 3"),
)
BUSY = Busy("torch profiler (CUPTI), a pass of its own at the same rate", 1.8, 1.7, 60.0, 50.0, 60)
SAMPLING = {"source": "NVML", "device": "cuda:0", "identity": {"name": "NVIDIA \x1b[31mH200"}, "looks": 40, "every_s": 0.5, "median_ns": 400_000.0, "longest_ns": 2_000_000}  # fmt: skip
EVIDENCE = Evidence(Load(0.02, 0.0, 1, "step", "the Run", 50.0, 0.0004), Inside("a trace", host_pct=30.0))


def text(**changes: object) -> str:
    parts = {"ladder": climb(EVIDENCE), "readings": READINGS, "busy": BUSY, "sampling": SAMPLING, **changes}
    return utilisation_text(parts["ladder"], parts["readings"], parts["busy"], parts["sampling"], rate_hz=50.0).plain  # type: ignore[arg-type]


def test_the_first_line_answers_and_numbers_have_source_and_range():
    lines = text().splitlines()
    assert lines[0].startswith("why idle   rung 1, is there work: 50 steps/s of 400.0 µs each")
    row = next(line for line in lines if line.startswith("nvidia-smi"))
    assert "31.4 %" in row and "0.0–62.0" in row and "NVML" in row and "200.00 ms" in row
    assert any(line.startswith("busy, all device work") and "1.8 %" in line and "CUPTI" in line for line in lines)


def test_what_can_not_be_answered_is_said_once_a_reason():
    shown = " ".join(text().split())
    assert "NVLink in, NVLink out: GPM counters: NVML error 3" in shown
    assert shown.count("NVML error 3") == 1


def test_both_ends_are_explained_with_the_numbers_at_hand():
    shown = " ".join(text().split())
    assert "nvidia-smi's 31 % is the share of time in which at least one kernel ran" in shown
    assert "the SMs were active for 2.2 %" in shown
    assert "device work filled 1.8 % of the time at 50 Hz, from the kernels themselves of 60 steps" in shown
    assert "at batch 1 both ends can be right" in shown


def test_a_machine_without_a_gpu_says_so():
    shown = text(readings=(), busy=Busy("none", reason="no trace"), sampling={"source": None, "reason": "NVML is not there"})  # fmt: skip
    assert "sampled    host only: NVML is not there" in shown
    assert "busy fraction: no trace" in shown


def test_names_from_a_driver_can_not_move_the_cursor():
    assert "\x1b" not in text()


def test_the_document_is_json_and_complete():
    document = utilisation_document(climb(EVIDENCE), EVIDENCE, READINGS, BUSY, SAMPLING)
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["stopped_at"] == "is there work" and again["rungs"][0]["number"] == 1
    assert again["busy"]["within_step_pct"] == 60.0
    assert again["thresholds"]["step_share"] == 20.0


def test_the_page_lists_every_threshold_with_its_source():
    page = (Path(__file__).resolve().parents[3] / "docs" / "utilisation.md").read_text(encoding="utf-8")
    for name, value, source in documented():
        assert f"| `{name}` | {value:g} | {source} |" in page
