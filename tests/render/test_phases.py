"""Where a device policy's execution goes: in every report of a Run, in a bench's table, and why where there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_runs import executions, make_run

from robot_perf.analyze.bench.figures import block_figures
from robot_perf.analyze.explain.phases import PHASES, phases_of
from robot_perf.errors import RunFileError
from robot_perf.measure.step import PHASE_COLUMNS
from robot_perf.measure.watch.watch_device import DeviceUse
from robot_perf.render.bench.html import bench_html
from robot_perf.render.bench.markdown import bench_markdown
from robot_perf.render.bench.text import bench_text
from robot_perf.render.html import report_html
from robot_perf.render.markdown import report_markdown
from robot_perf.render.text import deadline_report
from robot_perf.run.bench_report import BenchReport, Machine, PolicyHead, load, save
from robot_perf.run.model import Run
from robot_perf.tasks.bench.request import Target
from robot_perf.tasks.bench.rows import Measured, PointKey, row_of

NS = {"host_prepare": 2100, "launch": 12000, "wait": 30100, "host_finish": 800, "h2d": 4000, "policy": 28100, "d2h": 0}
PASS = {"steps": 50, "columns": {f"{name}_ns": [ns] * 50 for name, ns in NS.items()}}
WORDS = (
    "p50 host prepare 2.1 µs, H2D 4.0 µs, policy 28.1 µs, D2H 0, host finish 800 ns; on the host queueing 12.0 µs,"
    " waiting 30.1 µs; from a pass of their own after the run, 50 steps at 50 Hz"
)


def device_run(phases=None, **more) -> Run:
    backend = {"name": "cuda_graph", "options": {"device": "cuda:0"}}
    usage = {"window_ns": 5_000_000_000, "process_cpu_ns": 50_000_000}
    run = make_run(executions(60), backend=backend, backend_facts={"device": "cuda:0"}, usage=usage, **more)
    return Run(run.columns, {**run.conditions, **({} if phases is None else {"phases": phases})})


def line_of(run: Run) -> str:
    """The text report's words beside `phases`; empty where it has none."""
    lines = deadline_report(run, width=100).split("\n")
    first = next((i for i, line in enumerate(lines) if line.startswith("phases ")), len(lines))
    more = lines[first + 1 :]
    end = next((i for i, line in enumerate(more) if not line.startswith("  ")), 0)
    return " ".join(line[11:] for line in lines[first : first + 1] + more[:end])


def test_the_names_are_those_that_the_pass_writes():
    assert {f"{name}_ns" for name in PHASES} == set(PHASE_COLUMNS)


def test_a_run_says_where_its_execution_goes_and_what_from():
    assert line_of(device_run(PASS)) == WORDS
    tight = device_run(PASS, period_ns=0, deadline_ns=0, overrun="queue")
    assert "50 steps back to back" in line_of(tight)


def test_the_page_and_the_markdown_say_the_same():
    pytest.importorskip("plotly")
    pytest.importorskip("jinja2")
    run = device_run(PASS)
    assert f">phases</th><td>{WORDS}</td>" in report_html([("x", run)])
    assert f"| phases | {WORDS} |" in report_markdown([("x", run)])


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (device_run({"reason": "out of device memory"}), "none: out of device memory"),
        (device_run(), "none: backend cuda_graph marked none in this run"),
        (device_run(state="interrupted by SIGINT"), "none: the run was ended before the pass that marks them"),
        (device_run({"steps": 5, "columns": {"wait_ns": [7] * 5}}), "none: p50 is not estimable"),
        (make_run(executions(60)), ""),
    ],
)
def test_a_device_run_without_phases_has_a_reason_and_a_host_run_no_line(run, words):
    assert line_of(run).startswith(words) and bool(line_of(run)) == bool(words)


def test_damaged_phases_are_no_measurement_and_no_traceback():
    found = phases_of(
        {"phases": {"columns": {"wait_ns": [5] * 8 + ["x", -1, None, 2**70], "h2d_ns": "hello", "d2h_ns": 3}}}
    )
    assert found is not None and found.p50_ns == {"wait": 5} and found.steps == 8
    assert phases_of({"phases": 3}) is None
    with pytest.raises(RunFileError, match="condition phases is damaged"):
        deadline_report(device_run(3))


def bench_of(*runs: Run) -> BenchReport:
    """A bench's report of one backend at 50 Hz whose blocks are `runs`."""
    found = Measured()
    for i, run in enumerate(runs):
        found.add(run, DeviceUse(None, "", ()), block_figures(run, i, ""))
    row = row_of("mlp", Target("cuda_graph", "cuda_graph"), {PointKey("cuda_graph", "50"): found}, {}, (), None)
    head = PolicyHead("mlp", None, "obs", "act", None, "")
    return BenchReport(Machine("NVIDIA H200"), (head,), (row,), rates=("50",), steps=120, blocks=len(runs))


def test_a_bench_has_a_table_of_phases_by_backend_and_rate():
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    report = bench_of(device_run(PASS), device_run(PASS))
    text = str(bench_text(report, width=80, screen=80))
    assert "Phases: p50 µs of a pass of their own" in text
    assert "cuda_graph  50 Hz      2.1   12.0  30.1     0.8     4.0    28.1  0.0     50" in text
    assert max(len(line) for line in text.split("\n")) <= 80
    assert "| cuda\\_graph | 50 Hz | 2.1 | 12.0 | 30.1 | 0.8 | 4.0 | 28.1 | 0.0 | 50 |" in bench_markdown(report, {})
    assert "Phases: p50" in bench_html(report) and "<td>28.1</td>" in bench_html(report)


def test_a_bench_without_phases_has_no_table_and_a_refused_pass_its_reason():
    assert "phases" not in str(bench_text(bench_of(device_run()))).lower()
    refused = str(bench_text(bench_of(device_run({"reason": "out of device memory"}))))
    assert "cuda_graph at 50 Hz   no phases: out of device memory" in refused and "Phases" not in refused


def test_the_file_keeps_them_and_an_older_one_is_read(tmp_path):
    report = bench_of(device_run(PASS))
    assert load(save(report, tmp_path / "bench.json")) == report
    text = (tmp_path / "bench.json").read_text()
    assert report.rows[0].points[0].phases_p50_ns == NS
    older = text.replace('"phases_p50_ns"', '"unknown"').replace('"phase_steps"', '"unknown_too"')
    (tmp_path / "bench.json").write_text(older)
    assert load(tmp_path / "bench.json").rows[0].points[0].phases_p50_ns == {}
    damaged = replace(report.rows[0].points[0], phases_p50_ns={"wait": "long"})
    broken = replace(report, rows=(replace(report.rows[0], points=(damaged,)),))
    with pytest.raises(RunFileError, match="damaged bench report"):
        load(save(broken, tmp_path / "bench.json"))
