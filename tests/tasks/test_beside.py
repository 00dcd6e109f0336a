"""A verdict alone and under a stated load: what is run, what is said of the load, what an interruption ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from robot_perf.measure.disturb.load import parse_load
from robot_perf.tasks import beside
from robot_perf.tasks.beside import run_under_load
from robot_perf.tasks.deadline import DeadlineRequest, prepare, run_deadline


@pytest.fixture
def prepared(tmp_path: Path):
    request = DeadlineRequest("null", "100", steps=60, output=tmp_path / "run.parquet")
    return prepare(request)


def test_the_second_run_says_what_the_load_achieved(prepared):
    found = run_under_load(prepared, [parse_load("camera:1x480p30")])
    assert [label for label, _, _ in found] == ["alone", "under camera:1x480p30"]
    notes = found[1][1].conditions["notes"]
    assert "measured under the stated load camera:1x480p30" in notes
    assert any(n.startswith("load camera:1x480p30: ") and "frames/s of each camera" in n for n in notes)
    assert all(path.is_file() for _, _, path in found)


def test_an_interruption_alone_is_not_followed_by_the_load(prepared, monkeypatch):
    """Ctrl-C ended the first run, and the program went on for the length of the second."""
    run, path = run_deadline(replace(prepared))
    stopped = beside.with_conditions(run, {"state": "interrupted by SIGINT after 20 of 60 releases"})
    monkeypatch.setattr(beside, "run_deadline", lambda *_: (stopped, path))
    monkeypatch.setattr(beside, "measure_deadline", lambda *_: pytest.fail("measured after Ctrl-C"))
    assert [label for label, _, _ in run_under_load(prepared, [parse_load("cpu:1")])] == ["alone"]
