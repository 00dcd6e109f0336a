"""The command `selftest`: what it says of its readings, and how it ends."""

from __future__ import annotations

import pytest
from cli_calls import call
from fake_runs import executions, make_run

from robot_perf.tasks.machine import selftest as task


def told(monkeypatch: pytest.MonkeyPatch, *holds: bool) -> None:
    def readings(*, quick: bool, on_reading):
        found = [task.Reading(f"reading {i}", "p50 50 µs ± 5", "p50 50.6 µs", 99, h) for i, h in enumerate(holds)]
        for reading in found:
            on_reading(reading)
        return found

    monkeypatch.setattr(task, "selftest", readings)


def test_the_last_line_answers(monkeypatch, capsys):
    told(monkeypatch, True, True)
    assert call("selftest") == 0
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "all 2 readings hold: this installation can be believed on this machine"
    )
    told(monkeypatch, True, False)
    assert call("selftest") == 1
    out = capsys.readouterr().out
    assert "FAIL  reading 1" in out
    assert "1 of 2 readings do not hold" in out


def test_ctrl_c_ends_it(monkeypatch, capsys):
    """It went on with the next reading, and a reading without a step was called a defect."""
    begun = []

    def interrupted(prepared):
        begun.append(prepared)
        return make_run(executions(0), state="interrupted by SIGINT in warm-up"), None

    monkeypatch.setattr(task, "run_deadline", interrupted)
    assert call("selftest", "--quick") == 4
    assert len(begun) == 1
    assert capsys.readouterr().err.startswith("robot-perf: interrupted")
