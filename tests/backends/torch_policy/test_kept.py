"""A policy that keeps its input (`self.last = obs`) finds the old values there in the next step, or is refused with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch", reason="torch is not installed")

from robot_perf import backends, policies  # noqa: E402
from robot_perf.backends.gpu import torch_body, torch_pinned  # noqa: E402
from robot_perf.backends.gpu.torch_graph import GraphSteps  # noqa: E402
from robot_perf.backends.torch_policy import load  # noqa: E402
from robot_perf.errors import InvalidMeasurementError, PolicyError  # noqa: E402
from robot_perf.measure.node.mailbox import Arrival, LiveObservations  # noqa: E402
from robot_perf.measure.node.mapping import default_mapping  # noqa: E402
from robot_perf.policies.observations import Observations, open_observations  # noqa: E402
from robot_perf.specs import PolicySpec  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
HELPERS = Path(__file__).resolve().parents[2] / "helpers"
KEEPING = ["InBuffer", "InAttribute", "InView", "InList", "InDictionary", "InObject"]
FED = [np.full((1, 4), value, np.float32) for value in (1, 3, 7, 15, 31)]
CHANGES = [1, 2, 4, 8, 16]  # a policy that looks into a reused input answers 0 from the second step on


@pytest.fixture
def factory(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], PolicySpec]:
    monkeypatch.chdir(HELPERS)
    return lambda name: policies.describe(f"keeping_policies:{name}")


# --- on the CPU: what feeds the runner ----------------------------------------------------------------------------------


def from_a_recording(_spec: PolicySpec, _tmp_path: Path) -> Callable[[int], Any]:
    return Observations(tuple((a.copy(),) for a in FED), (), "test").reader()


def from_topics(spec: PolicySpec, _tmp_path: Path) -> Callable[[int], Any]:
    live = LiveObservations(spec, default_mapping(spec), stale_after_ns=10**9)
    read = live.reader()

    def at(k: int) -> Any:
        live.inboxes[0].slot = Arrival((FED[k].reshape(-1),), 0, -1, -1)
        return read(k)

    return at


@pytest.mark.parametrize("feed", [from_a_recording, from_topics])
@pytest.mark.parametrize("name", [*KEEPING, "Copied"])
def test_whatever_feeds_it_an_old_input_stays(name: str, feed: Any, factory: Any, tmp_path: Path) -> None:
    runner = backends.load("eager", factory(name), {})
    for _ in range(2):
        at = feed(runner.spec, tmp_path)
        runner.reset()
        assert [float(np.array(runner.step(at(k))[0])[0, 0]) for k in range(len(FED))] == CHANGES


def test_compiled_code_keeps_old_inputs_too(factory: Any, tmp_path: Path) -> None:
    if reason := backends.backend_module("compile").unavailable():
        pytest.skip(reason)
    runner = backends.load("compile", factory("InAttribute"), {})
    at = from_topics(runner.spec, tmp_path)
    runner.reset()
    assert [float(np.array(runner.step(at(k))[0])[0, 0]) for k in range(len(FED))] == CHANGES
    runner.close()


def test_a_stage_that_is_fed_joined_pieces_may_keep_them(factory: Any, tmp_path: Path) -> None:
    stage = {"file": "keeping_policies:InAttribute", "shape": {"obs": [1, 4]}, "feed": {"obs": ["a", "b"]}}
    chain = {"stages": {"only": stage}, "inputs": {"a": [1, 2], "b": [1, 2]}}
    path = tmp_path / "chain.yaml"
    path.write_text(yaml.safe_dump(chain))
    runner = backends.load("eager", policies.describe(str(path)), {})
    got = [float(np.array(runner.step((x[:, :2], x[:, 2:]))[0])[0, 0]) for x in FED]
    assert got == CHANGES


# --- on a device, its memory stood in for by the host's -----------------------------------------------------------------


@pytest.fixture
def body(factory: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`body(name or spec, cuda_graph=…, mapped=…, compiled=…)`: the device backends' pieces of a step, on the CPU."""
    monkeypatch.setattr(torch_pinned, "pinned", lambda _, t: torch.zeros(t.shape, dtype=getattr(torch, t.dtype)))
    monkeypatch.setattr(torch_pinned, "mapped", lambda _, pinned, device: pinned)

    def make(policy: Any, *, cuda_graph: bool = False, mapped: bool = False, compiled: bool = False) -> Any:
        loaded = load.open_policy(factory(policy) if isinstance(policy, str) else policy)
        call = torch.compile(loaded.call) if compiled else loaded.call
        options: Any = SimpleNamespace(device="cpu", precision="fp32", cuda_graph=cuda_graph, mapped=mapped)
        made = torch_body.Body(loaded.policy, call, loaded.arguments, loaded.reset, loaded.module, options)
        with torch.no_grad():
            loaded.reset()
        return made

    return make


def step(body: Any, array: Any) -> float:
    body.staged[0][...] = array
    with torch.no_grad():
        body.upload()
        body.compute()
        if body.options.cuda_graph:
            body.settle()
        body.feed_back()
        body.download()
    return float(body.answers[0][0, 0])


@pytest.mark.parametrize("name", [*KEEPING, "Copied"])
def test_on_a_device_an_old_input_stays(name: str, body: Any) -> None:
    made = body(name)
    assert [step(made, x) for x in FED] == CHANGES


