"""A factory's object may own a bus or a camera: it is closed once, whether its load failed or its work is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robot_perf import backends, policies
from robot_perf.errors import PolicyError
from robot_perf.policies.observations import open_observations


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "helpers")
    import closing_policies

    closing_policies.closed.clear()
    return closing_policies.closed


CASES: list[Any] = [
    ("python", "InNumpy", {}),
    ("eager", "in_torch", {"module": True}),
    ("eager", "in_torch", {"module": False}),
]


@pytest.mark.parametrize(("backend", "name", "options"), CASES)
def test_closed_with_its_runner(closed: list[str], backend: str, name: str, options: dict[str, Any]) -> None:
    if backend == "eager":
        pytest.importorskip("torch", reason="torch is not installed")
    runner = backends.load(backend, policies.describe(f"closing_policies:{name}", options=options), {})
    runner.step(open_observations(runner.spec).at(0))
    assert not closed
    for _ in range(2):  # who cleans up twice closes no bus twice
        runner.close()
        assert len(closed) == 1


@pytest.mark.parametrize("fault", ["reset", "first call"])
@pytest.mark.parametrize(("backend", "name", "options"), CASES)
def test_closed_where_its_load_fails(
    closed: list[str], backend: str, name: str, options: dict[str, Any], fault: str
) -> None:
    if backend == "eager":
        pytest.importorskip("torch", reason="torch is not installed")
    spec = policies.describe(f"closing_policies:{name}", options={**options, "fault": fault})
    with pytest.raises(PolicyError, match="no answer from the bus"):
        backends.load(backend, spec, {})
    assert len(closed) == 1
