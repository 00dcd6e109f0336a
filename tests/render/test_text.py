"""The text report: golden per verdict, its width, its words, and what it never does."""

from __future__ import annotations

import io
import shlex

import numpy as np
import pytest
import typer
from fake_loops import run_of
from fake_runs import MS, executions, make_run
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from robot_perf.analyze.summary import summarize
from robot_perf.analyze.verdict import judge
from robot_perf.cli.root import root as app
from robot_perf.errors import RunFileError
from robot_perf.render.parts.command import rerun_command
from robot_perf.render.parts.sheet import sheet_of
from robot_perf.render.parts.words import rate_words
from robot_perf.render.text import deadline_report, deadline_text, plan_line, verdict_line
from robot_perf.run.model import Run
from robot_perf.units import format_bound


@pytest.mark.parametrize(
    "name", ["pass", "fail", "inconclusive", "invalid", "queue", "fast", "tight", "limits", "empty"]
)
def test_golden(name, runs, golden, saved):
    golden(f"report_{name}.txt", deadline_report(runs[name], saved=saved, doctor_notes=3) + "\n")


@pytest.mark.parametrize("width", [80, 100, 300])
def test_width(any_run, width):
    for line in deadline_report(any_run, width=width).splitlines():
        # a command stays whole, to be copied
        assert cell_len(line) <= min(width, 100) or line.startswith("next ") or "<script>" in line


def test_hostile_names_reach_no_terminal(runs):
    report = deadline_report(runs["hostile"], saved="a\x1b[31m\n.parquet")
    assert "\x1b" not in report
    assert "\\x1b[2J" in report
    assert not any(line.startswith("::error") for line in report.splitlines())


def styled(run: Run, **options: object) -> str:
    stream = io.StringIO()
    console = Console(file=stream, highlight=False, width=100, **options)  # type: ignore[arg-type]
    console.print(deadline_text(run, summarize(run), judge(run)), soft_wrap=True)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["pass", "fail", "inconclusive", "invalid"])
def test_colour_says_nothing_that_a_word_does_not(name, runs):
    plain, coloured = styled(runs[name]), styled(runs[name], force_terminal=True, color_system="standard")
    assert "\x1b[" not in plain
    assert "\x1b[" in coloured
    assert Console(file=io.StringIO(), width=200).render_str(plain, markup=False).plain.rstrip() == plain.rstrip()
    assert any(line.startswith(name.upper()) for line in plain.splitlines())


