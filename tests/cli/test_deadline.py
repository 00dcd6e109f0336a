"""The command end to end: exit codes, one JSON document, refusals before anything runs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from robot_perf.cli.__main__ import main
from robot_perf.errors import RobotPerfError
from robot_perf.tasks.reference import Reference

HELPERS = Path(__file__).resolve().parents[1] / "helpers"


def run(*arguments: str) -> int:
    """The exit code of one command."""
    with pytest.raises(SystemExit) as end:
        main(["deadline", *arguments])
    code = end.value.code
    assert code is None or isinstance(code, int)
    return code or 0


def quick(tmp_path, policy: str, *arguments: str) -> int:
    return run(policy, "-o", str(tmp_path / "run.parquet"), "--force", *arguments)


def test_pass_is_0_and_json_is_one_document(tmp_path, capsys):
    code = quick(
        tmp_path, "null", "--rate", "50", "--deadline-ms", "1000", "--steps", "150", "--miss-rate", "0.2", "--overrun", "queue", "--json"
    )  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    assert (code, document["verdict"]["status"]) == (0, "PASS")
    assert document["schema"] == "robot-perf/1"
    assert document["verdict"]["releases"] == 150
    for key in ("response_us", "wakeup_us", "execution_us", "harness_us"):
        assert set(document[key]) >= {"p50", "p90", "p99", "p99.9", "max"}
    assert document["response_us"]["p99.9"] is None
    assert "not estimable" in document["response_us_reason"]["p99.9"]
    assert document["conditions"]["host"]["kernel"]


def test_fail_is_1(tmp_path, capsys):
    code = quick(tmp_path, "spin:4000", "--rate", "200", "--deadline-ms", "2", "--steps", "60")
    assert code == 1
    assert "FAIL" in capsys.readouterr().out


def test_inconclusive_is_3_and_can_be_mapped(tmp_path, capsys):
    few = ("--rate", "200", "--deadline-ms", "1000", "--steps", "30", "--miss-rate", "0.05", "--overrun", "queue")
    assert quick(tmp_path, "null", *few) == 3
    assert "INCONCLUSIVE" in capsys.readouterr().out
    assert quick(tmp_path, "null", *few, "--inconclusive-is", "pass") == 0
    assert quick(tmp_path, "null", *few, "--inconclusive-is", "fail") == 1


def test_invalid_is_4(tmp_path, capsys):
    code = quick(
        tmp_path,
        "robot_perf.policies.scripted:raises",
        "--option",
        "at=80",
        "--rate",
        "500",
        "--steps",
        "500",
        "--overrun",
        "queue",
    )
    assert code == 4
    assert "scripted failure" in capsys.readouterr().out


def test_what_spoils_the_measurement_is_not_called_the_policy_s_error(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(HELPERS)
    arguments = ("gives_up:GivesUp", "--steps", "60")
    assert quick(tmp_path, *arguments, "--rate", "500", "--backend", "python") == 4
    text = " ".join(capsys.readouterr().out.split())
    assert "INVALID" in text and "torch stopped compiling it" in text and "policy raised" not in text
    with pytest.raises(SystemExit):
        main(["bench", *arguments, "--backends", "python", "--rates", "500", "-o", str(tmp_path / "bench"), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["status"] == "INVALID"
    assert "torch stopped compiling it" in json.dumps(row) and "policy raised" not in json.dumps(row)


def test_outputs_that_were_not_compared_are_a_note(tmp_path, capsys, monkeypatch):
    none = Reference(None, reason="it draws random numbers")
    monkeypatch.setattr("robot_perf.tasks.deadline.with_reference", lambda order, *_: (order, none))
    quick(tmp_path, "null", "--rate", "500", "--steps", "60", "--json")
    words = "outputs not compared with a float32 run on the CPU: it draws random numbers"
    assert words in json.loads(capsys.readouterr().out)["conditions"]["notes"]
    for name in ("text", "page.html"):
        with pytest.raises(SystemExit):
            main(["report", str(tmp_path / "run.parquet"), *(["-o", str(tmp_path / name)] if "." in name else [])])
    assert words in " ".join(capsys.readouterr().out.split())
    assert words in (tmp_path / "page.html").read_text()


def test_junit_and_github(tmp_path, capsys):
    junit = tmp_path / "junit.xml"
    quick(tmp_path, "null", "--rate", "500", "--steps", "50", "--junit", str(junit), "--github", "--quiet")
    suite = ET.parse(junit).getroot()
    assert suite.findall(".//testcase")
    assert "::" in capsys.readouterr().out


def test_plan_needs_no_policy(capsys):
    main_code = run("--plan", "--rate", "50", "--miss-rate", "0.01", "--assume-burst", "1")
    assert main_code == 0
    assert "299" in capsys.readouterr().out
    run("--plan", "--rate", "50", "--json")
    assert json.loads(capsys.readouterr().out)


BAD = [
    (["mlp"], "--rate"),
    (["mlp", "--rate", "0"], "rate"),
    (["mlp", "--rate", "-5"], "rate"),
    (["mlp", "--rate", "nan"], "rate"),
    (["mlp", "--rate", "fast"], "rate"),
    (["mlp", "--rate", "1e99"], "rate"),
    (["mlp", "--rate", "50", "--miss-rate", "0"], "--miss-rate"),
    (["mlp", "--rate", "50", "--miss-rate", "1.5"], "--miss-rate"),
    (["mlp", "--rate", "50", "--miss-rate", "nan"], "--miss-rate"),
    (["mlp", "--rate", "50", "--confidence", "1"], "--confidence"),
    (["mlp", "--rate", "50", "--assume-burst", "0.5"], "--assume-burst"),
    (["mlp", "--rate", "50", "--deadline-ms", "-1"], "--deadline-ms"),
    (["mlp", "--rate", "50", "--deadline-ms", "inf"], "--deadline-ms"),
    (["mlp", "--rate", "50", "--steps", "0"], "releases"),
    (["mlp", "--rate", "50", "--steps", "10", "--duration", "1s"], "--steps"),
    (["mlp", "--rate", "50", "--duration", "soon"], "duration"),
    (["mlp", "--rate", "50", "--overrun", "abort"], "--overrun"),
    (["mlp", "--rate", "50", "--wait", "nap"], "--wait"),
    (["mlp", "--rate", "50", "--gc", "maybe"], "--gc"),
    (["mlp", "--rate", "50", "--backend", "magic"], "magic"),
    (["mlp", "--rate", "50", "--device", "gpu0"], "--device"),
    (["mlp", "--rate", "50", "--m-in-k", "5,5"], "--m-in-k"),
    (["mlp", "--rate", "50", "--limit", "p100=3"], "p100"),
    (["mlp", "--rate", "50", "--cpus", "4096"], "--cpus"),
    (["mlp", "--rate", "50", "--fifo", "200"], "--fifo"),
    (["mlp", "--rate", "50", "--fifo", "10", "--wait", "spin"], "spin"),
    (["mlp", "--rate", "50", "--shape", "obs"], "--shape obs=1,48"),
    (["mlp", "--rate", "50", "--limit", "p99"], "--limit p99=12"),
    (["mlp", "--rate", "50", "--state", "h"], "--state h_in=h_out"),
    (["mlp", "--rate", "50", "--deadline-ms", "0"], "0.000001 to 86,400,000 ms"),
    (["mlp", "--rate", "50", "--deadline-ms", "nan"], "86,400,000 ms"),
    (["mlp", "--rate", "50", "--hang-s", "0"], "0.1 to 86,400"),
    (["mlp", "--rate", "50", "-o", "-"], "Parquet"),
    ([], "robot-perf deadline mlp --rate 50"),
    (["mlp", "--rate", "50", "--shape", "obs=a,b"], "--shape"),
    (["mlp", "--rate", "50", "--inconclusive-is", "great"], "--inconclusive-is"),
    (["mlp", "83.3"], "robot-perf deadline mlp --rate 83.3"),
    (["mlp", "--rate", "50", "--config", "absent.yaml"], "Name the deployment's YAML"),
    (["mlp", "--rate", "50", "-o", "absent/report.html"], "robot-perf report absent/report.parquet"),
    (["mlp", "--rate", "50", "--python", "onnxruntime=/absent/python3"], "--python BACKEND=PATH"),
    (["--rate", "50"], "POLICY"),
    (["no-such-policy", "--rate", "50"], "no-such-policy"),
    (["absent.onnx", "--rate", "50"], "absent.onnx"),
]


@pytest.mark.parametrize(("arguments", "named"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input_is_one_message_that_names_the_option(arguments, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["deadline", *arguments])
    assert end.value.code == 2
    text = capsys.readouterr().err
    assert named.lower() in text.lower()
    assert len(text.splitlines()) <= 4
    assert "Traceback" not in text
    assert not (tmp_path / "runs").exists()


def test_an_existing_output_is_refused_before_the_start(tmp_path, capsys):
    target = tmp_path / "run.parquet"
    target.write_bytes(b"precious")
    with pytest.raises(SystemExit) as end:
        main(["deadline", "null", "--rate", "50", "-o", str(target)])
    assert end.value.code == 2
    assert target.read_bytes() == b"precious"


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("ROBOT_PERF_DEBUG", "1")
    with pytest.raises(RobotPerfError):
        main(["deadline", "absent.onnx", "--rate", "50"])
