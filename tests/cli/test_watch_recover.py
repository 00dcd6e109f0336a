from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

import pytest

from robot_perf.cli.__main__ import main
from robot_perf.measure.recorder import Recorder
from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.parquet import load
from robot_perf.run.stepmap import Phase, StepMap, Word, process_born
from robot_perf.specs import Budget, LoopSpec, PolicySpec, to_json
from robot_perf.tasks.live import LiveView

MS = 1_000_000


def fill(path, *, steps=20, worker=0, run_file="", origin=1000):
    """A map whose processes are gone: 5 warm-up rows, then `steps` of 50 releases, the tenth late and the eleventh skipped."""
    request = {
        "run_file": run_file,
        "policy": to_json(PolicySpec("p", "builtin")),
        "loop": to_json(LoopSpec(period_ns=10 * MS, deadline_ns=10 * MS, steps=50)),
        "budget": to_json(Budget(10 * MS)),
        "backend": {"name": "python"},
    }
    stepmap = StepMap.create(path, request, STEP_COLUMNS, 100)
    stepmap[Word.WORKER_PID], stepmap[Word.WORKER_BORN] = worker, -7  # nobody is born before the boot
    recorder = Recorder(stepmap, lambda: (0, 0, 0, 0, 0, 0))
    for k in range(5):
        recorder.begin(k, k, k, k + 1)
        recorder.finish(k + 1, -1, k + 2)
    stepmap.number_warmup_rows(5)
    stepmap[Word.WARMUP_ROWS], stepmap[Word.ORIGIN], stepmap[Word.PHASE] = 5, origin, Phase.RUNNING
    for k in [k for k in range(steps) if k != 10]:
        release = origin + k * 10 * MS
        work = 12 * MS if k == 9 else MS
        recorder.begin(k, release, release + 100, release + 200)
        recorder.finish(release + 200, -1, release + work)
        recorder.own(5000)
    stepmap.close()
    return path


@pytest.fixture
def maps(tmp_path, monkeypatch):
    """Stands for the folder in memory; the working folder is another one."""
    folder = tmp_path / "maps"
    folder.mkdir()
    monkeypatch.setattr("robot_perf.run.maps.find_maps.__defaults__", ((folder,),))
    monkeypatch.setattr("robot_perf.run.maps.MAP_FOLDER", folder)
    monkeypatch.setattr("robot_perf.tasks.recover.MAP_FOLDER", folder)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def orphan(maps):
    return fill(maps / "a.map")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    code = end.value.code
    assert code is None or isinstance(code, int)
    return code or 0


def test_live_view_counts_late_and_skipped(orphan):
    live = LiveView().look(StepMap.open(orphan))
    assert (live.phase, live.reached, live.scheduled, live.executed, live.misses) == ("measuring", 20, 50, 19, 2)
    assert live.p50_ns == MS
    assert live.max_ns == 12 * MS
    assert live.rate_hz is not None
    assert 90 < live.rate_hz < 101


def test_recover_lists_and_recovers(orphan, tmp_path, capsys):
    assert run("recover", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"map": str(orphan), "steps": 24, "damage": ""}]
    target = tmp_path / "r.parquet"
    assert run("recover", str(orphan), "-o", str(target), "--keep") == 0
    assert orphan.exists()
    assert run("recover", str(orphan), "-o", str(target)) == 2
    assert "exists" in capsys.readouterr().err
    assert run("recover", str(orphan), "-o", str(target), "--force") == 0
    assert not orphan.exists()
    recovered = load(target)
    assert recovered.conditions["state"].startswith("interrupted after 20 of 50")
    assert len(recovered.measured["step"]) == 19
    assert run("recover", str(orphan)) == 2
    assert run("recover") == 0
    assert "no orphaned" in capsys.readouterr().out


def test_watch_reads_a_dead_map_once_and_ends(orphan, capsys):
    assert run("watch", str(orphan)) == 4
    assert "20 of 50" in capsys.readouterr().out
    assert run("watch", str(orphan), "--json") == 4
    assert json.loads(capsys.readouterr().out)["misses"] == 2
    assert run("watch") == 2
    assert "nothing is being measured" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["watch", "recover", "report"])
def test_foreign_files_are_one_message(command, tmp_path, capsys):
    bad = tmp_path / "bad.map"
    bad.write_bytes(b"not a map" * 100)
    assert run(command, str(bad)) == 2
    text = capsys.readouterr().err
    assert "bad.map" in text
    assert "Traceback" not in text


