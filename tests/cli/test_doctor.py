"""The command `doctor`: one document, no change of the machine, exit code 0."""

from __future__ import annotations

import json

from cli_calls import call
from fake_runs import MS, US, executions, make_run

from robot_perf.analyze.doctor import CHECKS
from robot_perf.analyze.summary import summarize
from robot_perf.tasks.machine import floor as doctor_floor


def test_text(capsys):
    assert call("doctor") == 0
    out = capsys.readouterr().out
    assert out.startswith("host       kernel ")
    assert "nothing was changed" in out or "nothing here hurts" in out
    assert "\x1b" not in out


def test_json(capsys):
    assert call("doctor", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [f["check"] for f in document["findings"]] == [c.name for c in CHECKS]
    assert document["to_mend"] == sum(f["outcome"] == "mend" for f in document["findings"])
    assert "floor" not in document


def test_floor(capsys, monkeypatch):
    run = make_run(executions(200, typical_ns=US), period_ns=MS)
    rows = (doctor_floor.Floor("as found", summarize(run), ("SCHED_FIFO 80 refused",)),)
    monkeypatch.setattr(doctor_floor, "measure_floor", lambda: rows)
    assert call("doctor", "--floor", "--json") == 0
    floor = json.loads(capsys.readouterr().out)["floor"]
    assert floor[0]["settings"] == "as found"
    assert floor[0]["refused"] == ["SCHED_FIFO 80 refused"]
    assert floor[0]["wakeup"]["n"] == 200
    assert call("doctor", "--floor") == 0
    assert "floor      the null policy every 1 ms, 200 releases a row" in capsys.readouterr().out


def test_ctrl_c_ends_all_of_a_floor(capsys, monkeypatch):
    """Its second measurement began where the first one was interrupted."""
    begun = []

    def interrupted(prepared):
        begun.append(prepared)
        return make_run(executions(20), state="interrupted by SIGINT after 20 of 5,000 releases"), None

    monkeypatch.setattr("robot_perf.tasks.deadline.run_deadline", interrupted)
    assert call("doctor", "--floor", "--json") == 4
    assert len(begun) == 1
    assert "interrupted" in capsys.readouterr().err
