"""A process killed while it makes a step map leaves a file of that size in memory: the next one to make a map, or `recover`, removes it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from robot_perf.errors import RunFileError
from robot_perf.run import stepmap
from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.stepmap import StepMap
from robot_perf.run.unfinished import remove_left_over
from robot_perf.specs import Budget, LoopSpec, PolicySpec, to_json

REQUEST = {
    "policy": to_json(PolicySpec("p", "builtin")),
    "loop": to_json(LoopSpec(period_ns=1000, deadline_ns=1000, steps=50)),
    "budget": to_json(Budget(1000)),
    "backend": {"name": "python"},
}

# Held up once the memory is taken, as where the machine has to make room for it.
MAKER = """
import json, os, sys
from pathlib import Path
from robot_perf.run import stepmap
from robot_perf.run.columns import STEP_COLUMNS
write = os.pwrite
def held_up(*given):
    print("making", flush=True)
    sys.stdin.read()
    return write(*given)
os.pwrite = held_up
stepmap.StepMap.create(Path(sys.argv[1]), json.loads(sys.argv[2]), STEP_COLUMNS, 64)
"""


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of making `a.map`."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(tmp_path / "a.map"), json.dumps(REQUEST)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "making\n"
    yield process
    if process.returncode is None:
        killed(process)


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def made(path: Path) -> Path:
    StepMap.create(path, REQUEST, STEP_COLUMNS, 64).close()
    return path


def test_the_next_map_removes_what_a_killed_maker_left(maker: subprocess.Popen[str], tmp_path: Path) -> None:
    killed(maker)
    (left,) = tmp_path.iterdir()
    assert left.stat().st_size > 1 << 20
    made(tmp_path / "b.map")
    assert [p.name for p in tmp_path.iterdir()] == ["b.map"]


def test_recover_removes_it_too(maker: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from robot_perf.tasks import recover

    monkeypatch.setattr(recover, "MAP_FOLDER", tmp_path)
    recover.orphans()
    assert len(list(tmp_path.iterdir())) == 1
    killed(maker)
    recover.orphans()
    assert list(tmp_path.iterdir()) == []


def test_a_living_makers_map_stays_and_is_finished(maker: subprocess.Popen[str], tmp_path: Path) -> None:
    made(tmp_path / "b.map")
    assert remove_left_over(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 2
    maker.communicate()  # it goes on
    assert maker.returncode == 0
    StepMap.open(tmp_path / "a.map").close()


def test_whoever_made_it_but_could_not_lock_it_in_time_makes_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock, removed = fcntl.flock, []

    def late(file: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not removed:
            removed.extend(remove_left_over(tmp_path))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    StepMap.open(made(tmp_path / "a.map")).close()
    assert len(removed) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.map"]


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_what_cannot_be_finished_is_not_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: BaseException
) -> None:
    def ends(*_: object) -> int:
        raise ending

    monkeypatch.setattr(stepmap.os, "pwrite", ends)
    files = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises((RunFileError, KeyboardInterrupt)):
        made(tmp_path / "a.map")
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"")
    folder = tmp_path / "maps"
    folder.mkdir()
    (folder / "firmware.map.new").write_text(".text 0x08000000")  # a linker's
    (folder / "link.map.new").symlink_to(elsewhere)
    (folder / "folder.map.new").mkdir()
    os.mkfifo(folder / "pipe.map.new")
    assert remove_left_over(folder) == []
    assert len(list(folder.iterdir())) == 4


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert remove_left_over(tmp_path / "runs") == []


def test_a_file_system_without_locks_only_keeps_what_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "left.map.new").write_bytes(bytes(100))

    def refused(_file: int, _how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refused)
    made(tmp_path / "a.map")
    assert {p.name for p in tmp_path.iterdir()} == {"a.map", "left.map.new"}
