"""How a command ends where something outside it does: Ctrl-C before a measurement, a reader that leaves, a full disk, a closed terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import call

from robot_perf.run.parquet import load

_INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
from robot_perf.cli.__main__ import main
sys.meta_path.insert(0, Finder())
main(["doctor"])
"""

# Queued, not skipped: a host that stands still for a third of a second would skip eighteen of sixty releases, and each is a miss.
PASSES = ("--rate", "50", "--deadline-ms", "1000", "--steps", "60", "--miss-rate", "0.2", "--overrun", "queue")


@pytest.mark.parametrize("module", ["typer", "robot_perf.cli.doctor", "robot_perf.tasks.machine.doctor"])
def test_ctrl_c_before_a_measurement_is_one_line(module):
    """While typer is imported it was a traceback, later exit code 130 without a word."""
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED.format(module=module)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("robot-perf: interrupted")
    assert len(done.stderr.splitlines()) == 1


def command(tmp_path: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "robot_perf.cli", "deadline", "null", *PASSES, "-o", str(tmp_path / "r.parquet")]
    return [*words, *more]


@pytest.mark.parametrize("how", [(), ("--quiet",), ("--json",), ("--github",)], ids=" ".join)
def test_a_reader_that_has_left_does_not_change_the_verdict(tmp_path, how):
    """typer's own answer is exit code 1, which means FAIL."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(tmp_path, *how), stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=120
    )
    os.close(writing)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.parametrize("how", [(), ("--quiet",), ("--json",), ("--github",)], ids=" ".join)
def test_a_reader_that_has_left_does_not_turn_fail_into_pass(tmp_path, how):
    """`| head -1` ended a FAIL with 0, and its JUnit file was never written."""
    reading, writing = os.pipe()
    os.close(reading)
    words = [
        sys.executable,
        "-m",
        "robot_perf.cli",
        "deadline",
        "spin:4000",
        "--rate",
        "200",
        "--deadline-ms",
        "2",
        "--steps",
        "60",
    ]
    junit = ("--junit", str(tmp_path / "j.xml"), "-o", str(tmp_path / "r.parquet"))
    done = subprocess.run(
        [*words, *junit, *how], stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=120
    )
    os.close(writing)
    assert done.returncode == 1, done.stderr
    assert "<failure" in (tmp_path / "j.xml").read_text()


@pytest.mark.parametrize("how", [(), ("--quiet",), ("--json",)], ids=" ".join)
def test_a_full_disk_behind_stdout_costs_the_text_not_the_run(tmp_path, how):
    with Path("/dev/full").open("w", encoding="ascii") as full:
        done = subprocess.run(
            command(tmp_path, *how), stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120
        )
    assert done.returncode == 2
    assert "can't be written: No space left on device" in done.stderr
    assert "defect" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert load(tmp_path / "r.parquet").conditions["state"] == "complete"


def test_a_closed_stdout_is_no_defect(tmp_path):
    done = subprocess.run(
        command(tmp_path), stderr=subprocess.PIPE, text=True, check=False, timeout=120, preexec_fn=lambda: os.close(1)
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_that_was_closed_does_not_end_the_measurement(tmp_path, monkeypatch):
    """A session that was left with `disown` gets no signal: its next line meets EIO."""

    def gone(_text: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("robot_perf.cli.progress.show", gone)
    assert call("deadline", "null", *PASSES, "-o", tmp_path / "r.parquet") == 0
    assert load(tmp_path / "r.parquet").conditions["state"] == "complete"


def test_a_junit_file_that_can_t_be_written_does_not_cost_the_verdict(tmp_path, capsys):
    code = call("deadline", "null", *PASSES, "-o", tmp_path / "r.parquet", "--junit", "/dev/full", "--force", "--quiet")
    told = capsys.readouterr()
    assert code == 2
    assert told.out.startswith("PASS")
    assert "/dev/full can't be written" in told.err


@pytest.mark.parametrize(
    "words",
    [["deadline", "{}", "--rate", "50"], ["report", "{}"], ["deadline", "null", "--rate", "50", "-o", "{}"]],
    ids=str,
)
@pytest.mark.parametrize("name", ["n" * 300, "locked/policy.onnx"])
def test_a_name_that_the_system_refuses_is_the_persons(tmp_path, monkeypatch, capsys, words, name):
    """It was called a defect of robot-perf, with the exit code of INVALID."""
    if name.startswith("locked"):
        if os.geteuid() == 0:
            pytest.skip("root may search every folder")
        (tmp_path / "locked").mkdir(mode=0)
    monkeypatch.chdir(tmp_path)
    assert call(*[word.format(name) for word in words]) == 2
    assert "defect" not in capsys.readouterr().err


def test_a_folder_that_was_deleted_is_said(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); from robot_perf.cli.__main__ import main; main(sys.argv[1:])"
    words = ["deadline", "null", "--rate", "50", "--steps", "20"]
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=gone, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == 2
    assert "the current folder has been deleted" in done.stderr


def test_a_requirement_out_of_range_is_refused_before_the_measurement(tmp_path, capsys):
    """The Run was measured, saved and never readable again."""
    for wrong in ("-1", "99999999999"):
        assert call("deadline", "null", "--rate", "50", "--max-consecutive", wrong, "-o", tmp_path / "r.parquet") == 2
        assert "--max-consecutive" in capsys.readouterr().err
    assert not (tmp_path / "r.parquet").exists()
