"""Folders of killed commands are removed by the next one; those of living ones, of others and what lies behind links stay."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from robot_perf.run import scratch
from robot_perf.run.maps import maps_of
from robot_perf.run.scratch import LOCK, Scratch, remove_left_over

OWNER = """
import sys
from robot_perf.run.scratch import Scratch
folder = Scratch("test-")
(folder.path / "deep").mkdir()
(folder.path / "deep" / "reference.npz").write_bytes(b"x" * 1000)
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this process and of those that it starts."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return place


def started() -> tuple[subprocess.Popen[str], Path]:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    return owner, Path(owner.stdout.readline().strip())


def killed(owner: subprocess.Popen[str]) -> None:
    owner.kill()
    owner.communicate()
    assert owner.returncode == -signal.SIGKILL


def test_a_folder_goes_with_its_block(temporary: Path) -> None:
    with Scratch("some-") as folder:
        assert folder.parent == temporary and folder.name.startswith("robot-perf-some-")
        (folder / "file").write_text("x")
    assert list(temporary.iterdir()) == []
    one = Scratch()
    one.close()
    one.close()


def test_the_next_command_removes_what_a_killed_one_left(temporary: Path) -> None:
    owner, folder = started()
    killed(owner)
    assert (folder / "deep" / "reference.npz").exists()
    with Scratch() as own:
        assert list(temporary.iterdir()) == [own]


def test_a_living_owner_keeps_its_folder() -> None:
    owner, folder = started()
    try:
        with Scratch() as own:
            assert remove_left_over(own.parent) == []
            assert (folder / "deep" / "reference.npz").exists() and (own / LOCK).exists()
    finally:
        killed(owner)
    assert remove_left_over(folder.parent) == [folder]


def test_a_forked_child_keeps_the_folder_of_its_dead_parent() -> None:
    code = OWNER.replace(
        "sys.stdin.read()",
        "import os, signal, time\nif os.fork():\n    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
    )
    code = code.replace("print(folder.path, flush=True)", "import os\nprint(folder.path, os.getpid(), flush=True)")
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().split()[0])
    assert owner.wait(10) == -signal.SIGKILL
    assert remove_left_over(folder.parent) == []
    os.killpg(owner.pid, signal.SIGKILL)
    owner.stdout.read()  # until the child is gone
    assert remove_left_over(folder.parent) == [folder]
    owner.stdout.close()


def test_a_lock_is_held_before_it_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    rename = Path.rename

    def look(self: Path, target: Path) -> Path:
        with self.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(remove_left_over(self.parent.parent))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", look)
    with Scratch() as folder:
        assert seen == [[]] and (folder / LOCK).exists()


def test_a_folder_without_a_lock_is_not_ours_to_remove(temporary: Path) -> None:
    (temporary / "robot-perf-abc").mkdir()
    (temporary / "robot-perf-file").write_text("x")
    assert remove_left_over(temporary) == []
    assert len(list(temporary.iterdir())) == 2


def test_another_users_folder_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, folder = started()
    killed(owner)
    me = os.geteuid()
    monkeypatch.setattr(scratch.os, "geteuid", lambda: me + 1)
    assert remove_left_over(folder.parent) == [] and folder.exists()


def test_a_lock_of_another_user_in_a_folder_of_ours_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, folder = started()
    killed(owner)
    answers = iter([os.geteuid(), os.geteuid() + 1])
    monkeypatch.setattr(scratch.os, "geteuid", lambda: next(answers))
    assert remove_left_over(folder.parent) == [] and folder.exists()


def test_nothing_is_removed_through_a_link(temporary: Path, tmp_path: Path) -> None:
    owner, folder = started()
    killed(owner)
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)  # the folder is a link
    assert remove_left_over(temporary) == [] and (elsewhere / "deep" / "reference.npz").exists()
    folder.unlink()
    folder.mkdir()
    (folder / LOCK).symlink_to(elsewhere / LOCK)  # its lock is one
    assert remove_left_over(temporary) == [] and folder.exists()
    (folder / LOCK).unlink()
    (folder / LOCK).write_text("")
    (folder / "inside").symlink_to(elsewhere)  # it holds one: the link goes, not what it leads to
    assert remove_left_over(temporary) == [folder]
    assert (elsewhere / "deep" / "reference.npz").exists()


def test_a_pipe_instead_of_a_lock_holds_nobody_up(temporary: Path) -> None:
    (temporary / "robot-perf-pipe").mkdir()
    os.mkfifo(temporary / "robot-perf-pipe" / LOCK)
    assert remove_left_over(temporary) == []


def test_a_file_system_without_locks_only_keeps_what_is_left(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    def refused(_file: int, _how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refused)
    with Scratch() as folder:
        assert not (folder / LOCK).exists() and remove_left_over(temporary) == []
    assert list(temporary.iterdir()) == []


def test_a_killed_conductor_leaves_nothing_past_the_next_start(temporary: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "robot_perf.cli", "deadline", "null", "--rate", "100", "--quiet"]
    name = f"killed-{os.getpid()}.parquet"
    first = subprocess.Popen([*command, "--steps", "5000", "-o", str(tmp_path / name)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not list(temporary.glob("robot-perf-*/" + LOCK)) and time.monotonic() < until:
        time.sleep(0.05)
    first.kill()
    first.wait()
    for entry in maps_of(tmp_path / name):  # what `recover` would find
        entry.path.unlink()
    (left,) = (p.parent for p in temporary.glob("robot-perf-*/" + LOCK))
    subprocess.run(
        [*command, "--steps", "20", "-o", str(tmp_path / "b.parquet")], check=False, stdout=subprocess.DEVNULL
    )
    assert not left.exists()
    assert [p for p in temporary.iterdir() if p.is_dir()] == []
