"""The bench command end to end on the CPU: blocks, reasons, files, refusals, death of a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from custom_operator import model_and_library

from robot_perf.cli.__main__ import main
from robot_perf.measure.processes.block_worker import BlockWorker
from robot_perf.run.bench_report import load
from robot_perf.run.parquet import load as load_run
from robot_perf.tasks.bench.machine import UNNAMED


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["bench", *arguments])
    code = end.value.code
    return int(code) if isinstance(code, int) else 0


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One small bench of two policies, with a backend that can't take either and one that fails."""
    folder = tmp_path_factory.mktemp("bench")
    code = run(
        "spin:300", "null", "--backends", "python,onnxruntime", "--rates", "500,tight", "--steps", "80",
        "--keep-warm", "spin:200,rehearse:800,tiny-kernel,spin-sync", "--device", "cpu", "-o", str(folder), "--json",
    )  # fmt: skip
    return code, folder


def test_it_measures_and_saves(measured):
    code, folder = measured
    assert code == 0
    report = load(folder / "bench.json")
    assert report.state == "complete"
    assert [p.name for p in report.policies] == ["spin:300", "null"]
    spun = next(r for r in report.rows if r.policy == "spin:300" and r.backend == "python")
    for rate in ("500", "tight"):
        point = spun.point(rate)
        assert point is not None
        assert point.n > 0
        assert (point.p("p50") or 0) >= 300_000
    assert (spun.first_action_ns or 0) > 300_000
    assert {f.name for f in folder.iterdir()} >= {"bench.json", "bench.md", "bench.html", "bench-null.png", "runs"}


def test_blocks_alternate_and_their_runs_are_kept(measured):
    _, folder = measured
    report = load(folder / "bench.json")
    row = report.rows[0]
    orders = {p.keep_warm: [b.order for b in p.blocks] for p in row.points if p.rate == "500" and p.blocks}
    assert orders["none"][0] < orders["spin:200"][0] < orders["spin:200"][1] < orders["none"][1], "ABBA"
    first = row.points[0].blocks[0]
    saved = load_run(folder / first.run)
    assert saved.conditions["bench"]["order"] == first.order
    assert len(saved.measured["step"]) == first.n


def test_back_to_back_a_block_fills_a_quarter_of_a_second_or_has_the_most_steps(measured):
    _, folder = measured
    report = load(folder / "bench.json")
    spun = next(r for r in report.rows if r.policy == "spin:300" and r.backend == "python")
    for block in spun.point("tight").blocks:  # 40 steps were asked for
        steps = load_run(folder / block.run).measured
        assert steps["end_ns"].max() - steps["start_ns"].min() >= 240_000_000, block
        assert block.n <= 840  # and not much longer
    assert all(block.n <= 40 for block in spun.point("500").blocks)
    null = next(r for r in report.rows if r.policy == "null" and r.backend == "python").point("tight")
    assert all(block.n == 20_000 for block in null.blocks), null.blocks
    assert any("a quarter of a second" in note for note in report.notes)


def test_slow_first_calls_do_not_make_the_block_back_to_back_short(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parents[1] / "helpers")
    code = run(
        "odd_policies:slow_at_first", "--backends", "python", "--rates", "tight", "--steps", "20", "--device", "cpu",
        "-o", str(tmp_path), "--json",
    )  # fmt: skip
    (point,) = load(tmp_path / "bench.json").rows[0].points
    assert code == 0
    assert all(block.window_ns >= 200_000_000 for block in point.blocks), (
        point.blocks
    )  # 20 ms a step would be 13 of them


def test_figures_of_the_processor_are_not_a_gpu_s(tmp_path):
    code = run(
        "null",
        "--backends",
        "python",
        "--rates",
        "500",
        "--steps",
        "20",
        "--device",
        "cuda:9",
        "-o",
        str(tmp_path),
        "--json",
    )
    report = load(tmp_path / "bench.json")
    assert code == 0
    assert "GPU" not in report.machine.device and report.machine.device != UNNAMED
    assert "no backend here runs on cuda:9: these are figures of the processor" in report.notes


def test_only_a_point_s_own_blocks_mark_phases(tmp_path, monkeypatch):
    """The first calls of several workers may run at the same time, on the same device."""
    seen: dict[int, set[bool]] = {}
    whole = BlockWorker.run

    def noted(self, loop, conditions, on_look=None, *, phases=True):
        seen.setdefault(conditions["bench"]["order"], set()).add(phases)
        return whole(self, loop, conditions, on_look, phases=phases)

    monkeypatch.setattr(BlockWorker, "run", noted)
    code = run(
        "null", "--backends", "python", "--rates", "500,tight", "--steps", "20", "--device", "cpu", "-o", str(tmp_path)
    )
    assert code == 0
    assert seen == {-1: {False}, 0: {True}, 1: {True}, 2: {True}, 3: {True}}


