"""A load that fails leaves nothing on the device, whatever failed: the ROS node lives on and loads again. On played runtimes."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_cuda
import fake_ort
import fake_torch
import fake_trt
import numpy as np
import pytest
from fake_cuda import FakeCuda

from robot_perf import policies
from robot_perf.backends import pipeline
from robot_perf.backends.gpu import cudart, ort
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.trt import execute
from robot_perf.errors import InvalidMeasurementError, PolicyError, RobotPerfError
from robot_perf.specs import PolicySpec, StageSpec


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """The last reference must do it: what waits for a collection outlives the stream."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def on_trt(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> tuple[Any, Callable[[], Any]]:
    played = fake_trt.Played(monkeypatch, fake)
    return played, lambda: played(sync="block", marks=True)


def on_ort(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> tuple[Any, Callable[[], Any]]:
    played, spec = fake_ort.Played(monkeypatch, fake), policies.describe("lstm", preset="tiny")
    return played, lambda: played(spec, cuda_graph=True)[0]


def on_ort_mapped(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> tuple[Any, Callable[[], Any]]:
    played, spec = fake_ort.Played(monkeypatch, fake), policies.describe("mlp", preset="tiny")
    return played, lambda: played(spec, buffers="mapped", sync="block")[0]


ENDINGS = {
    on_trt: ["context, 1 stream", "engine, 1 stream", "runtime, 1 stream"],
    on_ort: ["binding, 1 stream", "session, 1 stream"],
    on_ort_mapped: ["binding, 1 stream", "session, 1 stream"],
}
every_way = pytest.mark.parametrize("way", ENDINGS, ids=lambda w: w.__name__)


def _calls(monkeypatch: pytest.MonkeyPatch, way: Any) -> list[str]:
    fake = FakeCuda()
    runner = way(monkeypatch, fake)[1]()
    made, calls = fake.left(), list(fake.calls)
    assert made["streams"] == 1 and made["events"] >= 4 and made["allocations"] >= 2
    runner.close()
    assert fake.left() == {}
    return calls


@every_way
def test_the_normal_close_leaves_nothing_and_ends_the_runtime_before_its_stream(
    monkeypatch: pytest.MonkeyPatch, way: Any
) -> None:
    fake = FakeCuda()
    played, load = way(monkeypatch, fake)
    runner = load()
    graphs = fake.left().get("executable graphs", 0)
    assert graphs == fake.left().get("graphs", 0) == (way is on_trt) and played.endings == []
    runner.close()
    assert played.endings == ENDINGS[way] and fake.left() == {}
    kinds = [k for k in ("graph", "event", "pinned memory", "stream") if k in fake.log]
    assert kinds == list(dict.fromkeys(k for k in fake.log if k != "device memory"))


@every_way
def test_whichever_call_of_cuda_fails_nothing_stays(monkeypatch: pytest.MonkeyPatch, way: Any) -> None:
    calls = _calls(monkeypatch, way)
    assert len(calls) > 15
    for number, name in enumerate(calls):
        fake = FakeCuda()
        played, load = way(monkeypatch, fake)
        fake.fails_at = number
        # The error is still held when we look, as by whoever logs it: its frames may hold nothing either.
        with pytest.raises((cudart.CudaError, RobotPerfError)) as refused:
            load()
        assert name.removesuffix("WithFlags") in str(refused.value), (number, name)
        assert fake.calls[:number] == calls[:number] and fake.left() == {}, (number, name)
        assert played.endings in [ENDINGS[way][-n:] for n in range(1, 4)] or not played.endings, (number, name)


@every_way
def test_a_device_that_is_lost_is_told_by_its_first_error(monkeypatch: pytest.MonkeyPatch, way: Any) -> None:
    """A kernel gone astray fails every later call: nothing can be freed, and the load's own words must not be lost over that."""
    calls = _calls(monkeypatch, way)
    for number in range(calls.index("cudaStreamCreateWithPriority") + 1, len(calls)):
        fake = FakeCuda()
        played, load = way(monkeypatch, fake)
        fake.fails_at, fake.for_good = number, True
        with (
            pytest.raises((cudart.CudaError, RobotPerfError)) as refused,
            pytest.warns(RuntimeWarning, match=r"failed too: CudaError: cuda\w+: cudaErrorUnknown"),
        ):
            load()
        assert calls[number].removesuffix("WithFlags") in str(refused.value), number
        # What was queued can't be waited for.
        assert {e.removesuffix(" with work") for e in played.endings} <= set(ENDINGS[way]), number


@pytest.mark.parametrize("fault", ["engine", "context", "dtype", "size", "address", "run 1", "run 3", "run 4"])
def test_whatever_tensorrt_refuses_nothing_stays(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    fake = FakeCuda()
    played, load = on_trt(monkeypatch, fake)
    played.fault = fault
    with pytest.raises((RobotPerfError, RuntimeError)) as refused:
        load()
    assert fake.left() == {}
    # Run 4 is the captured one.
    kind = {"run 1": RuntimeError, "run 3": RuntimeError, "run 4": InvalidMeasurementError}.get(fault, PolicyError)
    assert type(refused.value) is kind
    assert played.endings == ENDINGS[on_trt][{"engine": 2, "context": 1}.get(fault, 0) :]


@pytest.mark.parametrize("fault", ["signature", "binding", "run 1", "run 4"])
def test_whatever_onnxruntime_refuses_nothing_stays(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    fake = FakeCuda()
    played, load = on_ort(monkeypatch, fake)
    played.fault = fault
    with pytest.raises((RobotPerfError, ValueError)):
        load()
    assert fake.left() == {} and played.endings == ENDINGS[on_ort][fault == "signature" :]


@every_way
def test_the_last_moment_of_a_load_may_fail_too(monkeypatch: pytest.MonkeyPatch, way: Any) -> None:
    def no_room(*_: Any) -> Any:
        raise MemoryError("Unable to allocate 1.2 GiB for an array")

    for module in (ort, execute):
        monkeypatch.setattr(module, "QueuedRunner", no_room)
    fake = FakeCuda()
    played, load = way(monkeypatch, fake)
    with pytest.raises(MemoryError):
        load()
    assert fake.left() == {} and played.endings == ENDINGS[way]


def on_trt_queued(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> tuple[Any, Callable[[], Any]]:
    played = fake_trt.Played(monkeypatch, fake)
    return played, lambda: played(cuda_graph=False)


def _live(runner: Any) -> dict[str, Any]:
    """Whatever a measurement asks of a runner, in its order; what the last look says."""
    observation = [np.ones(runner.spec.inputs[i].shape, np.float32) for i in runner.spec.fed]
    runner.step(observation)
    runner.rehearse_on(observation)
    runner.poison()
    runner.state()
    runner.reset()
    runner.mark_phases(True)
    runner.step(observation)
    runner.phases_ns()
    runner.mark_phases(False)
    return dict(runner.examine())


@pytest.mark.parametrize("way", [*ENDINGS, on_trt_queued], ids=lambda w: w.__name__)
def test_whichever_call_fails_after_the_load_nothing_stays_past_the_close(
    monkeypatch: pytest.MonkeyPatch, way: Any
) -> None:
    fake = FakeCuda()
    runner = way(monkeypatch, fake)[1]()
    loaded = len(fake.calls)
    looked = _live(runner)
    assert ("launches_per_step" in looked) == (way in (on_ort_mapped, on_trt_queued))
    calls = list(fake.calls)
    assert len(calls) > loaded + 10
    runner.close()
    told = 0
    for number in range(loaded, len(calls)):
        fake = FakeCuda()
        runner = way(monkeypatch, fake)[1]()
        fake.fails_at = number
        with contextlib.suppress(RobotPerfError, RuntimeError):
            told += "launches_per_step_reason" in _live(runner)
        assert len(fake.calls) > number
        runner.close()
        # What CUDA refuses to destroy stays, and that alone.
        refused = {"cudaGraphExecDestroy": {"executable graphs": 1}, "cudaGraphDestroy": {"graphs": 1}}
        assert fake.left() == refused.get(calls[number], {}), (number, calls[number])
    assert bool(told) == ("launches_per_step" in looked)  # each call of that look failed once, too


@pytest.mark.parametrize("way", [on_trt, on_ort_mapped], ids=lambda w: w.__name__)
def test_a_step_that_failed_does_not_keep_the_runtime(monkeypatch: pytest.MonkeyPatch, way: Any) -> None:
    """The node keeps the error that ended its loop, the worker closes while one is on its way: neither may hold the session."""
    fake = FakeCuda()
    played, load = way(monkeypatch, fake)
    runner = load()
    played.fault = "run 1" if way is on_ort_mapped else f"run {played.runs + 1}"
    with pytest.raises(RuntimeError) as kept:
        runner.work.run_policy()
    assert "a kernel went astray" in str(kept.value) or "could not queue the step" in str(kept.value)
    runner.close()
    assert played.endings == ENDINGS[way] and fake.left() == {}


def test_a_capture_that_an_exception_leaves_sound_is_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_cuda.play(monkeypatch, FakeCuda())
    with contextlib.closing(cudart.Stream(DeviceOptions())) as stream:

        def work() -> None:
            fake.submit(stream.address, lambda: None)
            raise ValueError("the policy's own")

        with pytest.raises(ValueError, match="own"):
            cudart.Graph(stream, work)
        assert fake.left() == {"streams": 1} and not fake.capturing(stream.address)


# --- torch: its allocator gives memory back only for the asking, and only what nobody holds any more ------------------------

FAULTS = {
    "eager": ["place 1", "pinned 1", "pinned 2", "event 1", "event 4", "runner 1"],
    "cuda_graph": [
        "place 1",
        "pinned 2",
        "event 2",
        "call 1",
        "call 5",
        "call 8",
        "capture 1",
        "replay 1",
        "replay 4",
        "runner 1",
    ],
}


@pytest.fixture
def torch_played(monkeypatch: pytest.MonkeyPatch) -> fake_torch.Played:
    """`torch_played(backend, policy)`: a runner on a device that is the CPU."""
    pytest.importorskip("torch", reason="torch is not installed")
    return fake_torch.Played(monkeypatch)


@pytest.mark.parametrize(("backend", "fault"), [(b, f) for b, faults in FAULTS.items() for f in faults])
def test_whatever_torch_refuses_its_memory_goes_back(torch_played: fake_torch.Played, backend: str, fault: str) -> None:
    torch_played.fault = fault
    with pytest.raises((RobotPerfError, RuntimeError)) as refused:
        torch_played(backend, policies.describe("lstm", preset="tiny"), marks=True)
    assert fault in f"{refused.value} {refused.value.__cause__}"
    assert set(torch_played.handed_back[-1]) <= {"events"} and "modules" in torch_played.alive


@pytest.mark.parametrize("backend", FAULTS)
def test_torchs_normal_close_hands_its_memory_back(torch_played: fake_torch.Played, backend: str) -> None:
    spec = policies.describe("lstm", preset="tiny")
    runner = torch_played(backend, spec, marks=True)
    observation = [np.ones(spec.inputs[i].shape, np.float32) for i in spec.fed]
    first, second = (np.array(runner.step(observation)[spec.action or 0]) for _ in range(2))
    assert np.isfinite(first).all() and not np.array_equal(first, second)  # the state was carried on
    assert {k for k, v in torch_played.alive.items() if v} >= {"modules", "resets", "tensors", "events"}
    assert bool(torch_played.alive.get("graphs")) == (backend == "cuda_graph")
    runner.close()
    assert set(torch_played.handed_back[-1]) <= {"events"}


@pytest.mark.parametrize(
    ("backend", "fault"), [(b, f) for b, faults in FAULTS.items() for f in ("", *faults) if not f.startswith("call")]
)
def test_a_factorys_object_is_closed_once_on_a_device_too(
    torch_played: fake_torch.Played, monkeypatch: pytest.MonkeyPatch, backend: str, fault: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "helpers")
    import closing_policies

    closing_policies.closed.clear()
    spec = policies.describe("closing_policies:in_torch")
    torch_played.fault = fault
    if fault:
        with pytest.raises((RobotPerfError, RuntimeError)):
            torch_played(backend, spec, marks=True)
    else:
        torch_played(backend, spec, marks=True).close()
    assert len(closing_policies.closed) == 1


# --- a pipeline: the stages before the one that failed ----------------------------------------------------------------------


class Stage:
    def __init__(self, spec: PolicySpec, closed: list[str]) -> None:
        self.spec, self.close = spec, lambda: closed.append(spec.name)


@pytest.mark.parametrize("fault", [RuntimeError("the stage's own"), PolicyError("it can't"), KeyboardInterrupt(), None])
def test_a_pipeline_closes_the_stages_that_were_loaded(fault: BaseException | None) -> None:
    closed: list[str] = []
    first, second = policies.describe("mlp", preset="tiny"), policies.describe("gru")
    stages = tuple(StageSpec(name, spec, ()) for name, spec in (("encoder", first), ("actor", second)))
    whole = dataclasses.replace(first, name="both", kind="pipeline", stages=stages)

    def load(_name: str, spec: PolicySpec, _options: Any) -> Any:
        if spec is second and fault is not None:
            raise fault
        return Stage(spec, closed)

    # Without a fault the stages can't be wired: neither says what it is fed.
    with pytest.raises(type(fault) if fault is not None else (PolicyError, ValueError)) as refused:
        pipeline.load("eager", whole, {}, load)
    assert sorted(closed) == sorted([first.name] if fault is not None else [first.name, second.name]), refused.value
