"""Writing a report: what the disk refuses is one message, no defect of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_perf.cli.options import check_output, write_output
from robot_perf.errors import UsageError


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