def test_on_a_device_compiled_code_keeps_old_inputs_too(body: Any) -> None:
    if reason := backends.backend_module("compile").unavailable():
        pytest.skip(reason)
    made = body("InAttribute", compiled=True)
    assert [step(made, x) for x in FED] == CHANGES


def test_on_a_device_a_state_that_was_fed_stays(body: Any) -> None:
    made = body("OfState")
    assert [step(made, x) for x in FED] == [0, 1, 3, 7, 15]
    made.restart()
    made.module.reset()
    assert [step(made, x) for x in FED] == [0, 1, 3, 7, 15]


@pytest.mark.parametrize("cuda_graph", [False, True])
def test_a_rehearsal_puts_back_a_state_whose_tensors_change(body: Any, cuda_graph: bool) -> None:
    made = body(policies.describe("gru", preset="tiny"), cuda_graph=cuda_graph)
    observations = open_observations(made.policy, seed=3)

    def run(rehearse: bool) -> list[float]:
        made.restart()
        found = []
        for k in range(6):
            if rehearse:
                made.keep()
                step(made, observations.at(100)[0])
                made.put_back()
            found.append(step(made, observations.at(k)[0]))
        return found

    with torch.no_grad():
        step(made, observations.at(0)[0])
        assert made.find_state()
        plain, rehearsed = run(False), run(True)
    assert plain == rehearsed and len(set(plain)) == len(plain)


def warmed(made: Any) -> None:
    steps = GraphSteps.__new__(GraphSteps)
    steps.body, steps._torch, steps._marks, steps._stream = made, torch, [], None
    steps.wait = lambda: None
    steps._warm_up()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("InAttribute", "obs (in last)"),
        ("InView", "obs (in last)"),
        ("InList", "obs (in history)"),
        ("InDictionary", "obs (in memory)"),
        ("InObject", "obs after"),
        ("OfState", "h_in (in last)"),
    ],
)
def test_a_graph_refuses_what_it_can_not_follow(name: str, where: str, body: Any) -> None:
    with pytest.raises(InvalidMeasurementError) as refused:
        warmed(body(name, cuda_graph=True))
    text = str(refused.value)
    assert f"it keeps its input {where}" in text and "self.last.copy_(obs)" in text and "--backend eager" in text
    assert len(text.splitlines()) <= 4


@pytest.mark.parametrize("name", ["InBuffer", "Copied"])
def test_a_graph_follows_buffers(name: str, body: Any) -> None:
    made = body(name, cuda_graph=True)
    warmed(made)
    places = [t.data_ptr() for t in (*made.flat, made.module.last)]
    made._reset()
    with torch.no_grad():
        made.settle()
    assert [step(made, x) for x in FED] == CHANGES
    assert [t.data_ptr() for t in (*made.flat, made.module.last)] == places, "a graph replays addresses"


@pytest.mark.parametrize("name", KEEPING)
def test_mapped_buffers_refuse_it_in_the_first_step(name: str, body: Any) -> None:
    with pytest.raises(PolicyError) as refused:
        step(body(name, mapped=True), FED[0])
    text = str(refused.value)
    assert "it keeps its input obs" in text and "buffers=mapped" in text and "buffers=copy" in text
    assert len(text.splitlines()) <= 4


def test_mapped_buffers_serve_those_that_copy(body: Any) -> None:
    made = body("Copied", mapped=True)
    assert [step(made, x) for x in FED] == CHANGES


@pytest.mark.parametrize("name", ["Answered", "Cycle"])
@pytest.mark.parametrize("options", [{"mapped": True}, {"cuda_graph": True}], ids=["mapped", "graph"])
def test_what_only_passes_through_is_not_kept(name: str, options: Any, body: Any) -> None:
    made = body(name, **options)
    if made.options.cuda_graph:
        warmed(made)
    assert [step(made, x) for x in FED] == [float(x[0, 0]) for x in FED]


@pytest.mark.parametrize(
    "file", ["g1_lstm_reset.pt", "h1_lstm_noreset.pt", "t1_mlp_prints.pt", "go1_actuator_export.pt2"]
)
def test_published_files_keep_nothing(file: str, shared_dir: Path, body: Any) -> None:
    made = body(policies.describe(str(shared_dir / "policies" / "good" / file)), cuda_graph=True)
    warmed(made)


@pytest.mark.parametrize(("name", "preset"), [("mlp", None), ("lstm", None), ("gru", None), ("act", "tiny")])
def test_built_in_networks_keep_nothing(name: str, preset: str | None, body: Any) -> None:
    warmed(body(policies.describe(name, preset=preset), cuda_graph=True))


class Script(torch.nn.Module):
    """TorchScript, which holds tensors where no Python object does."""

    def __init__(self) -> None:
        super().__init__()
        self.history = torch.jit.Attribute([torch.zeros(1, 4)], list[torch.Tensor])

    def forward(self, obs):
        change = obs - self.history[-1]
        self.history = [obs]
        return change


def test_what_torchscript_holds_is_seen(scripted_file: Callable[..., str], body: Any) -> None:
    spec = policies.describe(scripted_file(Script()), shapes={"obs": (1, 4)})
    made = body(spec)
    assert [step(made, x) for x in FED][1:] == CHANGES[1:]
    with pytest.raises(InvalidMeasurementError, match="it keeps its input obs after a step"):
        warmed(body(spec, cuda_graph=True))
