"""TensorRT's runtime on a `fake_cuda.FakeCuda`: one engine, which answers what it was shown plus how often it was called."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import fake_cuda
import numpy as np
import pytest

from robot_perf.backends.trt import api as trt_api
from robot_perf.backends.trt import execute
from robot_perf.backends.trt.build import Engine as Plan


class Played:
    """`played(**options)`: a runner of the tensorrt backend.

    `fault` names what goes wrong: engine, context, dtype, size, address, `run N`. `endings` lists what ended, with the streams
    that were there then and whether they had work. The context holds no engine and the engine no runtime: their order is the backend's own doing.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fake: fake_cuda.FakeCuda) -> None:
        fake_cuda.play(monkeypatch, fake)
        self.fake, self.fault, self.runs = fake, "", 0
        self.endings: list[str] = []
        module: Any = SimpleNamespace(__version__="10.3.0", Runtime=lambda _logger: Runtime(self), nptype=lambda d: d)
        monkeypatch.setattr(trt_api, "unavailable", lambda _edition: None)
        monkeypatch.setattr(
            trt_api, "load", lambda edition: trt_api.Api(edition, module, SimpleNamespace(heard=1), ["E no kernel"])
        )
        monkeypatch.setattr(execute, "engine_for", lambda *_: Plan(b"plan", {"engine": "kept"}))

    def __call__(self, **given: Any) -> Any:
        return execute.load("tensorrt", fake_cuda.COUNTING, {"device": "cuda:0"} | given)

    def ends(self, what: Any, name: str) -> None:
        """Notes the end of an object."""
        fake, endings = self.fake, self.endings
        weakref.finalize(what, lambda: endings.append(f"{name}, {fake.busy()}"))


class Runtime:
    def __init__(self, played: Played) -> None:
        self.played = played
        played.ends(self, "runtime")

    def deserialize_cuda_engine(self, _plan: bytes) -> Engine | None:
        return None if self.played.fault == "engine" else Engine(self.played)


class Engine:
    def __init__(self, played: Played) -> None:
        self.played = played
        self.tensors = {t.name: t for t in (*fake_cuda.COUNTING.inputs, *fake_cuda.COUNTING.outputs)}
        self.num_io_tensors = len(self.tensors)
        played.ends(self, "engine")

    def get_tensor_name(self, i: int) -> str:
        return list(self.tensors)[i]

    def get_tensor_dtype(self, name: str) -> Any:
        return np.float16 if self.played.fault == "dtype" else np.dtype(self.tensors[name].dtype).type

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def create_execution_context(self) -> Context | None:
        return None if self.played.fault == "context" else Context(self)


class Context:
    def __init__(self, engine: Engine) -> None:
        self.played, self._tensors = engine.played, engine.tensors
        self.engine = SimpleNamespace(
            num_io_tensors=engine.num_io_tensors,
            get_tensor_name=list(engine.tensors).__getitem__,
            get_tensor_shape=lambda name, tensors=engine.tensors: tensors[name].shape,
        )
        self.places: dict[str, int] = {}
        self.played.ends(self, "context")

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (9, 9) if self.played.fault == "size" else self._tensors[name].shape

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.places[name] = address
        return self.played.fault != "address"

    def execute_async_v3(self, address: int) -> bool:
        self.played.runs += 1
        if self.played.fault == f"run {self.played.runs}":
            return False
        fake = self.played.fake
        for work in (lambda: None, fake_cuda.counting(fake, dict(self.places)), lambda: None):
            fake.submit(address, work)
        return True
