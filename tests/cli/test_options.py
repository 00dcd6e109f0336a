"""Writing a report: what the disk refuses is one message, no defect of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_perf.cli import COMMANDS
from robot_perf.cli.options import check_output, in_range, write_output
from robot_perf.errors import UsageError

CLI = Path(__file__).resolve().parents[2] / "robot_perf" / "cli"


@pytest.mark.parametrize("text", ["words", b"bytes"])
def test_a_full_disk_is_one_message(text):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(UsageError, match="/dev/full can't be written") as caught:
        write_output(Path("/dev/full"), text, force=True)
    assert "No space left" in caught.value.detail


def test_a_folder_that_can_t_be_written_is_said_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # a read-only mount; root may write everywhere else
    with pytest.raises(UsageError, match=r"j\.xml can't be written") as caught:
        check_output(tmp_path / "j.xml", force=False)
    assert str(tmp_path) in caught.value.why


def test_words_and_bytes_are_written(tmp_path):
    write_output(tmp_path / "a.md", "µs\n", force=False)
    write_output(tmp_path / "b.png", b"\x89PNG", force=False)
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == "µs\n"
    assert (tmp_path / "b.png").read_bytes() == b"\x89PNG"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_imports_another(name):
    """What two of them share lies in options and parsing."""
    module = COMMANDS[name][0]
    users = [
        f.name
        for f in CLI.glob("*.py")
        if f.stem != module.rpartition(".")[2] and f"from {module} import" in f.read_text()
    ]
    assert users == []


@pytest.mark.parametrize("value", [float("nan"), 0, 11])
def test_a_number_out_of_range_is_refused_with_the_range(value):
    with pytest.raises(UsageError, match="--n") as caught:
        in_range("--n", value, 1, 10)
    assert caught.value.why == "Allowed: 1 to 10."
    assert in_range("--n", 10, 1, 10) == 10
