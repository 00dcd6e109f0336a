"""How torch.compile's words are heard: by one handler a logger, whatever is loaded, and by none once everything is closed."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import fake_torch  # noqa: E402

from robot_perf import backends, policies  # noqa: E402
from robot_perf.backends import compile as compile_backend  # noqa: E402
from robot_perf.backends.torch_policy import compile_events  # noqa: E402
from robot_perf.errors import BackendUnavailableError, PolicyError, RobotPerfError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
LOGGERS = ("torch._dynamo.guards.__recompiles", "torch._inductor.cudagraph_utils.__cudagraphs")


def listening() -> dict[str, Any]:
    """What a policy that was loaded leaves behind: handlers by logger, and whether torch looks for failed guards."""
    from torch._dynamo.guards import is_recompiles_enabled

    theirs = {name: logging.getLogger(name).handlers for name in LOGGERS}  # pytest puts its own there too
    found: dict[str, Any] = {
        n: sum(not type(h).__module__.startswith("_pytest") for h in hs) for n, hs in theirs.items()
    }
    return found | {"guards": is_recompiles_enabled(), "propagate": logging.getLogger(LOGGERS[0]).propagate}


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What there is without a policy."""
    if reason := compile_backend.unavailable():
        pytest.skip(reason)
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    for left in list(
        compile_events._listening
    ):  # by the tests before, which close no policy that the process's end will
        left.close()
    found = listening()
    assert [found[name] for name in LOGGERS] == [0, 0]
    return found


@pytest.fixture
def recompiles(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(Path(__file__).resolve().parents[2] / "helpers")
    return policies.describe("cuda_policies:Recompiles")


def test_many_policies_listen_with_one_handler_and_closed_ones_with_none(before: dict[str, Any]) -> None:
    runners = [backends.load("compile", policies.describe("mlp", preset="tiny"), {})]
    one = listening()
    assert [one[name] for name in LOGGERS] == [1, 1] and one["guards"] and not one["propagate"]
    runners += [backends.load("compile", policies.describe("mlp", preset="tiny"), {}) for _ in range(4)]
    assert listening() == one
    for runner in runners[:-1]:
        runner.close()
        assert listening() == one
    runners[-1].close()
    assert listening() == before


def test_a_recompile_is_told_with_its_guard_to_whom_it_happened_after_loading(
    before: dict[str, Any], recompiles: Any
) -> None:
    first: Any = backends.load("compile", recompiles, {})
    observation = [np.ones(first.spec.inputs[i].shape, np.float32) for i in first.spec.fed]
    first.step(observation)
    assert first.reasons() == {}
    first._call.late = True
    first.step(observation)
    assert first.counters()["compiles"] == 2 and "late" in first.reasons()["compiles"]
    second: Any = backends.load("compile", recompiles, {})
    assert second.counters()["compiles"] == 0 and second.reasons() == {}, "that was before it"
    second.close()
    first.close()
    assert listening() == before


def test_a_graph_break_is_told_of_the_policy_that_has_it(before: dict[str, Any], recompiles: Any) -> None:
    first: Any = backends.load("compile", policies.describe("cuda_policies:Breaks"), {})
    first.step([np.ones(first.spec.inputs[i].shape, np.float32) for i in first.spec.fed])
    assert first.counters()["graph breaks"] == 1 and "graph_break" in first.reasons()["graph breaks"]
    second: Any = backends.load("compile", recompiles, {})
    assert second.counters()["graph breaks"] == 0 and "graph breaks" not in second.reasons()
    second.close()
    first.close()


def test_a_load_that_fails_does_not_listen_on(before: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("not reached"))

    def refused(*_: Any) -> Any:
        raise PolicyError("it can't be loaded")

    monkeypatch.setattr("robot_perf.backends.torch_policy.load.open_policy", refused)
    with pytest.raises(PolicyError):
        backends.load("compile", policies.describe("mlp", preset="tiny"), {})
    assert listening() == before


@pytest.mark.parametrize("fault", ["place 1", "pinned 2", "event 4", "runner 1", "triton", ""])
def test_nor_does_one_on_a_device(before: dict[str, Any], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    played = fake_torch.Played(monkeypatch)
    played.fault = fault
    find: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(
        compile_backend.importlib.util,
        "find_spec",
        lambda name, *more: (None if fault == "triton" else object()) if name == "triton" else find(name, *more),
    )
    spec = policies.describe("mlp", preset="tiny")
    if fault:
        with pytest.raises(BackendUnavailableError if fault == "triton" else (RobotPerfError, RuntimeError)):
            compile_backend.load(spec, {"device": "cuda:0"})
    else:
        runner = compile_backend.load(spec, {"device": "cuda:0"})
        assert [listening()[name] for name in LOGGERS] == [1, 1]
        runner.close()
    assert listening() == before


@pytest.mark.parametrize(("asked", "threads"), [(None, 1), ("4", 7)])
def test_kernels_are_compiled_in_the_process_that_is_measured(
    asked: str | None, threads: int, before: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helper processes would stay beside the loop; who asks torch for some has them."""
    from torch._inductor import config

    if asked is None:
        monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    else:
        monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", asked)
    with config.patch(compile_threads=7):
        backends.load("compile", policies.describe("mlp", preset="tiny"), {}).close()
        assert config.compile_threads == threads