def test_the_older_copy_on_disk_costs_no_step(maps, tmp_path, capsys):
    """Its name is what a shell completes: the steps that only the map in memory has must not go with it."""
    (tmp_path / "out").mkdir()
    full = fill(maps / "a.map", worker=4711, run_file="r.parquet")
    copy = fill(tmp_path / "out" / "r.map", steps=5, worker=4711, run_file="r.parquet")
    assert run("recover", str(copy)) == 0
    assert "a.map, which has more of its steps than r.map" in capsys.readouterr().out
    assert len(load(tmp_path / "out" / "r.parquet").measured["step"]) == 19, "beside the copy: there it was to lie"
    assert not full.exists()
    assert not copy.exists()


def test_another_measurement_of_the_same_name_stays(maps, tmp_path, capsys):
    """CI writes `-o run.parquet` again and again: what one recovery takes is its own map."""
    first = fill(maps / "a.map", worker=4711, run_file="r.parquet")
    second = fill(maps / "b.map", worker=4712, run_file="r.parquet", steps=30)
    assert run("recover", "r.parquet") == 2
    told = capsys.readouterr().err
    assert "more than one measurement" in told
    assert str(first) in told
    assert str(second) in told
    assert run("recover", str(first), "-o", "one.parquet") == 0
    assert len(load(tmp_path / "one.parquet").measured["step"]) == 19
    assert not first.exists()
    assert second.exists()
    assert run("recover", "r.parquet") == 0, "now it is the only one"
    assert len(load(tmp_path / "r.parquet").measured["step"]) == 29


def test_the_blocks_of_a_dead_node_are_two_maps(maps, capsys):
    """One process filled both: that makes neither a copy of the other."""
    first = fill(maps / "a.map", worker=4711)
    second = fill(maps / "b.map", worker=4711, origin=1000 + 500 * MS, steps=5)
    assert run("recover", "--json") == 0
    assert {entry["map"] for entry in json.loads(capsys.readouterr().out)} == {str(first), str(second)}
    assert run("recover", str(first), "-o", "one.parquet") == 0
    assert second.exists()


def test_watch_prefers_the_live_map_of_a_name(maps, capsys):
    fill(maps / "dead.map", worker=4711, run_file="r.parquet", steps=40)
    live = StepMap.open(fill(maps / "live.map", run_file="r.parquet", steps=5), writable=True)
    live[Word.WORKER_PID], live[Word.WORKER_BORN] = os.getpid(), process_born(os.getpid())
    assert run("watch", "r.parquet", "--once") == 0
    assert "live.map" in capsys.readouterr().out
    live.close()


@pytest.mark.parametrize("how", [("--once",), ()])
def test_watch_says_that_the_process_is_dead_and_what_to_do(maps, monkeypatch, capsys, how):
    """Its figures stay what they were: without a word they read as a measurement that goes on."""
    clock, now = 10**15, time.time()
    path = fill(maps / "a b.map", worker=4711, origin=clock - 300 * 10**9)
    played = SimpleNamespace(time=lambda: now, monotonic_ns=lambda: clock, strftime=time.strftime, gmtime=time.gmtime)
    monkeypatch.setattr("robot_perf.tasks.live.time", played)
    assert run("watch", str(path), *how) == 4
    told = capsys.readouterr().out
    assert "ended      20 of 50" in told
    assert "measuring  " not in told and " left  " not in told
    line = next(line for line in told.splitlines() if line.startswith("dead"))
    assert "process 4711 has ended and left no Run; last alive" in line and "5 min 0 s ago" in told
    assert time.strftime("%Y-%m-%dT", time.gmtime(now - 300)) in told
    assert f"next       robot-perf recover '{path}'" in told, "ready to paste"
    assert run("watch", str(path), "--json", *how) == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["alive"], document["phase"], document["left_ns"], document["reached"]) == (
        False,
        "ended",
        None,
        20,
    )
    assert document["last_alive_utc"] in told
    assert document["do"] == f"robot-perf recover '{path}'"


def test_a_copy_of_an_earlier_boot_is_as_old_as_its_file(maps, tmp_path, capsys):
    """Its stamps count from a boot that is over."""
    path = fill(tmp_path / "old.map", worker=4711, origin=time.monotonic_ns() - 10**9)
    os.utime(path, (86400.0, 86400.0))
    assert run("watch", str(path), "--once", "--json") == 4
    assert json.loads(capsys.readouterr().out)["last_alive_utc"] == "1970-01-02T00:00:00Z"


