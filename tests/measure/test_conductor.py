"""Real worker processes: whatever happens to them, the completed steps are kept and the Run says what happened."""

from __future__ import annotations

import importlib
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
from robot_perf.measure.processes.process import on_ending
from robot_perf.run.maps import MAP_FOLDER
from robot_perf.run.parquet import load
from robot_perf.run.stepmap import Phase, StepMap, Word
from robot_perf.tasks.deadline import DeadlineRequest, prepare, run_deadline

SCRIPTED = "robot_perf.policies.scripted:"


def measure(
    tmp_path: Path,
    policy: str,
    *,
    rate: str = "500",
    steps: int = 200,
    overrun: str = "skip",
    look=None,
    hang_s: float = 20.0,
    **options,
):
    """`overrun="queue"` where a certain call is meant to do something: a machine that stands still skips the releases before it."""
    request = DeadlineRequest(
        policy=policy,
        rate_hz=rate,
        steps=steps,
        overrun=overrun,
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


def test_warm_up_counts_calls_and_not_the_releases_that_one_slow_call_skipped(tmp_path):
    """The first call takes 25 ms at a period of 2 ms; eleven releases are skipped, twenty calls are made all the same."""
    run = measure(tmp_path, SCRIPTED + "stalls", steps=50, every=1000, stall_us=25_000, base_us=50)
    assert len(run.warmup["step"]) == run.conditions["warmup"]["calls"] >= 20


def test_known_duration_is_read_back(tmp_path):
    run = measure(tmp_path, "spin:2000", rate="100", steps=60)
    execution = run.measured["end_ns"] - run.measured["start_ns"]
    # The lower edge is exact: a busy-wait can't end early. The upper one is the selftest's business on a quiet machine.
    assert execution.min() >= 2_000_000


def test_a_policy_that_raises_is_saved_with_its_frames(tmp_path):
    run = measure(tmp_path, SCRIPTED + "raises", at=150, message="no such joint", overrun="queue")
    assert judge(run).status == "INVALID"
    assert "no such joint" in run.conditions["state"]
    assert calls(run) == 150
    assert run.conditions["in_flight"] is not None


def test_what_a_policy_raised_says_where_and_once(tmp_path, monkeypatch):
    """At night the line is what is looked for. The verdict gave the error twice and no place."""
    (tmp_path / "walk_policy.py").write_text(
        "import numpy as np\n"
        "class Walk:\n"
        "    calls = 0\n"
        "    def spec(self):\n"
        "        return {'inputs': {'obs': [1, 4]}, 'outputs': {'a': [1, 4]}}\n"
        "    def step(self, inputs):\n"
        "        self.calls += 1\n"
        "        if self.calls > 150:\n"
        "            raise ValueError('no joint 3')\n"
        "        return [inputs['obs']]\n"
    )
    monkeypatch.chdir(tmp_path)
    run = measure(tmp_path, "walk_policy:Walk", overrun="queue")
    verdict = judge(run)
    assert verdict.reason.endswith("ValueError: no joint 3 (walk_policy.py:9 in step)")
    assert len(verdict.invalid) == 1


@pytest.mark.parametrize(
    ("how", "word"), [("segfault", "SIGSEGV"), ("abort", "SIGABRT"), ("kill", "SIGKILL"), ("exit", "exit code 3")]
)
def test_a_policy_that_ends_the_interpreter_loses_no_step(tmp_path, how, word):
    run = measure(tmp_path, SCRIPTED + "exits", at=150, how=how, overrun="queue")
    assert word in run.conditions["state"]
    assert calls(run) == 150
    assert judge(run).status == "INVALID"


def test_a_hang_is_found_and_ended(tmp_path):
    begin = time.monotonic()
    run = measure(tmp_path, SCRIPTED + "hangs", at=100, seconds=300, hang_s=1.0, overrun="queue")
    assert time.monotonic() - begin < 60
    assert "hung" in run.conditions["state"]
    assert calls(run) == 100
    assert judge(run).status == "INVALID"


def test_nan_is_invalid_whatever_its_latency(tmp_path):
    run = measure(tmp_path, SCRIPTED + "not_finite", at=150, overrun="queue")
    verdict = judge(run)
    assert verdict.status == "INVALID"
    assert "NaN" in " ".join(verdict.invalid)


def calls(run) -> int:
    """A release that an overrun skipped is none."""
    return len(run.measured["step"]) + len(run.warmup["step"])


def test_printing_policies_are_drained_and_counted(tmp_path):
    run = measure(tmp_path, SCRIPTED + "prints", text="x" * 200)
    assert run.conditions["printed"]["stdout_bytes"] == 201 * calls(run)
    run = measure(tmp_path / "fd", SCRIPTED + "prints", text="y" * 200, fd=True)
    assert run.conditions["printed"]["stdout_bytes"] >= 201 * calls(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("hangup_heard")
def test_signals_to_the_conductor_end_in_a_saved_run(tmp_path, number):
    sent = threading.Event()

    def look(stepmap: StepMap) -> None:
        if stepmap[Word.PHASE] == Phase.RUNNING and stepmap.reached() > 20 and not sent.is_set():
            sent.set()
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    run = measure(tmp_path, "null", rate="100", steps=2000, overrun="queue", look=look)
    assert signal.getsignal(number) is before
    assert f"interrupted by {signal.Signals(number).name}" in run.conditions["state"]
    assert 20 < len(run.measured["step"]) < 2000
    assert judge(run).status == "INVALID"


def test_a_command_that_is_to_outlive_its_terminal_does():
    """nohup ignores SIGHUP before it starts the command."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        undo = on_ending(lambda number, frame: None)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        undo()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


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
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen([sys.executable, "-c", code, str(witness), str(output)], env=environment)
    try:
        mine = _wait_for_map(known)
        _wait(lambda: StepMap.open(mine).reached() > 100)
    finally:
        process.kill()
        process.wait()
    stepmap = StepMap.open(mine)
    _wait(lambda: _ended(stepmap[Word.WORKER_PID]))
    from robot_perf.policies.scripted import witnessed
    from robot_perf.tasks.recover import orphans, recover

    assert not list(temporary.glob("*.json")), "nobody is left who would remove the worker's order"
    assert mine in [e.path for e in orphans()]
    run, path = recover(mine, output)
    assert path == output
    assert not mine.exists()
    assert len(run.columns["step"]) >= witnessed(str(witness)) - 1
    assert judge(run).status == "INVALID"


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: it ended between the open and the read
        return True


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


def test_a_run_that_cannot_be_saved_leaves_its_map(tmp_path, monkeypatch):
    from robot_perf.errors import RunFileError
    from robot_perf.tasks.recover import recover

    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("robot_perf.tasks.saving.save", full)
    with pytest.raises(RunFileError, match="can't be saved") as caught:
        measure(tmp_path, "null", steps=60)
    path = Path(str(caught.value.do).split("recover ")[1].split()[0])
    assert "robot-perf recover" in caught.value.do
    monkeypatch.undo()
    # this very process, the conductor, still lives: as it would not after the message
    stepmap = StepMap.open(path, writable=True)
    stepmap[Word.CONDUCTOR_BORN] = -7
    stepmap.close()
    run, _ = recover(path, tmp_path / "saved.parquet")
    assert run.conditions["state"] == "complete"
    assert len(run.measured["step"]) > 0
    assert not path.exists()


def test_a_disk_that_fills_up_is_a_note(tmp_path, monkeypatch):
    """The policy waits for the first copy: the conductor of a busy machine may look only when 60 steps are over."""
    tried = tmp_path / "tried"
    (tmp_path / "waiting.py").write_text(
        "import pathlib, time, numpy as np\n"
        "class Policy:\n"
        "    calls = 0\n"
        "    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'actions': [1, 4]}}\n"
        "    def step(self, inputs):\n"
        "        self.calls += 1\n"
        f"        while self.calls > 20 and not pathlib.Path({str(tried)!r}).exists(): time.sleep(0.01)\n"
        "        return (inputs['obs'],)\n"
    )
    monkeypatch.chdir(tmp_path)

    def full(_self: object) -> None:
        tried.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("robot_perf.measure.processes.flush.DiskCopy.update", full)
    run = measure(tmp_path / "sub", "waiting:Policy", steps=60)
    assert run.conditions["state"] == "complete"
    assert any("power loss" in note for note in run.conditions["notes"])


def test_a_progress_callback_that_raises_leaves_no_worker(tmp_path):
    seen = []

    def look(stepmap: StepMap) -> None:
        if stepmap[Word.PHASE] == Phase.RUNNING:
            seen.append((stepmap[Word.WORKER_PID], stepmap.path))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure(tmp_path, "null", rate="100", steps=2000, look=look)
    pid, path = seen[0]
    assert _ended(pid)
    path.unlink()  # its steps were kept
    for copy in tmp_path.glob("*.map"):
        copy.unlink()


def test_a_strided_action_is_no_defect(tmp_path, monkeypatch):
    (tmp_path / "strided.py").write_text(
        "import numpy as np\n"
        "class Policy:\n"
        "    def __init__(self): self.chunk = np.zeros((4, 32), np.float32)\n"
        "    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'actions': [4, 7]}}\n"
        "    def step(self, inputs): return (self.chunk[:, :7],)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    run = measure(tmp_path, "strided:Policy", steps=60)
    assert run.conditions["state"] == "complete"
    assert not run.conditions["invalid"]


WRITER = (
    "import numpy as np\n"
    "class Policy:\n"
    "    def __init__(self, after=0): self.after, self.calls = after, 0\n"
    "    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'actions': [1, 4]}}\n"
    "    def step(self, inputs):\n"
    "        self.calls += 1\n"
    "        obs = inputs['obs']\n"
    "        if self.calls > self.after: obs *= 0.25\n"
    "        return (obs.copy(),)\n"
)


def test_a_policy_that_normalises_in_place_is_fed_what_was_recorded(tmp_path, monkeypatch):
    """Its answers are right each time that an observation comes round, and the gate holds them against the recorded ones."""
    (tmp_path / "writer.py").write_text(WRITER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    fed = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 1, 4)
    np.savez(tmp_path / "recorded.npz", **{"in.obs": fed, "out.actions": fed * np.float32(0.25)})
    request = DeadlineRequest(
        policy="writer:Policy",
        rate_hz="200",
        steps=60,
        observations=tmp_path / "recorded.npz",
        output=tmp_path / "r.parquet",
    )
    run, _ = run_deadline(prepare(request))
    assert run.conditions["outputs_checked"] == {"0": 3}
    assert not run.conditions["invalid"]
    assert any("writes into its observation" in note for note in run.conditions["notes"])


def test_a_policy_that_begins_to_write_in_the_window_is_invalid(tmp_path, monkeypatch):
    (tmp_path / "writer.py").write_text(WRITER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    run = measure(tmp_path, "writer:Policy", steps=300, after=200, overrun="queue")
    assert any("wrote into its observation" in reason for reason in run.conditions["invalid"])
    assert judge(run).status == "INVALID"


def test_the_first_step_does_not_carry_the_start(tmp_path):
    run = measure(tmp_path, "null", steps=60)
    # the collection that precedes the freeze takes milliseconds, and belongs to no step
    assert run.measured["gc_ns"][0] < 1_000_000
    assert run.measured["minflt"][0] < 200


def test_a_hang_in_warmup_says_nothing_about_releases(tmp_path):
    run = measure(tmp_path, SCRIPTED + "hangs", at=5, seconds=300, hang_s=1.0)
    assert "hung" in run.conditions["state"]
    verdict = judge(run)
    assert verdict.status == "INVALID"
    assert verdict.releases == 0


@pytest.mark.parametrize("where", ["__init__", "reset"])
def test_a_hang_outside_a_step_is_found(tmp_path, monkeypatch, where):
    other = "reset" if where == "__init__" else "__init__"
    (tmp_path / "stuck.py").write_text(
        "import time, numpy as np\n"
        "class Policy:\n"
        f"    def {where}(self): time.sleep(0 if not hasattr(self, 'ran') and '{where}' == 'reset' else 300)\n"
        f"    def {other}(self): pass\n"
        "    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'actions': [1, 7]}}\n"
        "    def step(self, inputs):\n"
        "        self.ran = True\n"
        "        return (np.zeros((1, 7), np.float32),)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("robot_perf.measure.conductor._GRACE_S", 1.0)
    import dataclasses

    from robot_perf.measure import conductor

    whole = conductor._Conduct.__init__

    def hasty(self, plan, stepmap, on_progress):
        whole(self, dataclasses.replace(plan, load_s=2.0), stepmap, on_progress)

    monkeypatch.setattr(conductor._Conduct, "__init__", hasty)
    if where == "__init__":
        with pytest.raises(RobotPerfError, match="no sign of life"):
            measure(tmp_path, "stuck:Policy", steps=60, hang_s=0.3)
    else:
        run = measure(tmp_path, "stuck:Policy", steps=60, hang_s=0.3)
        assert "no sign of life" in run.conditions["state"]


def test_a_factory_that_contradicts_itself_is_a_load_error_and_keeps_its_cold_start(tmp_path, monkeypatch):
    (tmp_path / "liar.py").write_text(
        "import numpy as np\n"
        "class Policy:\n"
        "    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'actions': [1, 7]}}\n"
        "    def step(self, inputs): return (np.zeros((1, 7), np.float64),)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RobotPerfError, match="float64") as caught:
        measure(tmp_path, "liar:Policy", steps=60)
    assert caught.value.exit_code == 2
    assert not [p for p in MAP_FOLDER.glob("*.map") if f"-{os.getpid()}-" in p.name]


@pytest.mark.parametrize("moment", ["robot_perf.measure.conductor.run_from_map", "robot_perf.tasks.saving.save"])
def test_ctrl_c_after_the_measurement_waits_until_it_is_saved(tmp_path, monkeypatch, moment):
    """A Run of millions of rows takes seconds to make and to write: it was dropped, and its map left."""
    module, name = moment.rsplit(".", 1)
    work = getattr(importlib.import_module(module), name)

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return work(*arguments, **options)

    monkeypatch.setattr(moment, interrupted)
    run = measure(tmp_path, "null", steps=50)
    assert run.conditions["state"] == "complete"
    assert load(tmp_path / "run.parquet").conditions["state"] == "complete"
    assert not [p for p in MAP_FOLDER.glob("*.map") if f"-{os.getpid()}-" in p.name]


def test_two_runs_meant_for_one_name_keep_a_copy_on_disk_each(tmp_path):
    """Both wrote into one file, and the first to end removed it."""
    command = [sys.executable, "-m", "robot_perf.cli", "deadline", "null", "--rate", "100", "--steps", "3000", "--quiet",
               "--flush-s", "0.1", "--force", "-o", str(tmp_path / "r.parquet")]  # fmt: skip
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    until = time.monotonic() + 60
    while len(list(tmp_path.glob("*.map"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    copies = sorted(p.name for p in tmp_path.glob("*.map"))
    for process in both:
        process.send_signal(signal.SIGINT)
    assert [process.wait(60) for process in both] == [4, 4]
    assert copies == sorted(f"r-{process.pid}.map" for process in both)
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]