def test_no_color_is_respected(runs, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = styled(runs["fail"], force_terminal=True, color_system="standard")
    assert "\x1b[31m" not in out
    assert "\x1b[1;31m" not in out


def test_the_verdict_is_the_first_line_of_the_result(runs):
    body = deadline_report(runs["fail"]).split("\n\n")[1].splitlines()
    assert body[0].startswith("FAIL       at least 0.0")
    assert "20.00 ms" in body[0]
    assert next(line for line in body if line.startswith("cause")).startswith("cause      preemption")


def test_inconclusive_names_the_steps_and_the_command(runs):
    report = deadline_report(runs["inconclusive"])
    assert "more releases without an overrun would pass: a new run of" in report.replace("\n           ", " ")
    assert "next       robot-perf deadline go1.onnx --rate 50 --steps " in report


def test_invalid_says_how_to_measure_validly(runs):
    report = deadline_report(runs["invalid"])
    assert report.split("\n\n")[1].startswith("INVALID    interrupted by SIGINT after 400 of 3,000 releases")
    assert "remedy     let it run to its end\nnext       robot-perf deadline go1.onnx --rate 50\n" in report


def test_words_instead_of_numbers_that_there_are_not(runs):
    assert "not estimable (needs n ≥ 3,688)" in deadline_report(runs["invalid"])
    fail = deadline_report(runs["fail"])
    assert "skipped" in fail.split("response ")[1].splitlines()[0]
    assert "nan" not in fail.lower()
    assert "inf " not in fail.lower()


def test_every_reason_of_an_invalid_run_is_named():
    run = make_run(
        executions(50), invalid=["2 graph breaks inside the measured window", "the action was NaN in 3 steps"]
    )
    report = deadline_report(run)
    assert "INVALID    2 graph breaks inside the measured window" in report
    assert "also       the action was NaN in 3 steps" in report


def test_refused_settings_and_notes_are_shown():
    real_time = {"scheduler": "SCHED_OTHER", "priority": 0, "affinity": [0], "refused": ["SCHED_FIFO 80 refused"]}
    report = deadline_report(make_run(executions(50), real_time=real_time, notes=["warm-up did not settle"]))
    assert "refused    SCHED_FIFO 80 refused" in report
    assert "1 setting refused" in report.replace("\n           ", " ")
    assert "note       warm-up did not settle" in report


def test_what_the_loop_did_otherwise_than_by_default_is_shown(runs):
    """A PASS of a loop that was kept warm is none of a robot that isn't: it was in the command line alone."""
    asked = {
        "wait": "hybrid",
        "spin_margin_ns": 150_000,
        "keep_warm": "rehearse:300",
        "gc": "off",
        "shape": "sleep-rest",
    }
    report = deadline_report(make_run(executions(50), loop=asked)).replace("\n           ", " ")
    words = "shape sleep-rest; wait hybrid, spinning 150.0 µs before each release; kept warm by rehearse:300; Python's garbage collector off"
    assert f"loop       {words}" in report
    assert "\nloop " not in deadline_report(runs["pass"])


def test_a_number_of_threads_that_the_runtime_chose_is_not_called_0():
    run = make_run(executions(50), backend_facts={"threads": 0})
    assert "threads as the runtime chose" in deadline_report(run).replace("\n           ", " ")
    assert "0 threads" not in deadline_report(run)


def test_late_steps_are_counted_by_kind(runs):
    verdict = judge(runs["fail"])
    report = deadline_report(runs["fail"]).replace("\n           ", " ")
    assert f"{verdict.misses} of {verdict.releases:,} missed ({verdict.late} late, {verdict.skipped} skipped)" in report


@pytest.mark.parametrize(("steps", "told"), [(12, False), (367, False), (368, True)])
def test_counts_give_a_p99_only_of_enough_steps(steps, told):
    counts = dict(sheet_of(make_run(executions(steps))).counts)
    assert ("p99" in counts["utilisation"], "p99" in counts["release jitter"]) == (told, told)


def test_pinned_fifo_host():
    real_time = {
        "scheduler": "SCHED_FIFO", "priority": 80, "affinity": [3], "memory_locked_bytes": 10**7,
        "cpu_dma_latency_held": True, "refused": [],
    }  # fmt: skip
    asked = {"real_time": {"fifo_priority": 80, "cpus": [3], "mlock": True, "hold_cpu_dma_latency": True}}
    run = make_run(executions(50), real_time=real_time)
    conditions = {**run.conditions, "loop": {**run.conditions["loop"], **asked}}
    report = deadline_report(Run(run.columns, conditions)).replace("\n           ", " ")
    assert "SCHED_FIFO 80, pinned to CPU 3, memory locked, cpu_dma_latency held at 0" in report


@given(st.floats(1e-12, 1), st.floats(1e-6, 0.5))
def test_a_printed_bound_never_claims_more_than_was_computed(bound, allowed):
    assert float(format_bound(bound, allowed, upper=True)) >= bound
    assert float(format_bound(bound, allowed, upper=False)) <= bound


def test_a_bound_never_looks_equal_to_the_rate_that_it_misses():
    assert float(format_bound(0.00100004, 0.001, upper=False)) > 0.001
    assert format_bound(0, 0.001, upper=False) == "0"


def test_one_line_forms(runs):
    verdict = judge(runs["inconclusive"])
    assert verdict_line(verdict).startswith("INCONCLUSIVE  between ")
    assert verdict_line(judge(runs["pass"])).startswith("PASS       at most ")
    run = runs["pass"]
    assert plan_line(run.loop, run.budget, planned=True).startswith(
        "plan       9,000 releases, 3 min 0 s: room for one overrun"
    )


def test_rerun_command_repeats_what_was_asked_and_no_file():
    argv = [
        "deadline",
        "my policy.onnx",
        "--rate",
        "50",
        "--steps=10",
        "-o",
        "x.parquet",
        "--json",
        "--duration",
        "3s",
        "--fifo",
        "80",
    ]
    run = make_run(executions(20), argv=argv, planned=False)
    assert rerun_command(run, steps=500) == "robot-perf deadline 'my policy.onnx' --rate 50 --fifo 80 --steps 500"


def test_what_follows_a_soak_is_a_command_that_the_command_line_takes():
    argv = ["deadline", "mlp", "--rate", "50", "--soak", "25s", "--soak=25s"]
    words = shlex.split(rerun_command(make_run(executions(20), argv=argv, planned=False), steps=12573))
    assert words == ["robot-perf", "deadline", "mlp", "--rate", "50", "--steps", "12573"]
    root = typer.main.get_command(app)
    group = root.make_context("robot-perf", words[1:], resilient_parsing=True)
    name, command, rest = root.resolve_command(group, words[1:])
    given = command.make_context(name, rest, parent=group).params
    assert (given["soak"], given["steps"]) == (None, 12573)


def test_rerun_command_of_a_run_that_no_command_made():
    run = make_run(executions(20), argv=["pytest"], deadline_ns=5 * MS, budget={"miss_rate": 0.01})
    assert rerun_command(run) == "robot-perf deadline go1.onnx --rate 50 --deadline-ms 5 --miss-rate 0.01"


@pytest.mark.parametrize(
    ("key", "value"), [("host", 5), ("notes", "x"), ("real_time", []), ("backend", 3), ("backend_facts", "x")]
)
def test_damaged_conditions_are_one_clear_error(key, value):
    run = make_run(executions(20))
    with pytest.raises(RunFileError, match=f"condition {key} is damaged"):
        deadline_report(Run(run.columns, {**run.conditions, key: value}))


def test_report_reads_columns_by_name_and_ignores_later_ones(runs):
    run = runs["pass"]
    more = Run({**run.columns, "later_ns": np.zeros(len(run.columns["step"]), np.int64)}, run.conditions)
    assert deadline_report(more) == deadline_report(run)


def test_a_jetsons_power_mode_is_on_the_host_line():
    run = make_run(executions(20))
    host = {**run.conditions["host"], "power_mode": {"id": 2, "name": "15W", "modes": {}}, "clocks_pinned": True}
    report = deadline_report(Run(run.columns, {**run.conditions, "host": host}))
    assert "power mode 15W, clocks pinned" in report.replace("\n           ", " ")


@pytest.mark.parametrize(
    ("late_ns", "words"),
    [
        ([0] * 99 + [3_000_000], "drift +303.0 ppm (+0.0 ppm but for its first and last step)"),
        ([1000 * k for k in range(100)], "drift +10.0 ppm;"),
        ([1000 * k for k in range(99)] + [3_000_000], "drift +303.0 ppm (+10.0 ppm but for its first and last step)"),
        (
            [k * 7919 % 100 * 1000 for k in range(99)] + [3_000_000],
            "drift +303.0 ppm (no more than the wake-ups scatter)",
        ),
        ([0] * 99 + [3_000], "drift +0.3 ppm;"),
    ],
)
def test_a_drift_is_told_from_a_late_step_and_from_scatter(late_ns, words):
    period = 100 * MS
    rows = [
        {
            "step": k,
            "release_ns": k * period,
            "wake_ns": -1,
            "start_ns": k * period + d,
            "end_ns": k * period + d + 1000,
        }
        for k, d in enumerate(late_ns)
    ]
    assert words in rate_words(summarize(run_of(rows, steps=100, period_ns=period)))
