"""The steps of the device backends without torch, on CUDA played by the host: buffers, copies, graphs, waits, and what is let go of.

The same on a device: test_cuda.py and test_tensorrt.py, with `-m gpu`.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda

from robot_perf import backends, policies
from robot_perf.backends.gpu import buffers as device_buffers
from robot_perf.backends.gpu import cudart, ort, ort_session
from robot_perf.backends.gpu.buffers import Buffers
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.backends.gpu.work import StreamWork
from robot_perf.backends.shared.check import check_outputs
from robot_perf.errors import InvalidMeasurementError, PolicyError
from robot_perf.policies.observations import open_observations
from robot_perf.specs import PolicySpec, StatePair, TensorSpec

DEVICE = {"device": "cuda:0"}
ASYNC = "disable_synchronize_execution_providers"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """CUDA's runtime, played; the device has 1 GiB."""
    return _played(monkeypatch, FakeCuda())


def _played(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> FakeCuda:
    monkeypatch.setattr(cudart, "runtime", lambda: fake)
    monkeypatch.setattr(device_buffers, "runtime", lambda: fake)
    monkeypatch.setattr(cudart, "unavailable", lambda: None)
    return fake


# --- a policy whose answer is what it was shown plus how often it was called ------------------------------------------------

PAIR = (1, 2)
COUNTING = PolicySpec(
    "counting",
    "builtin",
    inputs=(TensorSpec("obs", "float32", PAIR), TensorSpec("n_in", "float32", PAIR)),
    outputs=(TensorSpec("action", "float32", PAIR), TensorSpec("n_out", "float32", PAIR)),
    action=0,
    state=(StatePair(target=1, source=1),),
    state_note="1 pair carried",
)
WAYS: list[dict[str, Any]] = [
    {},
    {"cuda_graph": True},
    {"mapped": True},
    {"cuda_graph": True, "mapped": True, "sync": "block"},
    {"cuda_graph": True, "marks": True, "sync": "spin"},
]


def _floats(fake: FakeCuda, address: int) -> np.ndarray:
    return np.frombuffer(fake.blocks[address], np.float32, count=2).reshape(PAIR)


def _runner(fake: FakeCuda, *, waits: bool = False, **given: Any) -> QueuedRunner:
    options = DeviceOptions(**given)
    stream, memory = cudart.Stream(options), Buffers(COUNTING, options)
    places = memory.inputs | memory.outputs

    def compute() -> None:
        places_now = {name: _floats(fake, address) for name, address in places.items()}
        places_now["action"][...] = places_now["obs"] + places_now["n_in"]
        places_now["n_out"][...] = places_now["n_in"] + 1

    def enqueue() -> None:
        for work in (lambda: None, compute, lambda: None):
            fake.submit(stream.address, work)
        if waits:
            cudart.check("cudaStreamSynchronize", fake.cudaStreamSynchronize(stream.handle))

    work = StreamWork(
        "counting", options, stream, memory, enqueue, dict, lambda: None, capturable=options.cuda_graph, counted=enqueue
    )
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
    assert not cuda.blocks and not cuda.streams and cuda.log[-1] == "stream"


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
    assert not cuda.blocks


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


def test_a_step_that_waits_is_not_captured_and_its_user_is_told_what_to_do(cuda: FakeCuda) -> None:
    with pytest.raises(InvalidMeasurementError) as refused:
        _runner(cuda, waits=True, cuda_graph=True)
    text = str(refused.value)
    assert "can't be captured" in text and "cuda_graph=false" in text and "eager" not in text
    assert len(text.splitlines()) <= 4 and not any(s.capture is not None for s in cuda.streams.values())


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


class Session:
    """What `backends.gpu.ort` sees of a session: five kernels a run, a wait at its end unless told otherwise.

    As onnxruntime-gpu 1.30 does: each run of a recurrent model borrows pinned buffers, which only the end of a run with its wait
    gives back. A session that ends with some of them borrowed, or after its stream, aborts the process.
    """

    def __init__(self, fake: FakeCuda, source: str | bytes, providers: list[tuple[str, dict[str, str]]]) -> None:
        import onnxruntime

        self.fake, self.stream = fake, int(providers[0][1]["user_compute_stream"])
        self.cpu = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
        self.graph = providers[0][1].get("enable_cuda_graph") == "1"
        self.names = [name for name, _ in providers]
        self.borrowed, self.runs, self.waited = 0, 0, 0
        self.stumbles = False  # a node of it waits, whatever the run was told

    get_inputs = property(lambda self: self.cpu.get_inputs)
    get_outputs = property(lambda self: self.cpu.get_outputs)

    def get_providers(self) -> list[str]:
        return [*self.names, "CPUExecutionProvider"]

    def io_binding(self) -> Any:
        bound = self.cpu.io_binding()

        class Binding:
            cpu = bound

            def bind_input(self, name: str, _device: str, index: int, kind: Any, shape: Any, address: int) -> None:
                bound.bind_input(name, "cpu", index, kind, list(shape), address)

            def bind_output(self, name: str, _device: str, index: int, kind: Any, shape: Any, address: int) -> None:
                bound.bind_output(name, "cpu", index, kind, list(shape), address)

        return Binding()

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        self.runs += 1
        replayed = self.graph and self.runs > 3
        self.borrowed += 0 if replayed else 1
        self.fake.submit(self.stream, lambda: self.cpu.run_with_iobinding(binding.cpu))
        for _ in range(4):
            self.fake.submit(self.stream, lambda: None)
        if options.asynchronous and not self.stumbles:
            return
        self.waited += not options.asynchronous
        self.borrowed = self.borrowed if options.asynchronous else 0
        if self.fake.cudaStreamSynchronize(self.fake.streams[self.stream])[0]:
            raise RuntimeError("CUDA failure 900: operation not permitted when stream is capturing")

    def ended(self) -> str | None:
        """Why the process would abort now; None when it would not."""
        if self.stream not in self.fake.streams:
            return "the session ended after its stream"
        return f"{self.borrowed} buffers were never given back" if self.borrowed and not self.graph else None


class RunOptions:
    asynchronous = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        assert (key, value) == (ASYNC, "1")
        self.asynchronous = True


@pytest.fixture
def played(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """`played(policy, **options)`: a runner of the onnxruntime backend, and a weak reference to its session."""
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(onnxruntime, "RunOptions", RunOptions)
    monkeypatch.setattr(ort_session, "check_present", lambda _provider: None)
    monkeypatch.setattr(ort_session, "preload", lambda: "")

    def load(policy: PolicySpec, **given: Any) -> tuple[Any, dict[str, Any]]:
        seen: dict[str, Any] = {}

        def opened(_policy: Any, _options: Any, source: Any, providers: Any, _allowed: Any) -> Any:
            session = Session(cuda, source, providers)
            seen["session"] = weakref.ref(session)
            return session

        monkeypatch.setattr(ort_session, "open_session", opened)
        return ort.load(policy, DEVICE | given), seen

    return load


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
    order: list[str] = []
    weakref.finalize(seen["session"](), lambda: order.append(f"session, {len(cuda.streams)} stream"))
    gc.disable()  # the last reference must do it: what waits for a collection outlives the stream
    try:
        runner.close()
        assert order == ["session, 1 stream"]
    finally:
        gc.enable()
    assert not cuda.blocks and not cuda.streams
    reference.close()


def test_only_the_cuda_providers_own_graph_does_without_the_wait(cuda: FakeCuda, played: Any) -> None:
    spec = policies.describe("lstm", preset="tiny")
    waited = {}
    for name, given in (
        ("calls", {}),
        ("graph", {"cuda_graph": True}),
        ("tensorrt", {"cuda_graph": True, "provider": "tensorrt"}),
    ):
        runner, seen = played(spec, **given)
        runner.step(open_observations(spec).at(0))
        session = seen["session"]()
        waited[name] = session.waited == session.runs
        assert session.ended() is None
        del session
        runner.close()
    assert waited == {"calls": True, "graph": False, "tensorrt": True}


def test_a_run_that_waits_all_the_same_leaves_nothing_borrowed(cuda: FakeCuda, played: Any) -> None:
    """A node on the CPU waits inside the run: it can't be counted, and what it borrowed goes back all the same."""
    spec = policies.describe("lstm", preset="tiny")
    runner, seen = played(spec)
    runner.step(open_observations(spec).at(0))
    seen["session"]().stumbles = True
    assert "can't be captured" in runner.examine()["launches_per_step_reason"]
    assert seen["session"]().ended() is None
    runner.close()


def test_too_little_memory_is_one_message(monkeypatch: pytest.MonkeyPatch, played: Any) -> None:
    _played(monkeypatch, FakeCuda(room=64))
    with pytest.raises(PolicyError, match="too little memory") as refused:
        played(policies.describe("mlp", preset="tiny"))
    assert "cudaErrorMemoryAllocation" in str(refused.value) and len(str(refused.value).splitlines()) <= 4