def test_what_can_t_run_is_a_row_with_its_reason(measured):
    _, folder = measured
    report = load(folder / "bench.json")
    refused = next(r for r in report.rows if r.backend == "onnxruntime")
    assert refused.status == "can't run"
    assert "--backend python" in refused.reason
    row = report.rows[0]
    assert "needs a CUDA device" in row.point("500", "tiny-kernel").reason
    assert "spin-sync: it runs on the CPU" in row.point("500", "spin-sync").reason


def test_a_keep_warm_costs_processor_time(measured):
    _, folder = measured
    row = next(r for r in load(folder / "bench.json").rows if r.policy == "null" and r.backend == "python")
    plain, spun = row.point("500"), row.point("500", "spin:200")
    assert plain.cpu_share is not None
    assert spun.cpu_share > plain.cpu_share


def test_merge_makes_one_table(measured, capsys):
    _, folder = measured
    main_code = _merge(folder, "--json")
    document = json.loads(capsys.readouterr().out)
    assert main_code == 0
    assert {r["policy"] for r in document["rows"]} == {"spin:300", "null"}
    assert document["rates"] == ["500", "tight"]


def _merge(folder, *more: str) -> int:
    try:
        main(["bench", "--merge", str(folder), *more])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_redraw_measures_nothing_and_draws_again(measured, tmp_path, capsys):
    _, folder = measured
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "bench.json").write_bytes((folder / "bench.json").read_bytes())
    assert run("--redraw", str(copy)) == 0
    assert "Execution" in capsys.readouterr().out
    assert {f.name for f in copy.iterdir()} >= {"bench.json", "bench.md", "bench.html", "bench-null.png"}
    assert load(copy / "bench.json") == load(folder / "bench.json")


def test_redraw_leaves_no_picture_of_figures_that_were_withdrawn(measured, tmp_path):
    _, folder = measured
    document = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    for row in document["rows"]:
        for point in row["points"] if row["policy"] == "null" else ():
            point |= {"status": "INVALID", "reason": "a fault of ours", "execution": [], "curve": [], "blocks": []}
    (tmp_path / "bench.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "bench-null.png").write_bytes(b"of before")
    assert run("--redraw", str(tmp_path)) == 0
    assert {f.name for f in tmp_path.glob("*.png")} == {"bench-spin-300.png"}


def test_merge_writes_markdown_once(measured, tmp_path):
    _, folder = measured
    output = tmp_path / "all.md"
    assert _merge(folder, "-o", str(output)) == 0
    assert "Bench over devices" in output.read_text(encoding="utf-8")
    assert _merge(folder, "-o", str(output)) == 2


@pytest.mark.parametrize(
    ("how", "word"), [("raises", "scripted failure"), ("segfault", "SIGSEGV"), ("exit", "exit code 3")]
)
def test_a_worker_that_dies_is_invalid_with_the_reason(tmp_path, how, word):
    policy = "robot_perf.policies.scripted:raises" if how == "raises" else "robot_perf.policies.scripted:exits"
    options = ["--option", "at=60"] + ([] if how == "raises" else ["--option", f"how={how}"])
    code = run(
        policy, "--backends", "python", "--rates", "500,tight", "--steps", "80", "--device", "cpu", "-o", str(tmp_path),
        *options, "--json",
    )  # fmt: skip
    report = load(tmp_path / "bench.json")
    assert code == 4
    assert report.rows[0].status == "INVALID"
    assert word in report.rows[0].reason
    assert all(p.status == "INVALID" and not p.execution for p in report.rows[0].points)


def test_a_worker_that_crashes_as_it_closes_keeps_its_figures_and_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parents[1] / "helpers")
    code = run(
        "odd_policies:aborts_as_it_closes", "--backends", "python", "--rates", "tight", "--steps", "40",
        "--device", "cpu", "-o", str(tmp_path), "--json",
    )  # fmt: skip
    row = load(tmp_path / "bench.json").rows[0]
    assert code == 0 and row.status == "ok" and row.points[0].execution
    assert any("SIGABRT" in note for note in row.notes)


def test_another_interpreter_that_is_none_is_a_row(tmp_path):
    code = run("null", "--backends", "python", "--rates", "500", "--steps", "40", "--device", "cpu", "--python",
               "python=/nowhere/python", "-o", str(tmp_path), "--json")  # fmt: skip
    row = load(tmp_path / "bench.json").rows[0]
    assert code == 4
    assert "/nowhere/python can't be started" in row.reason


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "no POLICY"),
        (("null", "--rates", ""), "--rates is empty"),
        (("null", "--rates", "50,fast"), "not a number"),
        (("null", "--rates", "50,50.0"), "twice"),
        (("null", "--backends", "cuda"), "unknown"),
        (("null", "--backends", "python[threads"), "not a backend"),
        (("null", "--backends", "python[threads]"), "option=value"),
        (("null", "--backends", "python,python"), "twice"),
        (("null", "--keep-warm", "warm"), "--keep-warm"),
        (("null", "--steps", "3"), "--steps"),
        (("null", "--steps", "40", "--blocks", "9"), "--blocks"),
        (("null", "null"), "twice"),
        (("null", "--rates", "tight", "--keep-warm", "all"), "no idle time"),
        (("null", "-o", "/dev/null/reports"), "not a folder"),
        (("null", "--device", "tpu"), "--device"),
        (("null", "--python", "tensorflow=/usr/bin/python3"), "unknown"),
        (("no-such-policy",), "no policy"),
        (("null", "--merge", "reports"), "takes a folder"),
        (("--merge", "/no/such/folder"), "not a folder"),
        (("null", "--redraw", "reports"), "takes a folder"),
        (("--redraw", "/no/such/folder"), "holds no bench.json"),
    ],
)
def test_refusals_before_anything_runs(arguments, word, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert word in printed.err
    assert "Traceback" not in printed.err
    assert not printed.out
    assert not list(tmp_path.iterdir())


def test_an_existing_report_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "bench.json").write_text("{}")
    assert run("null", "-o", str(tmp_path), "--rates", "500") == 2
    assert "exists" in capsys.readouterr().err
    assert (tmp_path / "bench.json").read_text() == "{}"


