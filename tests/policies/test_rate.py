"""The stated rate against a configuration: which keys are read, where they stand, when it is unchecked."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_perf.errors import UsageError
from robot_perf.policies.rate import check_rate

CASES = [
    ("control_dt: 0.02\n", 50, True),
    ("policy_dt: 0.04\n", 25, True),
    ("policy_dt: 0.04\n", 50, False),
    ("a:\n  b:\n    - step_dt: 0.02\n", 50, True),
    ("ctrl_dt: 2.0e-2\n", 50, True),
    ("rl_rate: 100\n", 100, True),
    ("dt: 0.005\ndecimation: 4\n", 50, True),
    ("dt: 0.001\ndecimation: 12\n", 83.3, True),
    ("sim:\n  dt: 0.003\n  decimation: 6\n", 55.6, True),
    ("loop_frequency: 500\ndecimation: 10\n", 50, True),
    ("loop_frequency: 500\ndecimation: 10\n", 50.1, False),
]


@pytest.mark.parametrize(("text", "rate", "agrees"), CASES)
def test_rates_in_configurations(tmp_path: Path, text: str, rate: float, agrees: bool) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text("# a comment\n" + text)
    checks, sentence = check_rate(str(path), rate)
    assert [c.agrees for c in checks] == [agrees]
    assert (
        f"deploy.yaml:{2 + text.split(checks[0].text.split(': ')[2 if not agrees else 1].split(' ')[0])[0].count(chr(10))}"
        in sentence
    )
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
