"""`compile` that compiles nothing is refused, or INVALID: torch would run eager mode in silence, and it would be called compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cli_calls import call  # noqa: E402

from robot_perf import backends, policies  # noqa: E402
from robot_perf.backends import compile as compile_backend  # noqa: E402
from robot_perf.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
HELPERS = Path(__file__).resolve().parents[2] / "helpers"


@pytest.fixture(autouse=True)
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's own, as they were."""
    from torch._dynamo import config

    if reason := compile_backend.unavailable():
        pytest.skip(reason)
    monkeypatch.chdir(HELPERS)
    with config.patch(disable=False, suppress_errors=False):
        yield
    torch._dynamo.reset()  # what was compiled here serves no other test


def deadline(tmp_path: Path, policy: str, *more: str) -> int:
    loop = ("--rate", "400", "--steps", "60", "--deadline-ms", "1000")
    return call("deadline", policy, "--backend", "compile", *loop, "-o", tmp_path / "run.parquet", "--json", *more)


def test_a_variable_that_turns_it_off_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = "TORCH_COMPILE_DISABLE" if torch.__version__ >= "2.8" else "TORCHDYNAMO_DISABLE"
    monkeypatch.setenv(variable, "1")
    assert deadline(tmp_path, "mlp") == 2
    said = capsys.readouterr()
    assert f"{variable}=1" in said.out + said.err and not (tmp_path / "run.parquet").exists()


@pytest.mark.parametrize(
    ("variable", "settings"),
    [
        ("TORCHDYNAMO_DISABLE", {}),
        ("TORCH_COMPILE_DISABLE", {"disable": True}),
        ("TORCHDYNAMO_SUPPRESS_ERRORS", {"suppress_errors": True}),
    ],
)
def test_and_so_are_the_others(variable: str, settings: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import config

    monkeypatch.setenv(variable, "1")
    with config.patch(**settings), pytest.raises(UsageError, match=f"{variable}=1"):
        backends.load("compile", policies.describe("mlp", preset="tiny"), {})


def test_so_is_torchs_own_switch_whoever_has_set_it() -> None:
    from torch._dynamo import config

    for setting in ("disable", "suppress_errors"):
        with config.patch(**{setting: True}), pytest.raises(UsageError, match=rf"torch\._dynamo\.config\.{setting}"):
            backends.load("compile", policies.describe("mlp", preset="tiny"), {})
    with pytest.raises(UsageError, match=r"torch\._dynamo\.config\.disable"):
        backends.load("compile", policies.describe("uncompiled:TurnsCompilingOff"), {})


def test_a_policy_that_keeps_itself_from_it_is_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert deadline(tmp_path, "uncompiled:StaysEager") == 4
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["status"] == "INVALID" and "torch compiled nothing" in document["verdict"]["reason"]
    assert "torch.compiler.disable" in document["verdict"]["reason"]


def test_a_stance_is_noticed_after_the_first_call() -> None:
    runner: Any = backends.load("compile", policies.describe("cuda_policies:Recompiles"), {})
    observation = [np.ones(runner.spec.inputs[i].shape, np.float32) for i in runner.spec.fed]
    torch._dynamo.reset()
    with torch.compiler.set_stance("force_eager"):
        runner.step(observation)
    assert "set_stance" in runner.reasons()["nothing compiled"]
    runner.step(observation)
    assert "nothing compiled" not in runner.reasons()
    runner.close()


def test_a_stage_that_keeps_itself_from_it_is_invalid_beside_one_that_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        "stages:\n"
        "  a: {file: 'cuda_policies:Plain', feed: {obs: obs}, shape: {obs: [1, 8]}}\n"
        "  b: {file: 'uncompiled:StaysEager', feed: {obs: obs}, shape: {obs: [1, 8]}}\n"
    )
    assert deadline(tmp_path, str(path)) == 4
    assert "torch compiled nothing" in json.loads(capsys.readouterr().out)["verdict"]["reason"]


@pytest.mark.parametrize("policy", ["cuda_policies:Plain", "uncompiled:Line", "uncompiled:PartlyEager"])
def test_code_that_was_compiled_for_another_of_its_class_is_compiled(policy: str) -> None:
    """torch compiles nothing for the second one: it takes the first one's code."""
    counts = []
    for _ in range(2):
        runner: Any = backends.load("compile", policies.describe(policy), {})
        assert "nothing compiled" not in runner.reasons(), "no call yet"
        runner.step([np.ones(runner.spec.inputs[i].shape, np.float32) for i in runner.spec.fed])
        counts.append(runner.counters()["compiles"])
        assert "nothing compiled" not in runner.reasons()
        runner.close()
    assert counts[1] == 0
