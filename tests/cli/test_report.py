"""The command `report`: formats, refusals before work, and one document on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_calls import call
from fake_runs import MS, executions, make_run, policy

from robot_perf.run.parquet import save


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    runs = {
        "pass": make_run(executions(400)),
        "fail": make_run(executions(400, slow={i * 20: 45 * MS for i in range(1, 15)})),
        "tight": make_run(executions(100), period_ns=0, deadline_ns=0, overrun="queue"),
        "hostile": make_run(executions(30), spec=policy(name="\x1b[2J</script>\n::error::")),
    }
    return {name: save(run, folder / f"{name}.parquet") for name, run in runs.items()}


def test_text(files, capsys):
    assert call("report", files["pass"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("go1.onnx   48 → 12")
    assert "\x1b" not in out
    assert f"report {files['pass']} -o report.html" in out


def test_several_runs(files, capsys):
    assert call("report", files["fail"], files["tight"]) == 0
    out = capsys.readouterr().out
    assert "\nFAIL       " in out
    assert "\nNO VERDICT " in out


def test_json_is_one_document(files, capsys):
    assert call("report", files["fail"], "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["status"] == "FAIL"
    assert document["run"] == str(files["fail"])
    assert call("report", files["fail"], files["pass"], "--json") == 0
    assert [d["verdict"]["status"] for d in json.loads(capsys.readouterr().out)["runs"]] == ["FAIL", "INCONCLUSIVE"]


def test_each_format(files, tmp_path, capsys):
    for suffix in ("md", "xml", "json", "txt"):
        assert call("report", files["fail"], "-o", tmp_path / f"r.{suffix}") == 0
    assert (tmp_path / "r.md").read_text().startswith("# go1.onnx")
    assert ElementTree.parse(tmp_path / "r.xml").getroot().tag == "testsuites"
    assert json.loads((tmp_path / "r.json").read_text())["schema"] == "robot-perf/1"
    assert (tmp_path / "r.txt").read_text().startswith("go1.onnx")
    assert capsys.readouterr().out.count("saved ") == 4


def test_html(files, tmp_path):
    pytest.importorskip("plotly", reason="the extra `report` is not installed: plotly")
    assert call("report", files["hostile"], "-o", tmp_path / "r.HTML") == 0
    page = (tmp_path / "r.HTML").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "&lt;/script&gt;" in page


def test_absent_extra(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert call("report", files["pass"], "-o", tmp_path / "r.html") == 2
    error = capsys.readouterr().err
    assert "jinja2" in error
    assert "pip install 'robot_perf[report]'" in error
    assert not (tmp_path / "r.html").exists()


def test_png_beside_markdown(files, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed: matplotlib")
    assert call("report", files["pass"], files["fail"], "-o", tmp_path / "my r.md", "--png") == 0
    assert (tmp_path / "my r-1.png").read_bytes().startswith(b"\x89PNG")
    assert "](my%20r-2.png)" in (tmp_path / "my r.md").read_text()


def test_dash_is_stdout(files, capsys):
    assert call("report", files["pass"], "-o", "-") == 0
    assert capsys.readouterr().out.startswith("go1.onnx")


def test_nothing_is_overwritten_without_force(files, tmp_path, capsys):
    target = tmp_path / "r.md"
    target.write_text("mine")
    assert call("report", files["pass"], "-o", target) == 2
    assert target.read_text() == "mine"
    assert "exists" in capsys.readouterr().err
    assert call("report", files["pass"], "-o", target, "--force") == 0
    assert target.read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "r.pdf"], ".pdf is not a report format"),
        (["-o", "r"], "no suffix is not a report format"),
        (["--json", "-o", "r.md"], "exclude each other"),
        (["--png"], "--png needs -o FILE.md"),
        (["--png", "-o", "r.html"], "--png needs -o FILE.md"),
        (["-o", "nowhere/r.md"], "does not exist"),
    ],
)
def test_refusals_name_the_option(files, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert call("report", files["pass"], *arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"not parquet" * 50])
def test_unreadable_files_are_named(tmp_path, capsys, content):
    path = tmp_path / "x.parquet"
    if content is not None:
        path.write_bytes(content)
    assert call("report", path) == 2
    assert str(path) in capsys.readouterr().err


def test_damaged_conditions_name_file_and_condition(files, tmp_path, capsys):
    run = make_run(executions(30), host=5)
    path = save(run, tmp_path / "d.parquet")
    for arguments in ([], ["--json"], ["-o", str(tmp_path / "r.md")]):
        assert call("report", path, *arguments) == 2
        error = capsys.readouterr().err
        assert str(path) in error
        assert "host is damaged" in error


def test_a_back_to_back_run_has_no_document(files, capsys):
    assert call("report", files["tight"], "--json") == 2
    assert str(files["tight"]) in capsys.readouterr().err


def test_hostile_names_do_not_reach_the_terminal(files, capsys):
    assert call("report", files["hostile"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_no_run_is_a_usage_error(capsys):
    assert call("report") == 2
