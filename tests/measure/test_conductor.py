"""Real worker processes: whatever happens to them, the completed steps are kept and the Run says what happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from robot_perf.analyze.verdict import judge
from robot_perf.errors import RobotPerfError
from robot_perf.run.maps import MAP_FOLDER
from robot_perf.run.parquet import load
from robot_perf.run.stepmap import Phase, StepMap, Word
from robot_perf.tasks.deadline import DeadlineRequest, prepare, run_deadline

SCRIPTED = "robot_perf.policies.scripted:"


def measure(
    tmp_path: Path, policy: str, *, rate: str = "500", steps: int = 200, look=None, hang_s: float = 20.0, **options
):
    request = DeadlineRequest(
        policy=policy,
        rate_hz=rate,
        steps=steps,
        warmup_max=60,
        policy_options=options,
        output=tmp_path / "run.parquet",
        hang_s=hang_s,
    )
    run, path = run_deadline(prepare(request), look)
    assert load(path).conditions["state"] == run.conditions["state"]
    assert not list(tmp_path.glob("*.map")), "the disk copy is gone once the Run is there"
    return run


def test_null_completes_and_keeps_its_grid(tmp_path):
    run = measure(tmp_path, "null", steps=300)
    assert run.conditions["state"] == "complete"
    assert run.conditions["reached"] == 300
    measured = run.measured
    grid = run.conditions["origin_ns"] + measured["step"] * run.loop.period_ns
    assert np.array_equal(measured["release_ns"], grid)
    waited = measured["wake_ns"] != -1
    assert (measured["wake_ns"][waited] >= measured["release_ns"][waited]).all()
    assert (measured["start_ns"] <= measured["end_ns"]).all()
    assert (measured["own_ns"] > 0).all()
    assert (measured["cpu"] >= 0).all()
    assert len(run.warmup["step"]) >= 20
    assert run.warmup["step"][-1] == -1
    assert run.conditions["cold_start"]["process_ns"] > 0
    assert run.conditions["gc"]["collections"] >= 0
    assert run.conditions["real_time"]["scheduler"] == "SCHED_OTHER"


def test_known_duration_is_read_back(tmp_path):
    run = measure(tmp_path, "spin:2000", rate="100", steps=60)
    execution = run.measured["end_ns"] - run.measured["start_ns"]
    # The lower edge is exact: a busy-wait can't end early. The upper one is the selftest's business on a quiet machine.
    assert execution.min() >= 2_000_000


def test_a_policy_that_raises_is_saved_with_its_frames(tmp_path):
    run = measure(tmp_path, SCRIPTED + "raises", at=150, message="no such joint")
    assert judge(run).status == "INVALID"
    assert "no such joint" in run.conditions["state"]
    assert len(run.measured["step"]) + len(run.warmup["step"]) == 150
    assert run.conditions["in_flight"] is not None


@pytest.mark.parametrize(
    ("how", "word"), [("segfault", "SIGSEGV"), ("abort", "SIGABRT"), ("kill", "SIGKILL"), ("exit", "exit code 3")]
)
def test_a_policy_that_ends_the_interpreter_loses_no_step(tmp_path, how, word):
    run = measure(tmp_path, SCRIPTED + "exits", at=150, how=how)
    assert word in run.conditions["state"]
    assert len(run.measured["step"]) + len(run.warmup["step"]) == 150
    assert judge(run).status == "INVALID"


def test_a_hang_is_found_and_ended(tmp_path):
    begin = time.monotonic()
    run = measure(tmp_path, SCRIPTED + "hangs", at=100, seconds=300, hang_s=1.0)
    assert time.monotonic() - begin < 60
    assert "hung" in run.conditions["state"]
    assert len(run.measured["step"]) + len(run.warmup["step"]) == 100
    assert judge(run).status == "INVALID"


def test_nan_is_invalid_whatever_its_latency(tmp_path):
    run = measure(tmp_path, SCRIPTED + "not_finite", at=150)
    verdict = judge(run)
    assert verdict.status == "INVALID"
    assert "NaN" in " ".join(verdict.invalid)


def test_printing_policies_are_drained_and_counted(tmp_path):
    run = measure(tmp_path, SCRIPTED + "prints", text="x" * 200)
    calls = len(run.measured["step"]) + len(run.warmup["step"])
    assert run.conditions["printed"]["stdout_bytes"] == 201 * calls
    run = measure(tmp_path / "fd", SCRIPTED + "prints", text="y" * 200, fd=True)
    assert run.conditions["printed"]["stdout_bytes"] >= 201 * 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_conductor_end_in_a_saved_run(tmp_path, number):
    sent = threading.Event()

    def look(stepmap: StepMap) -> None:
        if stepmap[Word.PHASE] == Phase.RUNNING and stepmap.reached() > 20 and not sent.is_set():
            sent.set()
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    run = measure(tmp_path, "null", rate="100", steps=2000, look=look)
    assert signal.getsignal(number) is before
    assert f"interrupted by {signal.Signals(number).name}" in run.conditions["state"]
    assert 20 < len(run.measured["step"]) < 2000
    assert judge(run).status == "INVALID"


def test_an_unloadable_policy_is_one_message(tmp_path):
    with pytest.raises(RobotPerfError) as caught:
        measure(tmp_path, "robot_perf.policies.scripted:absent")
    assert caught.value.exit_code == 2
    assert not (tmp_path / "run.parquet").exists()


def test_a_rate_beyond_the_timer_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(RobotPerfError, match="shorter than this host's timer"):
        measure(tmp_path, "null", rate="1000000", steps=10)


def test_the_worker_dies_with_its_conductor_and_recover_makes_a_run(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from robot_perf.tasks.deadline import *\n"
        "r = DeadlineRequest(policy='robot_perf.policies.scripted:witness', rate_hz='500', steps=100000, warmup_max=30,\n"
        "    policy_options={'path': sys.argv[1], 'base_us': 20}, output=Path(sys.argv[2]))\n"
        "run_deadline(prepare(r))\n"
    )
    witness, output = tmp_path / "witness", tmp_path / "run.parquet"
    known = set(MAP_FOLDER.glob("*.map")) if MAP_FOLDER.is_dir() else set()
    process = subprocess.Popen([sys.executable, "-c", code, str(witness), str(output)])
    try:
        mine = _wait_for_map(known)
        _wait(lambda: StepMap.open(mine).reached() > 100)
    finally:
        process.kill()
        process.wait()
    stepmap = StepMap.open(mine)
    _wait(lambda: not Path(f"/proc/{stepmap[Word.WORKER_PID]}").exists() or _zombie(stepmap[Word.WORKER_PID]))
    from robot_perf.policies.scripted import witnessed
    from robot_perf.tasks.recover import orphans, recover

    assert mine in [e.path for e in orphans()]
    run, path = recover(mine, output)
    assert path == output
    assert not mine.exists()
    assert len(run.columns["step"]) >= witnessed(str(witness)) - 1
    assert judge(run).status == "INVALID"


def _zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def _wait_for_map(known: set[Path]) -> Path:
    found: list[Path] = []

    def look() -> bool:
        found[:] = [p for p in MAP_FOLDER.glob("*witness*.map") if p not in known] if MAP_FOLDER.is_dir() else []
        return bool(found)

    _wait(look)
    return found[0]


def _wait(condition, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened in time"
        time.sleep(0.02)


def test_order_and_report_are_plain_json(tmp_path):
    run = measure(tmp_path, "null", steps=20)
    json.dumps(dict(run.conditions), allow_nan=False)
