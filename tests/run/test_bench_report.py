"""bench.json: there and back, and one clear error for anything else."""

from __future__ import annotations

import json

import pytest

from robot_perf.errors import RunFileError
from robot_perf.run.bench_report import (
    BenchReport,
    Block,
    Figure,
    Machine,
    Point,
    PolicyHead,
    Row,
    load,
    save,
    to_document,
)


def report() -> BenchReport:
    block = Block(
        3, 250, 100, None, 900, 5_000, 20, True, 0.02, 120.5, (345_000_000, 1_980_000_000), None, 31.0, ("power cap",)
    )
    point = Point(
        "50", 20_000_000, n=250, execution=(Figure("p50", 100, 90, 110),), curve=((0.5, 100),), blocks=(block,)
    )
    row = Row("mlp", "graph", "cuda_graph", {"device": "cuda:0"}, facts={"captured": True}, first_calls_ns=(5, 4, 3), points=(point,), cold_start_ns={"load_ns": 7})  # fmt: skip
    return BenchReport(Machine("NVIDIA H200"), (PolicyHead("mlp", None, "obs", "a", 1, "none"),), (row,), rates=("50",))


def test_there_and_back(tmp_path):
    path = save(report(), tmp_path / "deep" / "bench.json")
    assert load(path) == report()
    assert load(path).rows[0].first_action_ns == 12


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not JSON"),
        ("[]", "no bench report"),
        ('{"schema": "robot-perf/bench-9"}', "no bench report"),
        ('{"schema": "robot-perf/bench-1"}', "damaged"),
        ('{"schema": "robot-perf/bench-1", "machine": 3, "policies": [], "rows": []}', "damaged"),
        ("\xff", "not JSON"),
    ],
)
def test_anything_else_is_one_clear_error(tmp_path, text, word):
    path = tmp_path / "bench.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RunFileError, match=word):
        load(path)


def test_absent_is_said(tmp_path):
    with pytest.raises(RunFileError, match="can't be read"):
        load(tmp_path / "bench.json")


def test_a_figure_that_is_no_number_is_damage(tmp_path):
    document = to_document(report())
    document["rows"][0]["points"][0]["execution"][0]["value_ns"] = "<b>fast</b>"
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(RunFileError, match="damaged"):
        load(path)


def test_a_report_that_can_t_be_written_is_one_message_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "bench.json").mkdir()
    for path in (tmp_path / "file" / "bench.json", tmp_path / "bench.json"):
        with pytest.raises(RunFileError, match="can't be written"):
            save(report(), path)
    assert {p.name for p in tmp_path.iterdir()} == {"file", "bench.json"}
