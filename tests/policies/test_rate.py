"""The stated rate against a configuration: which keys are read, where they stand, when it is unchecked."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_perf.errors import UsageError
from robot_perf.policies.rate import check_rate

CASES = [
    ("control_dt: 0.02\n", 50, True, 2),
    ("policy_dt: 0.04\n", 25, True, 2),
    ("policy_dt: 0.04\n", 50, False, 2),
    ("a:\n  b:\n    - step_dt: 0.02\n", 50, True, 4),
    ("ctrl_dt: 2.0e-2\n", 50, True, 2),
    ("rl_rate: 100\n", 100, True, 2),
    ("decimation: 4\ndt: 0.005\n", 50, True, 3),
    ("dt: 0.001\ndecimation: 12\n", 83.3, True, 2),
    ("sim:\n  dt: 0.003\n  decimation: 6\n", 55.6, True, 3),
    ("loop_frequency: 500\ndecimation: 10\n", 50, True, 2),
    ("loop_frequency: 500\ndecimation: 10\n", 50.1, False, 2),
]


@pytest.mark.parametrize(("text", "rate", "agrees", "line"), CASES)
def test_rates_in_configurations(tmp_path: Path, text: str, rate: float, agrees: bool, line: int) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text("# a comment\n" + text)
    checks, sentence = check_rate(str(path), rate)
    assert [c.agrees for c in checks] == [agrees]
    assert f"deploy.yaml:{line}" in sentence
    assert sentence.startswith("warning") != agrees
    if not agrees:
        assert f"{rate:g} Hz" in sentence and f"{checks[0].rate_hz:.6g} Hz" in sentence


def test_unchecked_is_said(tmp_path: Path) -> None:
    assert "unchecked" in check_rate(None, 50)[1]
    path = tmp_path / "deploy.yaml"
    path.write_text("kp: 20\ndt: 0.005\n")
    checks, sentence = check_rate(str(path), 50)
    assert checks == [] and "unchecked" in sentence
    path.write_text("")
    assert check_rate(str(path), 50)[0] == []


@pytest.mark.parametrize(
    "text",
    [
        "control_dt: 0\n",
        "control_dt: abc\n",
        "control_dt: -0.02\n",
        "control_dt: .nan\n",
        "control_dt: 1/0\n",
        "x: &a [*a]\n",
    ],
)
def test_values_that_are_no_period(tmp_path: Path, text: str) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    assert check_rate(str(path), 50)[0] == []


def test_tags_are_not_executed_and_bad_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text("x: !!python/object/apply:os.system [false]\ncontrol_dt: 0.02\n")
    assert check_rate(str(path), 50)[0][0].agrees
    path.write_text("a: [\n")
    with pytest.raises(UsageError, match=r"deploy\.yaml"):
        check_rate(str(path), 50)
    with pytest.raises(UsageError, match="absent"):
        check_rate(str(tmp_path / "absent.yaml"), 50)
