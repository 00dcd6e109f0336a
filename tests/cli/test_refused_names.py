"""A name that means nothing is refused before anything is measured: outputs, inputs, backends, keys, a Run's suffix."""

from __future__ import annotations

import json

import pytest
from cli_calls import call

FEW = ("--rate", "100", "--steps", "20", "--miss-rate", "0.5", "--deadline-ms", "1000")


@pytest.mark.parametrize("suffix", [".html", ".md", ".xml", ".json", ".TXT"])
def test_a_report_s_name_for_a_run_says_which_command_makes_the_report(tmp_path, capsys, suffix):
    assert call("deadline", "null", *FEW, "-o", tmp_path / f"report{suffix}") == 2
    told = capsys.readouterr().err
    assert f"robot-perf report {tmp_path}/report.parquet -o {tmp_path}/report{suffix}" in told
    assert f"-o {tmp_path}/report.parquet" in told and "Parquet" in told
    assert len(told.splitlines()) <= 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["run.parquet", "run", "walk-50.5hz"])
def test_other_names_of_a_run_stay(tmp_path, capsys, name):
    assert call("deadline", "null", *FEW, "-o", tmp_path / name, "--quiet") in (0, 1, 3)
    assert (tmp_path / name).read_bytes()[:4] == b"PAR1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("null", "--action", "torque"), ("--action torque", "0 actions float32 [1,12]")),
        (("lstm", "--action", "actoins"), ("--action actoins", "1 h_out", "Did you mean actions?")),
        (("mlp", "--action", "7"), ("--action 7", "0 actions")),
        (("lstm", "--action", "h_out"), ("h_out is state", "--action 0")),
        (("mlp", "--counter", "step"), ("--counter step", "0 obs float32 [1,48]")),
        (("null", "--counter", "obs", "--counter", "nope"), ("--counter nope", "0 obs")),
        (("lstm", "--counter", "h_in"), ("h_in is state", "0 obs")),
        (("mlp", "--python", "onnxruntme=/usr/bin/python3"), ("--python", "onnxruntme", "Did you mean onnxruntime?")),
    ],
    ids=lambda a: " ".join(a) if isinstance(a, tuple) else None,
)
def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert call("deadline", *arguments, *FEW) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in words), told
    assert len(told.splitlines()) <= 4
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["0", "actions"])
def test_the_action_of_a_built_in_may_be_named(tmp_path, capsys, name):
    assert call("deadline", "lstm", *FEW, "--action", name, "--json", "-o", tmp_path / "r.parquet") in (0, 1, 3)
    assert json.loads(capsys.readouterr().out)["conditions"]["policy"]["action"] == 0


def test_a_counter_of_a_pipeline_is_one_of_its_inputs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(
        "stages:\n  a: {file: mlp, feed: history}\n  b: {file: mlp, feed: {obs: ['a[:12]', 'rest']}}\ninputs: {rest: [1, 36]}\n"
    )
    assert call("deadline", "two.yaml", *FEW, "--counter", "tick") == 2
    told = capsys.readouterr().err
    assert "--counter tick" in told and "history" in told and "rest" in told


def test_what_is_no_run_says_what_to_do(tmp_path, capsys):
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    assert call("report", tmp_path / "cut.parquet") == 2
    assert "robot-perf recover" in capsys.readouterr().err
    assert call("bench", "--redraw", tmp_path) == 2
    assert "robot-perf bench POLICY -o" in capsys.readouterr().err


def test_hang_s_says_its_least(capsys):
    assert call("deadline", "--help") == 0
    assert "20 periods" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def config_note(tmp_path, capsys, text: str) -> str:
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    call("deadline", "null", *FEW, "--config", path, "-o", tmp_path / "r.parquet", "--force")
    out = capsys.readouterr().out
    return " ".join(out[out.index("note ") :].split())


def test_a_configuration_that_states_no_rate_is_said_in_the_report(tmp_path, capsys):
    told = config_note(tmp_path, capsys, "kp: 20\nrate_hz: 50\ncontrol_dt: fast\ncontrol_dtt: 0.02\n")
    assert "the stated rate, 100 Hz, is unchecked" in told
    assert "control_dt" in told and "rl_rate" in told, "what would be read"
    assert "not read: rate_hz (line 2), control_dt (line 3, 'fast' is no number above 0), control_dtt (line 4)" in told
    assert "kp" not in told, "a deployment has a hundred keys that are no rate"


def test_a_configuration_that_agrees_is_said_too(tmp_path, capsys):
    assert "deploy.yaml:2: control_dt is 100 Hz, as stated" in config_note(
        tmp_path, capsys, "kp: 20\ncontrol_dt: 0.01\n"
    )


def test_a_configuration_that_disagrees_is_a_warning(tmp_path, capsys):
    told = config_note(tmp_path, capsys, "control_dt: 0.02\n")
    assert "warning" in told and "control_dt is 50 Hz, the stated rate is 100 Hz" in told


def test_a_run_under_load_that_exists_is_refused_before_the_first_is_measured(tmp_path, capsys):
    (tmp_path / "r-load.parquet").write_bytes(b"precious")
    assert call("deadline", "null", *FEW, "--load", "cpu:1", "-o", tmp_path / "r.parquet") == 2
    assert "r-load.parquet exists" in capsys.readouterr().err
    assert not (tmp_path / "r.parquet").exists()
