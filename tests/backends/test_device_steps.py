"""The steps of the device backends without torch, on CUDA played by the host: buffers, copies, graphs, waits, and what is let go of.

The same on a device: test_cuda.py and test_tensorrt.py, with `-m gpu`.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import fake_cuda
import fake_ort
import numpy as np
import pytest
from fake_cuda import COUNTING, PAIR, FakeCuda

from robot_perf import backends, policies
from robot_perf.backends.gpu import cudart
from robot_perf.backends.gpu.buffers import Buffers
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.backends.gpu.undo import Undo
from robot_perf.backends.gpu.work import StreamWork
from robot_perf.backends.shared.check import check_outputs
from robot_perf.errors import InvalidMeasurementError, PolicyError, UsageError
from robot_perf.measure.clock import MonotonicClock
from robot_perf.measure.window.keep_warm import keep_warm_hook
from robot_perf.policies.observations import open_observations
from robot_perf.specs import LoopSpec, TensorSpec


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """CUDA's runtime, played; the device has 1 GiB."""
    return fake_cuda.play(monkeypatch, FakeCuda())


WAYS: list[dict[str, Any]] = [
    {},
    {"cuda_graph": True},
    {"mapped": True},
    {"cuda_graph": True, "mapped": True, "sync": "block"},
    {"cuda_graph": True, "marks": True, "sync": "spin"},
]


def _runner(fake: FakeCuda, *, waits: bool = False, **given: Any) -> QueuedRunner:
    work = StreamWork("counting", DeviceOptions(**given))
    with Undo(work.close):
        stream, memory = work.stream, work.allocate(COUNTING)
        compute = fake_cuda.counting(fake, memory.inputs | memory.outputs)

        def enqueue() -> None:
            for kernel in (lambda: None, compute, lambda: None):
                fake.submit(stream.address, kernel)
            if waits:
                cudart.check("cudaStreamSynchronize", fake.cudaStreamSynchronize(stream.handle))

        work.start(enqueue, dict, capturable=given.get("cuda_graph", False), counted=enqueue)
        return QueuedRunner(COUNTING, work)


def _shown(value: float) -> list[np.ndarray]:
    return [np.full(PAIR, value, np.float32)]


@pytest.mark.parametrize("given", WAYS, ids=str)
def test_steps_answer_carry_and_reset(cuda: FakeCuda, given: dict[str, Any]) -> None:
    runner = _runner(cuda, **given)
    for _ in range(2):
        answers = []
        for k in range(4):
            runner.poison()
            answers.append(float(runner.step(_shown(10.0 * k))[0][0, 0]))
            assert not runner.pending()
        assert answers == [0.0, 11.0, 22.0, 33.0]
        assert runner.state()["n_in"].tolist() == [[4.0, 4.0]]
        runner.reset()
    assert check_outputs(runner, open_observations(COUNTING)) is None
    facts = runner.facts()
    assert facts["captured"] == bool(given.get("cuda_graph"))
    if facts["captured"]:
        # observation up, both answers down, and the state: mapped buffers are not copied, state stays on the device
        copies = {False: 4, True: 2}[bool(given.get("mapped"))]
        assert facts["kernels_per_step"] == 3 and facts["graph_nodes"]["memcpy"] == copies
    assert (runner.device_ns() > 0) == bool(given.get("marks"))
    runner.close()
    assert cuda.left() == {} and cuda.log[-1] == "stream"


@pytest.mark.parametrize("given", WAYS, ids=str)
def test_a_rehearsal_is_ordered_with_what_it_keeps(cuda: FakeCuda, given: dict[str, Any]) -> None:
    """The place for the kept state is made in the first rehearsal; what zeroes it may not come after the state was put there."""
    runner = _runner(cuda, **given)
    for k in range(4):
        outputs = runner.step(_shown(10.0 * k))
        for _ in range(2):
            runner.rehearse_on(_shown(500.0))
        assert outputs[0].tolist() == [[11.0 * k, 11.0 * k]]
    assert runner.state()["n_in"].tolist() == [[4.0, 4.0]]
    runner.close()
    assert cuda.left() == {}


