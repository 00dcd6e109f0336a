"""ONNX Runtime's session on a CUDA device, played by its CPU provider on a `fake_cuda.FakeCuda`."""

from __future__ import annotations

import weakref
from typing import Any

import fake_cuda
import pytest

from robot_perf.backends.gpu import ort, ort_session
from robot_perf.specs import PolicySpec

ASYNC, GRAPH = "disable_synchronize_execution_providers", "gpu_graph_id"


class Session:
    """What `backends.gpu.ort` sees of a session: five kernels a run, a wait at its end unless told otherwise.

    As onnxruntime-gpu 1.30 does: each run of a recurrent model borrows pinned buffers, which only the end of a run with its wait
    gives back. A session that ends with some of them borrowed, or after its stream, aborts the process.
    """

    def __init__(self, played: Played, source: str | bytes, providers: list[tuple[str, dict[str, str]]]) -> None:
        import onnxruntime

        self.fake, self.played, self.stream = played.fake, played, int(providers[0][1]["user_compute_stream"])
        self.cpu = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
        self.graph = providers[0][1].get("enable_cuda_graph") == "1"
        self.names = [name for name, _ in providers]
        self.borrowed, self.runs, self.waited = 0, 0, 0
        self.stumbles = False  # a node of it waits, whatever the run was told
        played.ends(self, "session")

    get_outputs = property(lambda self: self.cpu.get_outputs)

    def get_inputs(self) -> list[Any]:
        return [] if self.played.fault == "signature" else self.cpu.get_inputs()

    def get_providers(self) -> list[str]:
        return [*self.names, "CPUExecutionProvider"]

    def io_binding(self) -> Any:
        binding = Binding(self)
        self.played.ends(binding, "binding")
        return binding

    def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
        # Its Python side catches an exception from C++ at each run whose options hold no graph's number: 37 µs.
        assert options is None or GRAPH in options.entries
        self.runs += 1
        asynchronous = options is not None and options.entries.get(ASYNC) == "1"
        if self.played.fault == f"run {self.runs}":
            raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : a kernel went astray")
        replayed = self.graph and self.runs > 3
        self.borrowed += 0 if replayed else 1
        cpu, bound = self.cpu, binding.cpu
        self.fake.submit(self.stream, lambda: cpu.run_with_iobinding(bound))
        for _ in range(4):
            self.fake.submit(self.stream, lambda: None)
        if asynchronous and not self.stumbles:
            return
        self.waited += not asynchronous
        self.borrowed = self.borrowed if asynchronous else 0
        if self.fake.cudaStreamSynchronize(self.fake.streams[self.stream])[0]:
            raise RuntimeError("CUDA failure 900: operation not permitted when stream is capturing")

    def ended(self) -> str | None:
        """Why the process would abort now; None when it would not."""
        if self.stream not in self.fake.streams:
            return "the session ended after its stream"
        return f"{self.borrowed} buffers were never given back" if self.borrowed and not self.graph else None


class Binding:
    def __init__(self, session: Session) -> None:
        self.cpu, self.played = session.cpu.io_binding(), session.played
        self.places: dict[str, str] = {}  # where each output is
        session.played.seen["places"] = self.places

    def bind_input(self, name: str, _device: str, index: int, kind: Any, shape: Any, address: int) -> None:
        if self.played.fault == "binding":
            raise ValueError("Failed to bind input")
        self.cpu.bind_input(name, "cpu", index, kind, shape, address)

    def bind_output(self, name: str, device: str, index: int, kind: Any, shape: Any, address: int) -> None:
        self.places[name] = device
        self.cpu.bind_output(name, "cpu", index, kind, shape, address)


class RunOptions:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value


class Played:
    """`played(policy, **options)`: a runner of the onnxruntime backend, and what was seen: a weak reference to its session.

    `fault` names what goes wrong: signature, binding, `run N`. `endings` lists what ended, with the streams that were there then
    and whether they had work.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fake: fake_cuda.FakeCuda) -> None:
        onnxruntime = pytest.importorskip("onnxruntime")
        fake_cuda.play(monkeypatch, fake)
        monkeypatch.setattr(onnxruntime, "RunOptions", RunOptions)
        monkeypatch.setattr(ort_session, "check_present", lambda _provider: None)
        monkeypatch.setattr(ort_session, "preload", lambda: "")
        monkeypatch.setattr(ort_session, "open_session", self._opened)
        self.fake, self.fault, self.endings = fake, "", []
        self.seen: dict[str, Any] = {}

    def __call__(self, policy: PolicySpec, **given: Any) -> tuple[Any, dict[str, Any]]:
        self.seen = {}
        return ort.load(policy, {"device": "cuda:0"} | given), self.seen

    def _opened(self, _policy: Any, _options: Any, source: Any, providers: Any, _allowed: Any) -> Session:
        session = Session(self, source, providers)
        self.seen["session"] = weakref.ref(session)
        return session

    def ends(self, what: Any, name: str) -> None:
        """Notes the end of an object."""
        fake, endings = self.fake, self.endings
        weakref.finalize(what, lambda: endings.append(f"{name}, {fake.busy()}"))
