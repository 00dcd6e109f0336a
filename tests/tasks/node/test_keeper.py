"""The keeper: maps in, Runs and verdicts out, whatever became of the node; its figures and its room on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robot_perf.errors import UsageError
from robot_perf.measure.node.mailbox import NODE_COLUMNS
from robot_perf.measure.node.parameters import PARAMETERS
from robot_perf.measure.recorder import Recorder
from robot_perf.run.parquet import load
from robot_perf.run.stepmap import Phase, StepMap, Word, process_born
from robot_perf.tasks.node.disk import INDEX, BlockFile, add_and_prune, read_index
from robot_perf.tasks.node.figures import Activation
from robot_perf.tasks.node.keeping import Keeper
from robot_perf.tasks.node.request import processors

MS = 1_000_000


@pytest.fixture
def events():
    return []


def parameters(folder, **more):
    values = {p.name: p.default for p in PARAMETERS} | {
        "rate": 100.0,
        "policy": "null",
        "steps": 100,
        "output_dir": str(folder / "runs"),
    }
    return {**values, **more}


@pytest.fixture
def keeper(events, tmp_path):
    made = Keeper(os.getpid(), lambda **event: events.append(event))
    yield made
    for kept in list(made.maps):
        made._forget(kept)


def prepare(keeper, folder, **more):
    keeper.handle(
        {"cmd": "prepare", "parameters": parameters(folder, **more), "node": {"argv": [], "notes": [], "invalid": []}}
    )


def fill(path, steps, *, first=0, period=10 * MS, response=MS, phase=None, origin=1_000_000_000, report=None, late=()):
    stepmap = StepMap.open(Path(path), writable=True)
    stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN] = os.getpid(), process_born(os.getpid())
    stepmap[Word.WARMUP_ROWS], stepmap[Word.ORIGIN] = 0, origin
    stepmap[Word.PHASE] = Phase.RUNNING
    rows = Recorder(stepmap, lambda: (0, 0, 0, 0, 0, 0))
    for k in range(first, first + steps):
        release = origin + k * period
        took = 9 * period if k in late else response
        rows.begin(k, release, release + 1000, release + 2000)
        rows.finish(release + 2000, -1, release + took)
        rows.later(release - MS, release + took + 500, -1, 0)
        rows.own(3000)
    stepmap.write_report(report or {"invalid": [], "notes": []})
    if phase is not None:
        stepmap[Word.PHASE] = phase
    return stepmap


def of(events, kind):
    return [e for e in events if e["event"] == kind]


def test_a_complete_block_becomes_a_run_with_a_verdict(keeper, events, tmp_path):
    prepare(keeper, tmp_path, miss_rate=0.2)
    path = of(events, "prepared")[0]["map"]
    keeper.handle({"cmd": "activate", "activation": 1})
    fill(path, 100, phase=Phase.DONE, report={"invalid": [], "notes": [], "block": 0}).close()
    keeper.look()
    (block,) = of(events, "block")
    assert (block["status"], block["releases"], block["misses"], block["state"]) == ("PASS", 100, 0, "complete")
    run = load(Path(block["file"]))
    assert run.conditions["activation"] == 1
    assert "measured inside a ROS node" in run.conditions["notes"][0]
    assert not Path(path).exists()
    assert tuple(c for c in NODE_COLUMNS if c in run.columns) == NODE_COLUMNS


def test_before_n_it_reads_inconclusive_k_of_n(keeper, events, tmp_path):
    prepare(keeper, tmp_path)
    keeper.handle({"cmd": "activate", "activation": 1})
    stepmap = fill(of(events, "prepared")[0]["map"], 40)
    keeper.look()
    live = keeper.live()
    assert live["verdict"] == {"status": "INCONCLUSIVE", "reason": "40 of 100 releases"}
    assert live["since_activation"]["executed"] == 40
    assert live["window"]["response"]["p50"] == MS
    assert live["window"]["observation_age"]["max"] == MS + 2000
    stepmap.close()


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"ended": "deactivated"}, "deactivated after 40 of 100 releases"),
        (
            {"failure": {"error": "ValueError: x", "phase": "RUNNING", "frames": []}},
            "the policy raised after 40 of 100 releases: ValueError: x",
        ),
    ],
)
def test_a_block_that_was_cut_short_says_by_what(keeper, events, tmp_path, report, words):
    prepare(keeper, tmp_path)
    phase = Phase.FAILED if "failure" in report else Phase.DONE
    fill(of(events, "prepared")[0]["map"], 40, phase=phase, report={"invalid": [], "notes": [], **report}).close()
    keeper.look()
    (block,) = of(events, "block")
    assert block["status"] == "INVALID"
    assert block["state"] == words


def test_an_unused_map_leaves_nothing(keeper, events, tmp_path):
    prepare(keeper, tmp_path)
    path = Path(of(events, "prepared")[0]["map"])
    assert path.exists()
    keeper.handle({"cmd": "drop"})
    assert not path.exists()
    assert not of(events, "block")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"policy": "nowhere"}, "nowhere is no policy"),
        ({"steps": 5}, "parameter steps: a block of 5 releases"),
        ({"cpus": "1;2"}, "parameter cpus"),
        ({"backend": "tensorflow"}, "tensorflow"),
        ({"output_dir": "/proc/here"}, "parameter output_dir"),
    ],
)
def test_what_cannot_be_prepared_is_an_event_and_not_a_death(keeper, events, tmp_path, more, words):
    prepare(keeper, tmp_path, **more)
    (failed,) = of(events, "failed")
    assert words in failed["error"]["what"]


def test_processors():
    assert processors("2,4-6, 5") == (2, 4, 5, 6)
    assert processors("") == ()
    with pytest.raises(UsageError):
        processors("6-4")


def test_a_killed_node_loses_no_step(tmp_path):
    """The keeper as a process; the node's stand-in dies without a word."""
    node = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    keeper = subprocess.Popen(
        [sys.executable, "-m", "robot_perf.tasks.node.keeper", str(node.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    asked = {"cmd": "prepare", "parameters": parameters(tmp_path), "node": {"argv": [], "notes": [], "invalid": []}}
    keeper.stdin.write(json.dumps(asked) + "\n")
    keeper.stdin.flush()
    while (event := json.loads(keeper.stdout.readline()))["event"] != "prepared":
        pass
    fill(event["map"], 33).close()
    node.kill()
    node.wait()
    assert keeper.wait(20) == 0
    rest = [json.loads(line) for line in keeper.stdout]
    keeper.stdin.close()
    keeper.stdout.close()
    (block,) = [e for e in rest if e["event"] == "block"]
    assert block["state"] == "the node's process died after 33 of 100 releases"
    assert len(load(Path(block["file"])).measured["step"]) == 33
    assert not Path(event["map"]).exists()


def test_a_full_disk_is_told_and_the_steps_stay_in_the_map(keeper, events, tmp_path, monkeypatch):
    prepare(keeper, tmp_path)
    path = Path(of(events, "prepared")[0]["map"])

    def full(*_a, **_k):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("robot_perf.tasks.node.keeping.save", full)
    fill(path, 100, phase=Phase.DONE).close()
    keeper.look()
    assert "No space left" in of(events, "trouble")[0]["what"]
    assert path.exists()
    path.unlink()


# Figures


def block_rows(first, count, period=10 * MS, origin=500 * MS, response=MS):
    k = np.arange(first, first + count)
    release = origin + k * period
    columns = {
        "step": k,
        "release_ns": release,
        "wake_ns": release + 1000,
        "start_ns": release + 2000,
        "end_ns": release + response,
    }
    columns |= {
        "own_ns": np.full(count, 10),
        "observation_ns": release,
        "published_ns": release + response + 5,
        "header_age_ns": np.full(count, -1),
    }
    return {**columns, "flags": np.zeros(count, np.int64)}


def test_totals_over_a_seam_count_the_gap():
    figures = Activation(10 * MS, 10 * MS)
    figures.add(block_rows(0, 10))
    figures.add(block_rows(13, 7))  # releases 10 to 12 skipped
    totals = figures.totals()
    assert (
        totals["releases"],
        totals["executed"],
        totals["misses"],
        totals["skipped"],
        totals["longest_miss_run"],
    ) == (20, 17, 3, 3, 3)
    assert totals["max_gap_ns"] == 40 * MS


def test_a_run_of_misses_is_followed_over_looks():
    figures = Activation(10 * MS, 10 * MS)
    for k in range(0, 30, 3):
        figures.add(block_rows(k, 3, response=11 * MS if 6 <= k < 21 else MS))
    assert figures.totals()["longest_miss_run"] == 15
    assert figures.totals()["misses"] == 15


def test_a_stopped_loop_reads_rate_zero_and_its_gap_grows():
    figures = Activation(10 * MS, 10 * MS)
    figures.add(block_rows(0, 100))
    end = 500 * MS + 99 * 10 * MS + MS
    assert figures.window(end, running=True)["period_mean_ns"] == 10 * MS
    later = figures.window(end + 2_000 * MS, running=True)
    assert later["period_mean_ns"] is None
    assert later["max_gap_ns"] == 2_000 * MS


def test_the_window_is_at_least_a_hundred_periods():
    figures = Activation(1_000 * MS, 1_000 * MS)
    figures.add(block_rows(0, 500, period=1_000 * MS))
    assert figures.window(0, running=False)["releases"] == 100


def test_moments_are_of_the_rows_since_the_last_call():
    figures = Activation(10 * MS, 10 * MS)
    for k, response in enumerate((2, 4, 6)):
        figures.add(block_rows(k, 1, response=response * MS))
    deviation = pytest.approx(np.std([2, 4, 6]) * MS)
    assert figures.moments()["response"] == {"n": 3, "mean": 4.0 * MS, "min": 2 * MS, "max": 6 * MS, "stddev": deviation}  # fmt: skip
    without_a_call = block_rows(3, 2, response=5 * MS)
    without_a_call["end_ns"][0] = -1
    figures.add(without_a_call)
    assert figures.moments()["response"]["n"] == 1
    assert figures.moments()["response"] == {"n": 0, "mean": None, "min": None, "max": None, "stddev": None}


# Disk


def saved(folder, name, status, size=100):
    (folder / name).write_bytes(b"x" * size)
    return BlockFile(name, status, size)


def test_the_oldest_pass_goes_first_and_the_newest_never(tmp_path):
    for name, status in (("a", "FAIL"), ("b", "PASS"), ("c", "INCONCLUSIVE"), ("d", "PASS")):
        assert add_and_prune(tmp_path, saved(tmp_path, name, status), 10_000) == []
    assert add_and_prune(tmp_path, saved(tmp_path, "e", "PASS"), 400) == ["b"]
    assert add_and_prune(tmp_path, saved(tmp_path, "f", "PASS"), 250) == ["d", "e", "c"]
    assert [b.file for b in read_index(tmp_path)] == ["a", "f"]


def test_other_files_are_never_touched(tmp_path):
    (tmp_path / "mine.parquet").write_bytes(b"x" * 1000)
    (tmp_path / INDEX).write_text('{"file": "../../etc/passwd", "status": "PASS", "bytes": 1}\n{"torn')
    assert add_and_prune(tmp_path, saved(tmp_path, "a", "PASS"), 1) == []
    assert (tmp_path / "mine.parquet").exists()
    assert [b.file for b in read_index(tmp_path)] == ["a"]
