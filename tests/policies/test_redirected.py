"""Output of a policy: caught on sys.stdout and on descriptor 1, flushed on both edges, counted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import redirected
from redirected import Redirected

RUN = """
import os, sys
from redirected import Redirected
sys.stdout.write("before ")            # buffered, belongs to us
with Redirected({target}) as out:
    print("from python")
    os.write(1, b"from fd one\\n")
    counted = out.count()
    print("more")
sys.stdout.write(f"after {{counted}} {{out.count()}}")
"""


@pytest.mark.parametrize("target", ["None", "'stderr'", "'captured.txt'"])
def test_stdout_stays_ours(tmp_path: Path, target: str) -> None:
    import subprocess

    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(target=target)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tests" / "helpers")))},
        capture_output=True,
        text=True,
        check=True,
    )
    counted, total = (12, 17) if target == "'stderr'" else (24, 29)
    assert done.stdout == f"before after {counted} {total}"
    if target == "'stderr'":
        assert done.stderr == "from python\nfrom fd one\nmore\n"
    if target == "'captured.txt'":
        assert (tmp_path / "captured.txt").read_text() == "from python\nfrom fd one\nmore\n"


def test_bytes_are_counted_when_they_are_written(capfd: pytest.CaptureFixture[str]) -> None:
    with Redirected() as out:
        counts = []
        for k in range(4):
            if k % 2:
                print("x" * 85)
            counts.append(out.count())
        assert "xxx" in out.text()
    assert counts == [0, 86, 86, 172]
    assert out.text().count("\n") == 2
    assert capfd.readouterr().out == ""


def test_a_capture_is_bounded_and_still_counts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(redirected, "LARGEST_CAPTURE", 1000)
    with Redirected() as out:
        for _ in range(100):
            print("y" * 99)
            out.count()
        held = os.fstat(out._fd).st_size
    assert held <= 1100 and out.count() == 10_000
    assert capfd.readouterr().out == ""


def test_an_exception_restores_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with pytest.raises(RuntimeError), Redirected():
        raise RuntimeError
    assert sys.stdout is before
    print("ours")
    os.write(1, b"too\n")
    assert capfd.readouterr().out == "ours\ntoo\n"
