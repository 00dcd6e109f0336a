"""The part of torch.cuda that `backends.gpu` uses, on the CPU. A capture records the operators; a replay runs them at the same places."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from robot_perf.backends import cuda_graph
from robot_perf.backends.gpu import cudart, runner, torch_backend, torch_body, torch_cuda, torch_pinned
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.backends.torch_policy import runtime
from robot_perf.backends.torch_policy.state import Reset
from robot_perf.specs import PolicySpec


class Stream:
    priority = 0

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


class Played:
    """`played(backend, policy, **options)`: a runner of eager or cuda_graph.

    `fault` names what goes wrong: `KIND N` is the Nth of place, pinned, event, call, capture, replay, runner. `handed_back` says, for
    each time that the memory of nobody went back to the device, how many modules, resets, tensors and graphs were still there.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        self.torch, self.fault, self.counts = torch, "", dict[str, int]()
        self.alive: dict[str, weakref.WeakSet[Any]] = {}
        self.handed_back: list[dict[str, int]] = []
        stream = Stream()
        for name, value in {
            "Event": self._event,
            "CUDAGraph": lambda keep_graph=False: self._watched("graphs", Graph(self, keep_graph)),
            "graph": Capture,
            "current_stream": lambda _device: stream,
            "empty_cache": lambda: self.handed_back.append({k: len(v) for k, v in self.alive.items() if v}),
            "mem_get_info": lambda _device: (0, 1 << 30),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(DeviceOptions, "device", property(lambda _self: "cpu"))
        monkeypatch.setattr(runtime, "set_threads", lambda *_: None)  # torch's are this process's
        monkeypatch.setattr(torch_cuda, "open_device", lambda _settled: torch.device("cpu"))
        monkeypatch.setattr(torch_cuda, "stream", lambda _settled: stream)
        monkeypatch.setattr(torch_cuda, "place", self._placed)
        monkeypatch.setattr(torch_pinned, "pinned", self._pinned)
        monkeypatch.setattr(cudart, "unavailable", lambda: "cuda-python is not here")
        reset, allocate = Reset.__init__, torch_body.Body._allocate
        monkeypatch.setattr(Reset, "__init__", lambda new, *given: reset(self._watched("resets", new), *given))
        monkeypatch.setattr(torch_body.Body, "_allocate", lambda body: self._allocated(body, allocate(body)))
        called = torch_body.Body._called
        monkeypatch.setattr(torch_body.Body, "_called", lambda body, flat: (self.passes("call"), called(body, flat))[1])
        made = QueuedRunner
        for module in (torch_backend, runner):  # cuda_graph imports it on use
            monkeypatch.setattr(module, "QueuedRunner", lambda *given: (self.passes("runner"), made(*given))[1])

    def __call__(self, backend: str, policy: PolicySpec, **given: Any) -> Any:
        options = {"device": "cuda:0"} | given
        return (
            cuda_graph.load(policy, options)
            if backend == "cuda_graph"
            else torch_backend.load(policy, options, backend)
        )

    def passes(self, kind: str) -> None:
        """One more of a kind; raises where it is the one that fails."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.fault == f"{kind} {self.counts[kind]}":
            raise RuntimeError(f"CUDA error: {self.fault} failed")

    def _watched(self, kind: str, what: Any) -> Any:
        self.alive.setdefault(kind, weakref.WeakSet()).add(what)
        return what

    def _allocated(self, body: Any, _nothing: None) -> None:
        for tensor in (*body.flat, *body._initial):
            self._watched("tensors", tensor)

    def _event(self, enable_timing: bool = False, blocking: bool = False, *, external: bool = False) -> Any:
        self.passes("event")
        return self._watched("events", Event())

    def _placed(self, module: Any, *_: Any) -> Any:
        self._watched("modules", module)
        self.passes("place")
        return module

    def _pinned(self, torch: Any, tensor: Any) -> Any:
        self.passes("pinned")
        return self._watched("pinned", torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype)))


class Event:
    def record(self, _stream: Any) -> None: ...


class Graph:
    """As torch.cuda.CUDAGraph: one that is kept, so that its nodes can be counted, is instantiated by hand."""

    def __init__(self, played: Played, keep_graph: bool) -> None:
        self.played, self.keep_graph, self.calls = played, keep_graph, list[Any]()
        self.instantiated = False

    def instantiate(self) -> None:
        self.played.passes("instantiate")
        self.instantiated = True

    def raw_cuda_graph(self) -> int:
        if not self.keep_graph:
            raise RuntimeError(
                "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=True"
            )
        return id(self)

    def replay(self) -> None:
        from torch.utils._pytree import tree_leaves

        torch = self.played.torch
        assert self.instantiated or not self.keep_graph, "the first replay would instantiate it, inside the loop"
        self.played.passes("replay")
        with torch.no_grad():
            for call, given, named, answered in self.calls:
                again = call(*given, **named)
                for place, value in zip(tree_leaves(answered), tree_leaves(again), strict=True):
                    if isinstance(place, torch.Tensor) and place.data_ptr() != value.data_ptr():
                        place.copy_(value)

    def reset(self) -> None:
        self.calls.clear()
        self.played.alive["graphs"].discard(self)


class Capture:
    """As torch.cuda.graph."""

    def __init__(self, graph: Graph, *, stream: Stream, capture_error_mode: str) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        assert isinstance(stream, Stream) and capture_error_mode == "thread_local"

        class Recording(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, call: Any, _types: Any, given: Any = (), named: Any = None) -> Any:
                answered = call(*given, **(named or {}))
                graph.calls.append((call, given, named or {}, answered))
                return answered

        self.graph, self.mode = graph, Recording()

    def __enter__(self) -> None:
        self.mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.mode.__exit__(*error)
        self.graph.played.passes("capture")
