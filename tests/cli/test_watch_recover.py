from __future__ import annotations

import json

import pytest

from robot_perf.cli.__main__ import main
from robot_perf.measure.recorder import Recorder
from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.parquet import load
from robot_perf.run.stepmap import Phase, StepMap, Word
from robot_perf.specs import Budget, LoopSpec, PolicySpec, to_json
from robot_perf.tasks.live import LiveView

MS = 1_000_000


@pytest.fixture
def orphan(tmp_path, monkeypatch):
    """A map whose processes are gone: 5 warm-up rows, then 20 of 50 releases, one late and one skipped."""
    folder = tmp_path / "maps"
    folder.mkdir()
    monkeypatch.setattr("robot_perf.run.maps.find_maps.__defaults__", ((folder,),))
    request = {
        "policy": to_json(PolicySpec("p", "builtin")),
        "loop": to_json(LoopSpec(period_ns=10 * MS, deadline_ns=10 * MS, steps=50)),
        "budget": to_json(Budget(10 * MS)),
        "backend": {"name": "python"},
    }
    stepmap = StepMap.create(folder / "a.map", request, STEP_COLUMNS, 100)
    recorder = Recorder(stepmap, lambda: (0, 0, 0, 0, 0, 0))
    for k in range(5):
        recorder.begin(k, k, k, k + 1)
        recorder.finish(k + 1, -1, k + 2)
    stepmap.number_warmup_rows(5)
    stepmap[Word.WARMUP_ROWS], stepmap[Word.ORIGIN], stepmap[Word.PHASE] = 5, 1000, Phase.RUNNING
    for k in [*range(10), *range(11, 20)]:
        release = 1000 + k * 10 * MS
        work = 12 * MS if k == 9 else MS
        recorder.begin(k, release, release + 100, release + 200)
        recorder.finish(release + 200, -1, release + work)
        recorder.own(5000)
    stepmap.close()
    return folder / "a.map"


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
    assert run("watch", str(orphan)) == 0
    assert "20 of 50" in capsys.readouterr().out
    assert run("watch", str(orphan), "--json") == 0
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
