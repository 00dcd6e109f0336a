"""What the RMSNorm bench owes a reader who doubts it: who was left out, which regime leads, how far samples scatter, which rows were checked."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import re
from types import SimpleNamespace

import pytest
import torch
from bench_stand_in import measure

from robot_perf.cli.__main__ import main
from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference
from robot_perf.measure.kernel_bench import inputs, lock, worker
from robot_perf.measure.kernel_bench.check import judge
from robot_perf.measure.kernel_bench.points import HEADLINE, WIDE, Point, left_out
from robot_perf.measure.kernel_bench.providers import OURS, PROVIDERS
from robot_perf.measure.kernel_bench.summary import summarise
from robot_perf.tasks import kernels as task

EVERYWHERE = "headline, the wide sweep's peers alone"


def at(m: int, us: dict[str, float], by: str, d: int = 1024) -> dict[str, object]:
    """A point with one replay in each of three turns."""
    providers = {
        name: {"samples_us": {"warm": [t] * 3, "cold": [t] * 3}, "cold_by": by, "order": "fp32", "max_ulp": 0.5,
               "rotated_bytes": 5_000_000, "sets": 3}
        for name, t in us.items()
    }  # fmt: skip
    return {"op": "rms_norm", "m": m, "d": d, "dtype": "bfloat16", "weight": "bfloat16", "bytes": 4 * m * d,
            "providers": providers, "copy": {}}  # fmt: skip


FRAME = {
    "schema": "robot-perf/rmsnorm-1", "gpu": {"name": "x", "capability": "9.0", "sm": 1, "l2_bytes": 1}, "torch": "2", "rounds": 3,
    "replays": 1, "providers": {}, "left_out": {"torch.compile": {"why": "slow to compile; led at 9 of the 30 headline points of the report before", "points": 1}},
}  # fmt: skip


def mixed() -> tuple[dict[str, object], dict[str, object]]:
    """(report, summary) of two headline points, of which torch.compile leads at one, and two others where it doesn't run."""
    points = [
        at(1, {OURS: 1.0, "torch.compile": 1.2, "liger": 1.6}, "flush"),
        at(4096, {OURS: 10.0, "torch.compile": 11.0, "liger": 10.5}, "rotation"),
        at(2, {OURS: 1.0, "liger": 2.0}, "flush"),
        at(8192, {OURS: 20.0, "liger": 21.0}, "rotation"),
    ]
    report = FRAME | {"points": points}
    return report, summarise(report, [("rms_norm", 1, 1024), ("rms_norm", 4096, 1024)], 4800.0)


def test_how_often_a_peer_that_is_left_out_leads_is_counted_in_the_report_itself():
    report, summary = mixed()
    assert summary["left_out"] == {"torch.compile": {"led": 1, "of": 2}}
    means = summary["geometric_mean"][OURS]
    assert means["headline"]["value"] == pytest.approx(math.sqrt(1.2 * 1.05))
    assert means[EVERYWHERE]["value"] == pytest.approx(math.sqrt(1.6 * 1.05))
    page = task.markdown({"report": report, "summary": summary}, "x")
    assert "compile at 1 of 2. Without them the headline's mean is 1.296 instead of 1.122" in page
    assert "slow to compile; here the fastest peer at 1 of 2 headline points" in page
    assert "led at" not in page
    assert not [why for why, _ in left_out().values() if re.search(r"\d of ", why)]  # a count here is another report's


def test_without_a_wide_sweep_nobody_was_left_out(stand_in):
    report, _ = measure(points=HEADLINE[:2], left_out={"liger": ("slow", frozenset(WIDE))})
    found = task.document(report, spec_gb_s=4800.0)
    assert EVERYWHERE not in found["summary"]["geometric_mean"][OURS]
    assert "leaves out" not in task.markdown(found, "x")


def test_the_means_of_each_regime_stand_apart():
    report, summary = mixed()
    means = summary["geometric_mean"][OURS]
    for name, value in (
        ("headline, ranked warm", 1.2),
        ("headline, ranked cold", 1.05),
        ("wide, ranked warm", 2.0),
        ("wide, ranked cold", 1.05),
    ):
        assert means[name]["n"] == 1
        assert means[name]["value"] == means[name]["low"] == means[name]["high"] == pytest.approx(value)
    page = task.markdown({"report": report, "summary": summary}, "x")
    assert "| ours | headline, ranked warm | 1.200 | 1.200 to 1.200 | 1 |" in page
    assert "| ours | wide, ranked cold | 1.050 | 1.050 to 1.050 | 1 |" in page


def test_the_interval_says_what_it_does_not_cover():
    report, summary = mixed()
    page = task.markdown({"report": report, "summary": summary}, "x")
    assert "in this one run, not how a peer's autotuner, or its compiler, would choose in another run" in page


