"""`utilisation` from outside: a Run with samples in it, the contract of its JSON, exit codes, refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from robot_perf.analyze.utilisation import RUNGS
from robot_perf.cli.__main__ import main
from robot_perf.run.parquet import load

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process and in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        try:
            main(["utilisation", *map(str, words)])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


def test_a_policy_that_waits_for_its_release_stops_at_the_first_rung(run: Run, tmp_path: Path):
    code, out, _ = run("spin:1000", "--rate", "50", "--duration", "2s", "--every", "0.2", "-o", "r.parquet", "--json")
    document = json.loads(out)
    assert (code, out.count("\n"), document["schema"]) == (0, 1, "robot-perf/1")
    assert document["stopped_at"] == "is there work"
    assert document["rungs"][0]["evidence"]["filled_pct"] < 50
    assert document["not_asked"] == list(RUNGS)[1:]
    assert {n["field"] for n in document["numbers"]} > {"utilisation_pct", "sm_activity_pct", "dram_bandwidth_pct"}
    assert all(n["mean"] is None and n["reason"] for n in document["numbers"])
    assert document["busy"]["all_work_pct"] is None and "CPU" in document["busy"]["reason"]
    kept = load(tmp_path / "r.parquet").conditions["utilisation"]
    assert kept["reason"] == "the policy runs on the CPU" and kept["every_s"] == 0.2
    assert len(kept["samples"]) >= 3
    assert any(s["host"]["pid"] for s in kept["samples"])


def test_the_report_for_people(run: Run):
    code, out, _ = run("spin:15000", "--rate", "50", "--steps", "150")  # long enough for a stall of half a second
    assert code == 0
    assert "rung 3, is the CPU in the path: the policy runs on the CPU" in " ".join(out.split())
    assert "not asked" in out and "deadline   " in out and "saved      runs/" in out


def test_watching_what_something_else_runs(run: Run):
    code, out, _ = run("--device", "cuda:0", "--seconds", "1", "--every", "0.2", "--pid", os.getpid(), "--json")
    document = json.loads(out)
    assert document["sampling"]["pid"] == os.getpid() and document["evidence"]["host"]["window_s"] > 0
    assert document["rungs"][0]["outcome"] == "can't answer" and "from outside" in document["rungs"][0]["reason"]
    assert code == (0 if document["stopped_at"] or any(r["outcome"] == "clean" for r in document["rungs"]) else 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no POLICY was given"),
        (("mlp",), "--rate is required"),
        (("mlp", "--rate", "50", "--seconds", "2"), "watch what something else runs"),
        (("mlp", "--rate", "50", "--every", "0.01"), "--every"),
        (("mlp", "--rate", "50", "--trace-steps", "-1"), "--trace-steps"),
        (("--seconds", "0"), "--seconds"),
        (("--seconds", "2", "--pid", "999999999"), "no such process"),
        (("mlp", "--rate", "50", "--device", "gpu0"), "--device"),
    ],
)
def test_refusals_are_one_message_and_exit_2(run: Run, words: tuple[str, ...], said: str):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err and "Traceback" not in err


def test_an_invalid_run_is_exit_4(run: Run, tmp_path: Path):
    (tmp_path / "breaks.py").write_text(
        "class P:\n    n = 0\n    def spec(self):\n        return {'inputs': {'obs': [[1, 4], 'float32']}, 'outputs': {'a': [1, 2]}}\n"
        "    def step(self, x):\n        import numpy as np\n        P.n += 1\n        if P.n > 40:\n            raise ValueError('broken')\n"
        "        return [np.zeros((1, 2), np.float32)]\ndef make():\n    return P()\n"
    )
    code, out, _ = run("breaks:make", "--rate", "100", "--steps", "200", "--json")
    assert code == 4
    assert json.loads(out)["verdict"]["status"] == "INVALID"


@pytest.mark.gpu
def test_on_a_gpu_the_numbers_are_there(tmp_path: Path):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    pytest.importorskip("pynvml")
    # In a process of its own, as a person starts it: the traced pass runs there, where CUPTI, the policy's stream and torch's
    # warnings (errors here) belong to the process.
    done = subprocess.run(
        [sys.executable, "-m", "robot_perf.cli", "utilisation", "mlp", "--rate", "50", "--backend", "cuda_graph", "--device", "cuda:0",
         "--duration", "4s", "--json"],
        capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    assert done.stdout, done.stderr
    code, document = done.returncode, json.loads(done.stdout)
    numbers = {n["field"]: n for n in document["numbers"]}
    assert code == 0 and document["stopped_at"] == "is there work"
    assert 0 <= numbers["utilisation_pct"]["mean"] <= 100
    assert 0 < document["busy"]["all_work_pct"] < 50