def test_a_process_that_died_before_its_first_step_is_dead_all_the_same(maps, capsys):
    path = fill(maps / "a.map", worker=4711, steps=0)
    stepmap = StepMap.open(path, writable=True)
    stepmap[Word.COMMITTED], stepmap[Word.WARMUP_ROWS], stepmap[Word.ORIGIN] = 0, -1, -1
    stepmap.close()
    assert run("watch", str(path), "--once") == 4
    assert "dead       process 4711 has ended and left no Run" in capsys.readouterr().out


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_measurement_that_ends_well_ends_its_watch_with_0(maps, monkeypatch, capsys, how):
    path = fill(maps / "live.map", worker=4711)
    live = StepMap.open(path, writable=True)
    live[Word.WORKER_PID], live[Word.WORKER_BORN] = os.getpid(), process_born(os.getpid())

    def ends(_seconds):
        path.unlink()  # its Run is saved
        live[Word.WORKER_BORN] = -7

    monkeypatch.setattr("robot_perf.cli.watch.time.sleep", ends)
    assert run("watch", str(path), *how) == 0
    told = capsys.readouterr().out
    live.close()
    if how:
        looks = [json.loads(line) for line in told.splitlines()]
        assert [look["alive"] for look in looks] == [True, False]
        assert "do" not in looks[-1], "there is nothing to recover"
        return
    assert "its verdict is where it was started" in told and "dead" not in told


def test_ctrl_c_leaves_a_watch(maps, monkeypatch, capsys):
    """It is the way to leave it: no failure, and nothing that was to be saved."""
    live = StepMap.open(fill(maps / "live.map"), writable=True)
    live[Word.WORKER_PID], live[Word.WORKER_BORN] = os.getpid(), process_born(os.getpid())

    def interrupted(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("robot_perf.cli.watch.time.sleep", interrupted)
    assert run("watch", str(maps / "live.map")) == 0
    assert "interrupted" not in capsys.readouterr().err
    live.close()


def test_a_run_goes_to_a_file(orphan, capsys):
    assert run("recover", str(orphan), "-o", "-") == 2
    assert "Parquet" in capsys.readouterr().err
    assert orphan.exists()


@pytest.mark.parametrize("name", ["absent.map", "."])
def test_watch_of_what_is_no_map_says_where_maps_are_listed(maps, capsys, name):
    assert run("watch", name) == 2
    assert "robot-perf recover without argument lists" in capsys.readouterr().err


def test_recover_finds_the_copy_in_the_working_folder(maps, tmp_path, capsys):
    """`-o run.parquet`: the Run was to lie there, and its copy must not stay behind as if it were another measurement's."""
    full = fill(maps / "a.map", worker=4711, run_file="my run.parquet")
    copy = fill(tmp_path / "my run-1.map", steps=5, worker=4711, run_file="my run.parquet")
    assert run("recover", str(full)) == 0
    assert len(load(tmp_path / "my run.parquet").measured["step"]) == 19
    assert not copy.exists()
    assert "next       robot-perf report 'my run.parquet'" in capsys.readouterr().out, "ready to paste"


def test_recover_of_a_folder_says_so(tmp_path, capsys):
    assert run("recover", str(tmp_path)) == 2
    assert "is a folder" in capsys.readouterr().err


def test_a_withheld_step_and_a_skipped_release_are_misses(maps, capsys):
    """Rows without a finish (a node that skips stale observations), then a stall: neither leaves the percentiles."""
    path = fill(maps / "a.map", steps=9)
    stepmap = StepMap.open(path, writable=True)
    recorder = Recorder(stepmap, lambda: (0, 0, 0, 0, 0, 0))
    recorder.row = stepmap[Word.COMMITTED]
    for k in range(9, 20):
        recorder.begin(k, 1000 + k * 10 * MS, -1, 1000 + k * 10 * MS)
        recorder.finish(1000 + k * 10 * MS, -1, -1 if k % 2 else 1000 + k * 10 * MS + (5 * MS if k < 18 else 105 * MS))
    live = LiveView().look(stepmap)
    assert (live.reached, live.executed, live.misses) == (20, 14, 6 + 1)
    assert (live.p50_ns, live.p50_reason) == (5 * MS, None)
    assert (live.p99_ns, live.p99_reason, live.max_ns) == (None, "skipped", 105 * MS)
    stepmap.close()
    assert run("watch", str(path), "--once", "--json") == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["misses"], document["p99_ns"], document["p99_reason"]) == (7, None, "skipped")
    assert run("watch", str(path), "--once") == 4
    assert "p50 5.00  p99 skipped  max 105.00 ms executed   misses 7" in capsys.readouterr().out


def test_one_step_has_no_percentile(maps, capsys):
    path = fill(maps / "a.map", steps=1)
    assert run("watch", str(path), "--once") == 4
    assert "p50 not yet  p99 not yet  max 1.00 ms   misses 0" in capsys.readouterr().out
