"""How torch.compile's words are heard: by one handler a logger, whatever is loaded, and by none once everything is closed."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import fake_torch  # noqa: E402

from robot_perf import backends, policies  # noqa: E402
from robot_perf.backends import compile as compile_backend  # noqa: E402
from robot_perf.backends.torch_policy import compile_events  # noqa: E402
from robot_perf.backends.torch_policy.compile_events import CompileEvents  # noqa: E402
from robot_perf.backends.torch_policy.compiled import Compiled  # noqa: E402
from robot_perf.backends.torch_policy.runner import NO_EVENTS  # noqa: E402
from robot_perf.errors import (  # noqa: E402
    BackendUnavailableError,
    InvalidMeasurementError,
    PolicyError,
    RobotPerfError,
)
from robot_perf.measure.order import WorkOrder  # noqa: E402
from robot_perf.measure.window.truth import truth  # noqa: E402
from robot_perf.policies.observations import open_observations  # noqa: E402
from robot_perf.specs import LoopSpec  # noqa: E402
from robot_perf.tasks.reference import with_reference  # noqa: E402

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
    first._call.module.late = True
    first.step(observation)
    assert first.counters()["compiles"] == 2 and "late" in first.reasons()["compiles"]
    second: Any = backends.load("compile", recompiles, {})
    assert second.counters()["compiles"] == 0 and second.reasons() == {}, "that was before it"
    second.close()
    first.close()
    assert listening() == before


def test_torch_may_not_give_up_compiling(
    before: dict[str, Any], monkeypatch: pytest.MonkeyPatch, recompiles: Any
) -> None:
    """At its limit it would warn and run the policy in eager mode."""
    from torch._dynamo import config

    was = config.fail_on_recompile_limit_hit
    with config.patch(recompile_limit=2):
        runner: Any = backends.load("compile", policies.describe("cuda_policies:CountsUp"), {})
        observation = [np.ones(runner.spec.inputs[i].shape, np.float32) for i in runner.spec.fed]
        with pytest.raises(InvalidMeasurementError, match=r"stopped compiling") as told:
            for _ in range(4):
                runner.step(observation)
    assert "self.k ==" in told.value.why or ".k == 2" in told.value.why
    assert "HINT" not in told.value.why and runner.counters()["compiles"] == 2
    runner.close()
    assert config.fail_on_recompile_limit_hit == was


def test_nor_in_another_thread_than_it_was_loaded_in(before: dict[str, Any]) -> None:
    from torch._dynamo import config

    seen: list[bool] = []
    call = Compiled("p", lambda: seen.append(bool(config.fail_on_recompile_limit_hit)), NO_EVENTS)
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert seen == [True]


def test_a_policy_that_compiling_changes_is_invalid(before: dict[str, Any], recompiles: Any, tmp_path: Path) -> None:
    spec, loop = policies.describe("cuda_policies:CompiledWrong"), LoopSpec(period_ns=1, deadline_ns=1, steps=1)
    order, _ = with_reference(WorkOrder(map_path="", policy=spec, backend="compile", loop=loop), tmp_path)
    runner = backends.load("compile", spec, {})
    found = truth(order, runner, open_observations(runner.spec))
    assert "against its float32 CPU reference: output 0 differs" in found.invalid[0]
    runner.close()


@pytest.mark.parametrize(("whole", "stated"), [("compile", ""), ("eager", ", backend: compile")])
def test_so_is_a_pipeline_with_such_a_stage(
    whole: str, stated: str, before: dict[str, Any], recompiles: Any, tmp_path: Path
) -> None:
    path = tmp_path / "two.yaml"
    stage = "feed: {obs: obs}, shape: {obs: [1, 8]}"
    path.write_text(
        f"stages:\n  a: {{file: 'cuda_policies:Plain', {stage}}}\n"
        f"  b: {{file: 'cuda_policies:CompiledWrong', {stage}{stated}}}\n"
    )
    spec, loop = policies.describe(str(path)), LoopSpec(period_ns=1, deadline_ns=1, steps=1)
    order, made = with_reference(WorkOrder(map_path="", policy=spec, backend=whole, loop=loop), tmp_path)
    assert made.conditions() == {"compared": True, "against": "eager in float32 on the CPU", "steps": 20}
    runner = backends.load(whole, spec, {})
    found = truth(order, runner, open_observations(runner.spec))
    assert "against its float32 CPU reference: output 1 differs" in found.invalid[0]
    runner.close()


@pytest.mark.parametrize(
    ("skips", "held", "words"),
    [(0, 0, ""), (1, 0, "no reason"), (1, 1, ""), (2, None, "no reason"), (1, None, "")],
)
def test_graphs_that_were_all_skipped(
    before: dict[str, Any], monkeypatch: pytest.MonkeyPatch, skips: int, held: int | None, words: str
) -> None:
    from torch._dynamo.utils import counters

    manager = SimpleNamespace(roots={"f": [object()] * held, "g": []} if held is not None else None)
    containers = {0: SimpleNamespace(tree_manager=manager), 1: SimpleNamespace(tree_manager=None)}
    trees = SimpleNamespace(local=None, get_obj=lambda _local, _name: containers)
    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", trees)
    events, plain = CompileEvents(graphs=True), CompileEvents(graphs=False)
    monkeypatch.setitem(counters["inductor"], "cudagraph_skips", counters["inductor"]["cudagraph_skips"] + skips)
    monkeypatch.setitem(counters["stats"], "unique_graphs", counters["stats"]["unique_graphs"] + 2)
    assert words in events.not_captured() and bool(events.not_captured()) == bool(words)
    assert plain.not_captured() == ""
    events.close()
    plain.close()


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
