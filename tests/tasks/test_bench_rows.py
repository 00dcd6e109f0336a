"""From blocks to rows: a block that an interruption cut in two is no block."""

from __future__ import annotations

from fake_runs import executions, make_run

from robot_perf.analyze.bench.figures import block_figures
from robot_perf.measure.watch.watch_device import DeviceUse
from robot_perf.run.bench_report import OK
from robot_perf.tasks.bench.request import Target
from robot_perf.tasks.bench.rows import Measured, PointKey, row_of


def test_a_block_of_which_only_the_run_was_kept_is_left_out():
    found = Measured()
    usage = {"window_ns": 5_000_000_000, "process_cpu_ns": 50_000_000}
    runs = [make_run(executions(250, seed), usage=usage) for seed in (1, 2)]
    found.add(runs[0], DeviceUse(100.0, "", ()), block_figures(runs[0], 0, ""))
    found.runs.append(runs[1])  # Ctrl-C while the second one's figures were computed
    found.whole()
    row = row_of("mlp", Target("graph", "cuda_graph"), {PointKey("graph", "50"): found}, {}, (), 50.0)
    assert (row.status, row.points[0].n, len(row.points[0].blocks)) == (OK, 250, 1)
    assert row.points[0].power_w == 100.0
