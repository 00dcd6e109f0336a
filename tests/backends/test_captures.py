"""What a CUDA graph's capture must not meet: a garbage collection, which would free memory into it. On played runtimes.

And what counts the launches of a step that is no graph, torch's profiler.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import fake_cuda
import fake_torch
import fake_trt
import numpy as np
import pytest

from robot_perf import policies
from robot_perf.backends.gpu import torch_cuda, torch_graph, torch_queue
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.errors import InvalidMeasurementError, UsageError


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    assert gc.isenabled(), "a capture left the collector off"


def on_torch(monkeypatch: pytest.MonkeyPatch, seen: list[bool]) -> Callable[[], Any]:
    played = fake_torch.Played(monkeypatch)
    real = fake_torch.Capture.__enter__
    monkeypatch.setattr(fake_torch.Capture, "__enter__", lambda self: (seen.append(gc.isenabled()), real(self))[1])
    return lambda: played("cuda_graph", policies.describe("lstm", preset="tiny"))


def on_cuda(monkeypatch: pytest.MonkeyPatch, seen: list[bool]) -> Callable[[], Any]:
    fake = fake_cuda.FakeCuda()
    real = fake_cuda.FakeCuda.cudaStreamBeginCapture
    monkeypatch.setattr(
        fake_cuda.FakeCuda,
        "cudaStreamBeginCapture",
        lambda self, *given: (seen.append(gc.isenabled()), real(self, *given))[1],
    )
    return fake_trt.Played(monkeypatch, fake)


@pytest.mark.parametrize("way", [on_torch, on_cuda], ids=["torch", "cuda"])
def test_nothing_is_collected_while_a_graph_is_captured(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    runner = way(monkeypatch, seen)()
    captured = len(seen)
    runner.rehearse_on([np.zeros(t.shape, t.dtype) for t in (runner.spec.inputs[i] for i in runner.spec.fed)])
    runner.mark_phases(True)
    if hasattr(runner, "touch"):
        runner.touch()
    runner.close()
    assert captured and len(seen) > captured and not any(seen), seen


def test_the_collector_is_on_again_after_a_capture_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    played = fake_torch.Played(monkeypatch)
    played.fault = "capture 1"
    with pytest.raises(Exception, match="capture 1 failed"):
        played("cuda_graph", policies.describe("mlp", preset="tiny"))
    assert gc.isenabled()


@pytest.mark.parametrize("backend", ["eager", "cuda_graph"])
def test_a_closed_runner_holds_no_pinned_memory(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner ends in a collection, whenever that is: what it still pins then is freed at any moment, in a capture too."""
    played = fake_torch.Played(monkeypatch)
    runner = played(backend, policies.describe("lstm", preset="tiny"))
    runner.step([np.zeros(t.shape, t.dtype) for t in (runner.spec.inputs[i] for i in runner.spec.fed)])
    gc.disable()
    try:
        pinned = played.alive["pinned"]
        assert len(pinned)
        runner.close()
        assert not len(pinned)
    finally:
        gc.enable()


def test_marks_that_can_not_be_captured_leave_the_plain_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    played = fake_torch.Played(monkeypatch)
    runner = played("cuda_graph", policies.describe("mlp", preset="tiny"))
    played.fault = f"capture {played.counts['capture'] + 1}"
    with pytest.raises(InvalidMeasurementError):
        runner.mark_phases(True)
    assert runner.device_ns() == -1, "the events of marks that are not there were never recorded"
    runner.poison()
    observation = [np.ones(t.shape, t.dtype) for t in runner.spec.inputs]
    assert np.isfinite(runner.step(observation)[0]).all()
    runner.close()


@pytest.mark.parametrize("backend", ["eager", "cuda_graph"])
def test_touching_the_weights_makes_no_gradients(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    played, seen = fake_torch.Played(monkeypatch), list[bool]()
    runner = played(backend, policies.describe("mlp", preset="tiny"))
    weight = SimpleNamespace(sum=lambda: seen.append(played.torch.is_grad_enabled()))
    monkeypatch.setattr(runner.work.body, "weights", lambda: [weight])
    with played.torch.enable_grad():
        runner.touch()
    assert seen == [False]
    runner.close()


@pytest.mark.parametrize("backend", ["eager", "cuda_graph"])
def test_the_priority_in_the_facts_is_the_streams(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    played = fake_torch.Played(monkeypatch)
    monkeypatch.setattr(fake_torch.Stream, "priority", -2)
    for module in (torch_graph, torch_queue):
        monkeypatch.setattr(module, "memory_facts", lambda _device: {})
    runner = played(backend, policies.describe("mlp", preset="tiny"), priority=-1)
    assert runner.facts()["stream_priority"] == -2
    runner.close()


@pytest.mark.parametrize(("asked", "words"), [(-2, None), (-7, "0 (the lowest) to -3"), (7, "0 (the lowest) to -3")])
def test_torch_refuses_a_priority_that_it_would_clamp(
    asked: int, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    made = lambda _index, priority: SimpleNamespace(priority=max(-3, priority))  # noqa: E731
    monkeypatch.setattr(torch.cuda, "Stream", made)
    monkeypatch.setattr(torch_cuda, "_streams", {})
    if words is None:
        assert torch_cuda.stream(DeviceOptions(priority=asked)).priority == asked
        return
    with pytest.raises(UsageError, match=f"priority {asked} is not offered by cuda:0") as refused:
        torch_cuda.stream(DeviceOptions(priority=asked))
    assert words in str(refused.value)


class Profiler:
    """As torch 2.11's for its first use in a process."""

    def __init__(self, **_: Any) -> None: ...

    def __enter__(self) -> Profiler:
        warnings.warn(
            "Warning: Profiler clears events at the end of each cycle.Only events from", UserWarning, stacklevel=2
        )
        return self

    def __exit__(self, *_: Any) -> None: ...

    def events(self) -> list[Any]:
        return [SimpleNamespace(name="cudaLaunchKernel"), SimpleNamespace(name="cudaMemcpyAsync")]


def test_counting_launches_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stand in the terminal after a measurement."""
    monkeypatch.setattr("torch.profiler.profile", Profiler)
    runner = fake_torch.Played(monkeypatch)("eager", policies.describe("mlp", preset="tiny"))
    runner.step([np.zeros(t.shape, t.dtype) for t in (runner.spec.inputs[i] for i in runner.spec.fed)])
    assert runner.examine()["launches_per_step"] == 1
    runner.close()
