"""What `roofline` and `ceiling --run` conclude when work could not be counted, or the Run can't be trusted: nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import executions, make_run

from robot_perf.cli.__main__ import main
from robot_perf.run.parquet import save

H100 = "H100 SXM"


@pytest.fixture
def text(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints; it must succeed."""

    def call(*arguments: str) -> str:
        try:
            main(list(arguments))
        except SystemExit as end:
            assert not end.code, capsys.readouterr().err
        return capsys.readouterr().out

    return call


@pytest.fixture
def document(text: Callable[..., str]) -> Callable[..., Any]:
    """The JSON document of a command."""
    return lambda *arguments: json.loads(text(*arguments, "--json"))


def behind_unknown(path: Path, kind: str) -> Path:
    """A file with a product whose shapes are known, and an operator of `kind` behind one of a shape that no rule gives."""
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["seen"]),
        h.make_node("NonZero", ["seen"], ["where"]),
        h.make_node("Cast", ["where"], ["found"], to=t.FLOAT),
        h.make_node("Transpose", ["found"], ["rows"]),
        h.make_node(kind, ["rows", "v"], ["hidden"]),
        h.make_node("ReduceSum", ["hidden", "axes"], ["sums"], keepdims=0),
        h.make_node("Add", ["seen", "sums"], ["action"]),
    ]
    held = [
        h.make_tensor("w", t.FLOAT, [4, 2], [0.0] * 8),
        h.make_tensor("v", t.FLOAT, [2, 2], [0.0] * 4),
        h.make_tensor("axes", t.INT64, [1], [0]),
    ]
    inputs = [h.make_tensor_value_info("x", t.FLOAT, [1, 4])]
    outputs = [h.make_tensor_value_info("action", t.FLOAT, [1, 2])]
    graph = h.make_graph(nodes, "hidden", inputs, outputs, held)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_an_invalid_run_has_no_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = "interrupted after 100 of 1,000 releases"
    path = save(make_run(executions(100), scheduled=1000, state=state), tmp_path / "run.parquet")
    with pytest.raises(SystemExit) as end:
        main(["ceiling", "--run", str(path), "--on", H100])
    out, said = capsys.readouterr()
    assert end.value.code == 2 and not out
    assert "is INVALID" in said and "interrupted" in said and "Measure it again" in said


def test_roofline_of_a_policy_with_cameras_counts_all_of_it(document: Callable[..., Any]) -> None:
    """Shapes go through the pool behind the first convolution: 20 convolutions and 40 products lie behind it."""
    pytest.importorskip("onnx")
    found = document("roofline", "act", "--on", H100)
    assert found["lower_bound"] is None and not found["uncounted"]
    assert found["flop"] == pytest.approx(34.93e9, rel=0.01) and found["limited_by"] == "compute"
    assert found["bytes"] > 136_947_768 and found["dram_applies"] is True


def test_roofline_concludes_nothing_from_a_part_of_the_work(
    tmp_path: Path, text: Callable[..., str], document: Callable[..., Any]
) -> None:
    """What could not be counted stands first, in text, JSON and on the page; its light operators alone withhold nothing."""
    path = behind_unknown(tmp_path / "hidden.onnx", "MatMul")
    found = document("roofline", str(path), "--on", H100)
    assert list(found)[1] == "lower_bound" and found["lower_bound"] == "not counted: 1 MatMul"
    assert all(
        found[k] is None for k in ("limited_by", "dram_applies", "intensity", "share_of_peak", "attainable_flop_s")
    )
    first = text("roofline", str(path), "--on", H100).splitlines()[0]
    assert "lower bound (not counted: 1 MatMul)" in first and "DRAM does not bound" not in first
    pytest.importorskip("plotly")
    page = tmp_path / "page.html"
    text("roofline", str(path), "--on", H100, "-o", str(page))
    assert "lower bound (not counted: 1 MatMul)" in page.read_text(encoding="utf-8")
    light = document("roofline", str(behind_unknown(tmp_path / "light.onnx", "Mul")), "--on", H100)
    assert light["uncounted"] and light["lower_bound"] is None and light["limited_by"] == "launch"


def test_roofline_shows_where_it_and_the_policys_own_count_differ(
    monkeypatch: pytest.MonkeyPatch, document: Callable[..., Any]
) -> None:
    from robot_perf.policies.formats import operators

    pytest.importorskip("onnx")
    counted = operators.count_operators

    def half(spec: Any) -> Any:
        found = counted(spec)
        return dataclasses.replace(found, operators=found.operators[2:])

    monkeypatch.setattr(operators, "count_operators", half)
    found = document("roofline", "mlp", "--on", H100)
    assert "by the policy's own count 379,904" in found["lower_bound"] and found["limited_by"] is None
    assert any(note.startswith("weight bytes") and "763,440" in note for note in found["notes"])