def test_no_worker_and_no_map_is_left(measured):
    from robot_perf.run.maps import MAP_FOLDER

    mine = [p for p in MAP_FOLDER.glob("*.map") if f"-{os.getpid()}-" in p.name]
    assert not mine


def test_an_interrupted_bench_keeps_the_policies_it_has(tmp_path):
    command = [sys.executable, "-m", "robot_perf.cli.__main__", "bench", "null", "spin:200", "--backends", "python", "--rates", "100",
               "--steps", "100", "--device", "cpu", "-o", str(tmp_path)]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    path = tmp_path / "bench.json"
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=30)
    report = load(path)
    assert process.returncode == 4, printed
    assert report.state.startswith("interrupted by SIGINT after 1 of 2 policies")
    assert report.policies[0].name == "null"
    assert b"Traceback" not in printed


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("hangup_heard")
def test_an_interrupted_bench_keeps_the_blocks_of_the_policy_that_it_was_measuring(tmp_path, how):
    """With one policy of many backends an hour's blocks were lost to Ctrl-C, and all of the report to a time limit."""
    command = [sys.executable, "-m", "robot_perf.cli.__main__", "bench", "spin:200", "--backends", "python,onnxruntime,eager",
               "--rates", "100,50,tight", "--steps", "100", "--device", "cpu", "-o", str(tmp_path)]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while len(list(tmp_path.glob("runs/0*.parquet"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(how)
    text, printed = process.communicate(timeout=30)
    assert process.returncode == 4, printed
    report = load(tmp_path / "bench.json")
    row = next(r for r in report.rows if r.backend == "python")
    kept = sum(len(p.blocks) for p in row.points)
    # the signal may come before the second file's figures are kept
    assert kept in (1, 2)
    assert report.state == f"interrupted by {how.name} after 0 of 1 policies; spin:200 has {kept} of 6 blocks"
    (point,) = row.points
    assert point.rate == "100"
    assert point.n == sum(len(load_run(tmp_path / block.run).measured["step"]) for block in point.blocks) > 0
    assert {r.status for r in report.rows if r.backend != "python"} == {"can't run"}
    assert "NOT COMPLETE" in text and "Traceback" not in printed


def test_a_run_that_can_t_be_saved_ends_the_bench_with_one_message(tmp_path, capsys):
    """A full disk was called a defect of robot-perf."""
    (tmp_path / "runs").write_text("in the way")
    assert run("null", "--backends", "python", "--rates", "500", "--steps", "40", "-o", str(tmp_path)) == 2
    printed = capsys.readouterr().err
    assert "a Run can't be saved as" in printed
    assert "defect" not in printed


def test_custom_operators_are_benched_with_their_library(tmp_path):
    path, library = model_and_library(tmp_path)
    words = [
        str(path),
        "--action",
        "action",
        "--backends",
        "onnxruntime",
        "--device",
        "cpu",
        "--rates",
        "200",
        "--steps",
        "20",
    ]
    assert run(*words, "-o", str(tmp_path / "without")) == 2
    assert run(*words, "-o", str(tmp_path / "with"), "--ort-library", library) == 0


def test_a_pipeline_is_asked_stage_by_stage(tmp_path):
    """`deadline` ran it, and `bench` refused it on every backend."""
    path = tmp_path / "chain.yaml"
    path.write_text(
        "stages:\n"
        "  network: {file: mlp, feed: obs}\n"
        "  other: {file: 'spin:50', backend: python, feed: obs}\n"
        "inputs: {obs: [1, 48]}\n"
        "action: network\n"
    )
    code = run(str(path), "--backends", "python,eager", "--rates", "200", "--steps", "40", "--device", "cpu", "-o",
               str(tmp_path / "report"), "--json")  # fmt: skip
    rows = {r.backend: r for r in load(tmp_path / "report" / "bench.json").rows}
    assert code == 0
    assert {name: r.status for name, r in rows.items()} == {"python": "ok", "eager": "ok"}
