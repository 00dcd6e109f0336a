"""The order file: there until it is read, then gone; a bench worker's and a load's too."""

from __future__ import annotations

import tempfile

import pytest

from robot_perf.measure.disturb.disturbance import Disturbance
from robot_perf.measure.disturb.load import parse_load
from robot_perf.measure.order import take_order, write_order


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_an_order_is_read_once(temporary):
    path = write_order({"µ": [1, None]})
    assert path.parent == temporary and path.is_file()
    assert take_order(path) == {"µ": [1, None]}
    assert not list(temporary.iterdir())


def test_a_running_load_has_no_order_file_left_to_lose(temporary):
    with Disturbance([parse_load("cpu:1")]):
        assert not list(temporary.iterdir())
