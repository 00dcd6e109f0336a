"""Shapes of a policy's matrix products, read from the policy: what `diagnose --predict PATTERN@policy=…` predicts from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robot_perf import policies
from robot_perf.analyze.prediction import predict
from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies.formats.products import products
from robot_perf.tasks.profiling.inputs import parse_expectation


@pytest.mark.parametrize("name", ["mlp", "gru", "lstm"])
def test_the_products_of_a_built_in_are_its_flop(name: str) -> None:
    spec = policies.describe(name)
    assert spec.cost is not None
    assert sum(2 * p.rows * p.inner * p.outer for p in products(spec)) == spec.cost.flop


def test_the_products_of_an_onnx_file_are_its_flop(shared_dir: Path) -> None:
    dense = 0
    for path in sorted((shared_dir / "policies" / "good").glob("*.onnx")):
        try:
            spec = policies.describe(str(path), action="0")
        except (PolicyError, UsageError):
            continue  # files that need sizes or a state are other tests' matter
        if spec.cost is None or not spec.cost.flop:
            continue
        try:
            flop = sum(2 * p.rows * p.inner * p.outer for p in products(spec))
        except UsageError:
            continue  # no dense layer at all
        assert flop <= spec.cost.flop, path.name
        dense += flop == spec.cost.flop
    assert dense >= 1, "policies of dense layers alone"


def test_a_prediction_is_made_from_a_layer() -> None:
    pattern, expected = parse_expectation("gemv@policy=mlp,layer=2,dtype=fp32,grid=64")
    made = predict.linear(1, 512, 256, "fp32", 4)
    assert (expected.flop, expected.read_bytes, expected.write_bytes) == (made.flop, made.read_bytes, made.write_bytes)
    assert expected.grid == 64 and pattern.pattern == "gemv"
    with pytest.raises(UsageError, match="no layer 9") as caught:
        parse_expectation("gemv@policy=mlp,layer=9,dtype=fp32")
    assert "1 linear 48 to 512" in str(caught.value)
    with pytest.raises(UsageError, match="can't be read"):
        products(policies.describe("null"))


def test_a_layer_of_the_policy_against_its_own_report(shared_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Launch 4 of the report, 64 blocks, is the MLP's layer 512 -> 256 at batch 1."""
    from robot_perf.cli.__main__ import main

    report = shared_dir / "profiles" / "ncu_h200_raw_base_C.csv"
    expectation = "internal::kernel@policy=mlp,layer=2,dtype=fp32,grid=64"
    with pytest.raises(SystemExit) as end:
        main(["diagnose", str(report), "--predict", expectation, "--json", "--cache-control", "none"])
    assert not end.value.code
    found = json.loads(capsys.readouterr().out)["predictions"]
    assert [p["outcome"] for p in found] == ["can't answer", "confirmed", "can't answer", "can't answer"]
    assert "small grid" in found[1]["reason"] and "grid of 16 blocks, expected 64" in found[0]["reason"]