def test_footprint_spread_and_compile_time_are_in_the_page(stand_in):
    report, _ = measure(points=HEADLINE)
    for point in report["points"]:
        for found in point["providers"].values():
            found |= {"rotated_bytes": 201_326_592, "sets": 3}
    samples = report["points"][1]["providers"]["liger"]["samples_us"]
    samples["warm"] = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]
    report["compile_s"] = {
        "liger": {
            "rms_norm 1 x 1024": 4.0,
            "rms_norm 1 x 4096": 0.5,
            "rms_norm 1 x 16384": 1.0,
            "x": "RuntimeError: no",
        }
    }
    page = task.markdown(task.document(report, spec_gb_s=4800.0), "x")
    launch = page.split("## Launch-bound")[1].split("## Bandwidth")[0].split("rms_norm, cold cache:")[1]
    assert "| rotated MB (sets) |" in launch
    assert "| 201 (3), read |" in launch
    assert page.split("## Bandwidth-bound")[1].split("## Predicted")[0].count("| 201 (3) |") >= 18
    spread = page.split("## Spread of the replays")[1].split("## Compile time")[0]
    assert "1.08–1.72" in next(line for line in spread.splitlines() if line.startswith("| 1 x 4096 |"))
    assert "46 % (rms_norm 1 x 4096)" in next(line for line in spread.splitlines() if line.startswith("| liger |"))
    compiling = page.split("## Compile time")[1].split("\n## ")[0]
    assert "| liger | 3 | 1.00 | 4.0 (rms_norm 1 x 1024) | 6 | 1 |" in compiling
    assert "| eager | – | – | – | – | 1 |" in compiling
    assert "does not wait for it" in compiling  # what the tuners' lock leaves open


def test_the_asked_byte_ratios_stand_beside_those_of_what_was_timed(stand_in):
    page = task.markdown(task.document(measure(points=HEADLINE)[0], spec_gb_s=4800.0), "x").split("## Predicted")[1]
    plain = next(line for line in page.splitlines() if line.startswith("| rms_norm |"))
    fused = next(line for line in page.splitlines() if line.startswith("| add_rms_norm |"))
    assert "| 14 to 4 = 3.50 | 40 to 4 = 10.00 |" in plain
    assert "| 10 to 8 = 1.25 | 10 to 8 = 1.25 |" in fused


def _with(change):
    report = json.loads(json.dumps(mixed()[0]))
    change(report)
    return report


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"report": 5}, "schema"),
        ({"report": [1]}, "schema"),
        ([1], "schema"),
        ({"schema": "robot-perf/rmsnorm-1"}, "gpu"),
        (_with(lambda r: r.update(rounds=2)), "3 samples are no 2 rounds"),
        (_with(lambda r: r.update(rounds=0)), "rounds"),
        (_with(lambda r: r.update(points={})), "points"),
        (_with(lambda r: r["points"][0].pop("copy")), "points.0.copy"),
        (_with(lambda r: r["points"][1].update(m="4096")), "points.1.m"),
        (_with(lambda r: r["points"][1]["providers"][OURS].pop("cold_by")), "points.1.providers.robot-perf.cold_by"),
        (_with(lambda r: r["points"][1]["providers"][OURS].pop("max_ulp")), "max_ulp"),
        (_with(lambda r: r["points"][1]["providers"][OURS]["samples_us"].update(warm=[0.0] * 3)), "0 µs or less"),
        (_with(lambda r: r["points"][1]["providers"][OURS]["samples_us"].update(warm=[math.nan] * 3)), "warm"),
        (_with(lambda r: r["points"][1]["providers"].update(liger=None)), "liger"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_whole_report_ends_in_one_message(tmp_path, capsys, content, named):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SystemExit) as ended:
        main(["kernels", "bench", "rmsnorm", "--from", str(path)])
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert "RMSNorm bench report" in said
    assert named in said
    assert "defect" not in said


def test_a_whole_report_is_read(tmp_path, capsys):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(mixed()[0]))
    with pytest.raises(SystemExit) as ended:
        main(["kernels", "bench", "rmsnorm", "--from", str(path), "--spec-gb-s", "4800"])
    assert ended.value.code == 0
    assert "fastest peer at 1 of 1" in capsys.readouterr().out


@pytest.mark.parametrize("m", [49, 96, 4096])
def test_an_error_in_the_middle_rows_is_found(m):
    x, r = (torch.randn(m, 64).to(torch.bfloat16) for _ in range(2))
    w = torch.ones(64, dtype=torch.bfloat16)
    middle = slice(24, m - 24)  # every one of them, up to 96 rows; else some of what a kernel gets wrong throughout
    y = rms_norm_reference(x, w, 1e-6)
    assert judge((y,), x, None, w, 1e-6, ours=True)["failed"] is None
    y[middle] *= 1.1
    assert "ulp" in judge((y,), x, None, w, 1e-6, ours=True)["failed"]
    y, s = add_rms_norm_reference(x, r, w, 1e-6)
    s[middle] += 1
    assert judge((y, s), x, r, w, 1e-6, ours=True)["failed"] == "s is not x + residual"


def test_what_is_prepared_takes_the_lock_for_its_inputs_and_not_for_its_first_call(monkeypatch, tmp_path):
    """As lock.py and the report say: a first call is compiling and a launch in one, and compilers must not wait for each other."""
    path, seen = tmp_path / "lock", []
    monkeypatch.setenv(lock.LOCK_VARIABLE, str(path))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *a: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(inputs, "DEVICE", "cpu")

    def held() -> bool:
        with path.open("a") as handle, contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return True

    class Inputs(inputs.Inputs):
        def __init__(self, *args):
            seen.append(("inputs", held()))
            super().__init__(*args)

    monkeypatch.setattr(worker, "Inputs", Inputs)
    provider = SimpleNamespace(make=lambda *a: lambda x, r: seen.append(("first call", held())), tuner="")
    monkeypatch.setitem(PROVIDERS, "quack", provider)
    monkeypatch.setattr(worker, "unavailable", lambda name: None)
    point = Point("rms_norm", 2, 64)
    took = worker.Worker("quack").prepare([point], 60.0)["took_s"]
    assert isinstance(took[point.name], float), took
    assert seen == [("inputs", True), ("first call", False)]