@pytest.mark.parametrize("given", WAYS, ids=str)
def test_phases_are_marked_and_the_plain_step_comes_back(cuda: FakeCuda, given: dict[str, Any]) -> None:
    runner = _runner(cuda, **given)
    runner.step(_shown(1.0))
    runner.mark_phases(True)
    runner.step(_shown(2.0))
    h2d, policy, d2h = runner.phases_ns()
    assert policy > 0 and d2h > 0 and (h2d > 0 or given.get("mapped"))
    before = dict(runner.counters())
    runner.mark_phases(False)
    assert runner.step(_shown(3.0))[0][0, 0] == 5.0 and runner.counters() == before
    runner.close()


def test_the_streams_priority_is_the_devices_own_word(cuda: FakeCuda) -> None:
    clamped = cuda.cudaStreamCreateWithPriority
    cuda.cudaStreamCreateWithPriority = lambda flags, _asked: clamped(flags, -1)  # type: ignore[method-assign]
    runner = _runner(cuda, priority=-3)
    assert runner.facts()["stream_priority"] == -1
    runner.close()
    for asked in (7, -1000):
        with pytest.raises(UsageError, match=f"priority {asked} is not offered"):
            _runner(cuda, priority=asked)
    assert cuda.left() == {}


def test_a_step_that_waits_is_not_captured_and_its_user_is_told_what_to_do(cuda: FakeCuda) -> None:
    with pytest.raises(InvalidMeasurementError) as refused:
        _runner(cuda, waits=True, cuda_graph=True)
    text = str(refused.value)
    assert "can't be captured" in text and "cuda_graph=false" in text and "eager" not in text
    assert len(text.splitlines()) <= 4 and cuda.left() == {}


@pytest.mark.parametrize("waits", [False, True])
def test_kernels_are_counted_or_the_reason_is_told(cuda: FakeCuda, waits: bool) -> None:
    runner = _runner(cuda, waits=waits)
    runner.step(_shown(1.0))
    examined = runner.examine()
    if waits:
        assert set(examined) == {"launches_per_step_reason"} and "Capture" in examined["launches_per_step_reason"]
    else:
        assert examined["launches_per_step"] == 3
    assert runner.step(_shown(1.0))[0][0, 0] == 2.0, "counting is no step"
    runner.close()


# --- ONNX Runtime's session on a device, played by its CPU provider ---------------------------------------------------------


