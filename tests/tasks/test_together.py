"""Several policies at once, and one under a load: a verdict each, one exit code, and nothing that stays behind."""

from __future__ import annotations

import json
import os

import pytest

from robot_perf.cli.__main__ import main
from robot_perf.run.maps import MAP_FOLDER
from robot_perf.run.parquet import load
from robot_perf.tasks.together import _covered, split_rate


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["deadline", *arguments])
    return int(end.value.code or 0)


def test_rate_is_split_from_the_policy_but_not_from_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert split_rate("mlp@50") == ("mlp", "50")
    assert split_rate("a/b.onnx@83.3") == ("a/b.onnx", "83.3")
    assert split_rate("spin:200") == ("spin:200", None)
    assert split_rate("me@home") == ("me@home", None)
    (tmp_path / "policy@50").write_text("x")
    assert split_rate("policy@50") == ("policy@50", None)


def test_two_policies_begin_together_and_each_has_its_verdict(tmp_path, capsys):
    code = run("null@200", "spin:500@100", "--duration", "2s", "--deadline-ms", "1000", "--miss-rate", "0.2", "-o",
               str(tmp_path), "--json")  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    verdicts = document["policies"]
    assert code in (0, 3), [d["verdict"] for d in verdicts]
    assert [d["verdict"]["releases"] for d in verdicts] == [400, 200]
    runs = [load(tmp_path / d["run"].rsplit("/", 1)[1]) for d in verdicts]
    for mine, other in ((0, 1), (1, 0)):
        beside = runs[mine].conditions["beside"]
        assert [b["policy"] for b in beside] == [runs[other].policy.name]
        assert beside[0]["covered"] > 0.5
        assert any("ran beside" in note for note in runs[mine].conditions["notes"])
    began = [r.conditions["origin_ns"] for r in runs]
    assert abs(began[0] - began[1]) < 3e9


def test_the_longest_plan_holds_for_all(tmp_path, capsys):
    run("null@100", "null@50", "--steps", "60", "-o", str(tmp_path), "--json")
    verdicts = json.loads(capsys.readouterr().out)["policies"]
    assert [d["verdict"]["releases"] for d in verdicts] == [120, 60]


def test_one_that_can_t_be_loaded_ends_all(tmp_path, capsys):
    code = run("null@100", "robot_perf.policies.scripted:nothere@50", "--duration", "30s", "-o", str(tmp_path))
    assert code == 2
    assert "nothere" in capsys.readouterr().err
    assert not list(tmp_path.glob("*"))
    assert not [p for p in MAP_FOLDER.glob("*.map") if f"-{os.getpid()}-" in p.name], "nor in memory"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("null@50", "null"), "--rate is required"),
        (("null", "null@20"), "Write null@HZ"),
        (("null@50", "null@20", "-o", "/dev/null/runs"), "not a folder"),
        (("null@50", "--rate", "50"), "both give a rate"),
        (("null@50", "null@20", "--load", "cpu:1"), "exclude each other"),
        (("null@50", "null@20", "-o", "x.parquet"), "Name a folder"),
        (("null@50", "--load", "disk:1"), "no disturbance"),
        (("null@50", "--load", "cpu:1", "--load", "cpu:2"), "twice"),
        (("null@50", "--soak", "3s"), "shorter than 20 s"),
        (("null@50", "--soak", "30m", "--steps", "4"), "length of the run"),
        (("null@50", "--keep-warm", "coffee"), "--keep-warm"),
        (("null@50", "--keep-warm", "tiny-kernel", "--steps", "30"), "needs a CUDA device"),
    ],
)
def test_refusals(arguments, word, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    assert word in capsys.readouterr().err


def test_alone_and_under_load(tmp_path, capsys):
    code = run("null@200", "--steps", "200", "--deadline-ms", "1000", "--miss-rate", "0.05", "--overrun", "queue", "--load", "cpu:1", "-o",
               str(tmp_path / "a.parquet"), "--json")  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    assert code in (0, 3)
    assert [d["label"] for d in document["under_load"]] == ["alone", "under cpu:1"]
    assert document["verdict"] == document["under_load"][0]["verdict"]
    loaded = load(tmp_path / "a-load.parquet")
    assert loaded.conditions["load"]["asked"] == ["cpu:1"]
    assert loaded.conditions["load"]["achieved"][0]["cpu_share"] > 0.02
    assert "load" not in load(tmp_path / "a.parquet").conditions


def test_keep_warm_is_kept_in_the_run(tmp_path):
    run("null@200", "--steps", "60", "--keep-warm", "spin:200", "-o", str(tmp_path / "w.parquet"), "--quiet")
    assert load(tmp_path / "w.parquet").loop.keep_warm == "spin:200"


@pytest.mark.parametrize(
    ("mine", "other", "share"),
    [((0, 10, 20), (0, 10, 20), 1.0), ((0, 10, 20), (0, 15, 20), 1.0), ((0, 10, 20), (15, 16, 30), 0.5), ((0, 10, 20), (30, 31, 40), 0.0), ((0, 0, 0), (0, 1, 2), 0.0)],
)  # fmt: skip
def test_what_the_other_one_covered(mine, other, share):
    assert _covered(mine, other) == share