@pytest.fixture
def played(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> fake_ort.Played:
    """`played(policy, **options)`: a runner of the onnxruntime backend, and a weak reference to its session."""
    return fake_ort.Played(monkeypatch, cuda)


ON_ORT: list[dict[str, Any]] = [{}, {"cuda_graph": True}, {"buffers": "mapped", "sync": "spin"}]


@pytest.mark.parametrize("given", ON_ORT, ids=str)
@pytest.mark.parametrize("network", ["mlp", "lstm", "gru"])
def test_onnxruntime_answers_as_on_the_cpu_and_ends_before_its_stream(
    cuda: FakeCuda, played: Any, network: str, given: dict[str, Any]
) -> None:
    spec = policies.describe(network, preset="tiny" if network != "gru" else None)
    reference = backends.load("onnxruntime", spec, {})
    runner, seen = played(spec, **given)
    observations = open_observations(spec)
    for k in range(5):
        wanted = [np.array(a) for a in reference.step(observations.at(k))]
        runner.poison()
        for got, want in zip(runner.step(observations.at(k)), wanted, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
        runner.rehearse_on(observations.at(500))
    examined = runner.examine()
    assert examined == {} if given.get("cuda_graph") else examined["launches_per_step"] == 5
    assert seen["session"]().ended() is None
    gc.disable()  # the last reference must do it: what waits for a collection outlives the stream
    try:
        runner.close()
        assert played.endings == ["binding, 1 stream", "session, 1 stream"]
    finally:
        gc.enable()
    assert cuda.left() == {}
    reference.close()


@pytest.mark.parametrize(
    ("given", "action"),
    [
        ({}, "cpu"),
        ({"buffers": "mapped"}, "cuda"),
        ({"cuda_graph": True}, "cuda"),
        ({"provider": "tensorrt", "precision": "tf32"}, "cuda"),
    ],
    ids=str,
)
def test_a_run_that_waits_copies_its_answers_itself_but_for_state(
    cuda: FakeCuda, played: Any, given: dict[str, Any], action: str
) -> None:
    spec = policies.describe("lstm", preset="tiny")
    runner, seen = played(spec, **given)
    carried = {spec.outputs[pair.source].name for pair in spec.state}
    name = spec.outputs[spec.action].name
    assert seen["places"] == {**dict.fromkeys(carried, "cuda"), name: action}
    assert runner.facts().get("copied_by_runtime") == ([name] if action == "cpu" else None)
    runner.close()


def test_what_a_runtime_copies_itself_has_one_place_and_some_bytes(cuda: FakeCuda) -> None:
    """A name at two positions is one tensor of the runtime and has two places on the host: that copy stays ours."""
    twice, none = TensorSpec("a", "float32", PAIR), TensorSpec("b", "float32", (0, 2))
    spec = replace(COUNTING, outputs=(twice, COUNTING.outputs[1], twice, none), action=0)
    buffers = Buffers(spec, DeviceOptions(), runtime_downloads=True)
    assert buffers.on_host == {"b"} and buffers.outputs["b"] != 0
    stream = cudart.Stream(DeviceOptions())
    for name, value in (("a", 7.0), ("n_out", 3.0)):
        np.frombuffer(cuda.blocks[buffers.outputs[name]], np.float32, count=2)[...] = value
    buffers.downloading(stream)()
    stream.wait()
    assert [a.tolist() for a in buffers.answers] == [[[7.0, 7.0]], [[3.0, 3.0]], [[7.0, 7.0]], []]
    buffers.close()
    stream.close()
    assert cuda.left() == {}


def test_only_the_cuda_providers_own_graph_does_without_the_wait(cuda: FakeCuda, played: Any) -> None:
    spec = policies.describe("lstm", preset="tiny")
    waited = {}
    for name, given in (
        ("calls", {}),
        ("graph", {"cuda_graph": True}),
        ("tensorrt", {"cuda_graph": True, "provider": "tensorrt", "precision": "tf32"}),
    ):
        runner, seen = played(spec, **given)
        runner.step(open_observations(spec).at(0))
        session = seen["session"]()
        waited[name] = session.waited == session.runs
        assert session.ended() is None
        del session
        runner.close()
    assert waited == {"calls": True, "graph": False, "tensorrt": True}


def test_a_wait_inside_the_launch_is_said_and_is_no_cure(cuda: FakeCuda, played: Any) -> None:
    spec = policies.describe("mlp", preset="tiny")
    loop = LoopSpec(period_ns=2_000_000, deadline_ns=2_000_000, steps=1, keep_warm="spin-sync")
    said = {}
    for graph in (False, True):
        runner, _ = played(spec, sync="spin", cuda_graph=graph)
        said[graph] = runner.facts()["sync"]
        arguments = loop, runner, open_observations(spec), MonotonicClock(), [False]
        if graph:
            assert keep_warm_hook(*arguments) is None
        else:
            with pytest.raises(UsageError, match="the runtime waits for the device itself"):
                keep_warm_hook(*arguments)
        runner.close()
    assert said == {False: "runtime", True: "spin"}


def test_a_run_that_waits_all_the_same_leaves_nothing_borrowed(cuda: FakeCuda, played: Any) -> None:
    """A node on the CPU waits inside the run: it can't be counted, and what it borrowed goes back all the same."""
    spec = policies.describe("lstm", preset="tiny")
    runner, seen = played(spec)
    runner.step(open_observations(spec).at(0))
    seen["session"]().stumbles = True
    assert "can't be captured" in runner.examine()["launches_per_step_reason"]
    assert seen["session"]().ended() is None
    runner.close()


def test_too_little_memory_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    small = fake_ort.Played(monkeypatch, FakeCuda(room=64))
    with pytest.raises(PolicyError, match="too little memory") as refused:
        small(policies.describe("mlp", preset="tiny"))
    assert "cudaErrorMemoryAllocation" in str(refused.value) and len(str(refused.value).splitlines()) <= 4
