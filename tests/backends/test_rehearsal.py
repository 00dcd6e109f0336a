"""A rehearsal leaves a stateful policy's answers exactly as they would have been.

On a device: test_cuda.py and test_tensorrt.py; without one, on a played device: test_device_steps.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from loop_fakes import FakeClock

from robot_perf import backends, policies
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.errors import UsageError
from robot_perf.measure.window.keep_warm import keep_warm_hook
from robot_perf.policies.observations import open_observations
from robot_perf.specs import LoopSpec, PolicySpec


def answers(runner, observations, rehearse) -> list[np.ndarray]:
    runner.reset()
    found = []
    for k in range(30):
        rehearse()
        found.append(np.array(runner.step(observations.at(k))[runner.spec.action]))
    return found


@pytest.mark.parametrize("policy", ["lstm", "gru", "mlp"])
@pytest.mark.parametrize("backend", ["python", "onnxruntime"])
def test_rehearsals_between_steps_change_nothing(policy, backend):
    if backend == "onnxruntime":
        pytest.importorskip("onnxruntime")
    runner = backends.load(backend, policies.describe(policy), {})
    observations = open_observations(runner.spec)
    try:
        plain = answers(runner, observations, lambda: None)
        rehearsed = answers(runner, observations, lambda: runner.rehearse_on(observations.at(500)))
    finally:
        runner.close()
    assert all(np.array_equal(a, b) for a, b in zip(plain, rehearsed, strict=True))
    if policy != "mlp":
        assert not all(np.array_equal(plain[0], other) for other in plain[1:])


class Counting:
    """A device's work without a device: the answer counts the launches that the state remembers."""

    def __init__(self, carries: bool) -> None:
        self.staged, self.answers = [np.zeros(1)], [np.zeros(1)]
        self.count = self.aside = 0.0
        self.calls: list[str] = []
        self.keep = self._keep if carries else None

    def _keep(self) -> None:
        self.calls.append("keep")
        self.aside = self.count

    def put_back(self) -> None:
        self.calls.append("put back")
        self.count = self.aside

    def launch(self) -> None:
        self.calls.append("launch")
        self.count += 1
        self.answers[0][0] = 10 * self.staged[0][0] + self.count

    def wait(self) -> None:
        self.calls.append("wait")

    def busy(self) -> bool:
        return False

    def device_ns(self) -> int:
        return -1

    def phases_ns(self) -> tuple[int, int, int]:
        return 0, 0, 0


@pytest.mark.parametrize("carries", [True, False])
def test_a_queued_rehearsal_is_a_step_whose_state_and_answers_are_put_back(carries):
    work = Counting(carries)
    runner = QueuedRunner(PolicySpec("counting", "builtin"), work)
    outputs = runner.step([np.ones(1)])
    work.calls.clear()
    runner.rehearse_on([np.full(1, 7.0)])
    assert outputs[0][0] == 11.0
    assert work.calls == (["keep", "launch", "wait", "put back"] if carries else ["launch", "wait"])
    assert runner.step([np.ones(1)])[0][0] == (12.0 if carries else 13.0)


def body_on_the_cpu(step, history):
    """The part of a torch body that keeps and puts back, around a module whose state is the buffer `history`."""
    torch = pytest.importorskip("torch")
    from robot_perf.backends.gpu.torch_body import Body

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("history", history(torch))
            self.register_buffer("mean", torch.ones(2))

        def forward(self, obs):
            step(self, obs)
            return self.history.sum() + self.mean.sum()

    body = Body.__new__(Body)
    module = Module()
    body.torch, body.policy, body.module = torch, SimpleNamespace(name="tested", state_note=""), module
    body.flat, body.low, body.results = [torch.zeros(2)], None, []
    body._call, body._assemble, body._checked = module, None, True
    body._carried, body._moving, body._aside = [], [], []
    return body


def written(module, obs) -> None:
    module.history.mul_(0.5).add_(obs)


def replaced(module, obs) -> None:
    module.history = 0.5 * module.history + obs


@pytest.mark.parametrize("step", [written, replaced])
def test_a_buffer_that_the_first_look_leaves_at_zero_is_state_all_the_same(step):
    """After a load the state is zeros, and so are the inputs that the look computes on."""
    body = body_on_the_cpu(step, lambda torch: torch.zeros(2))
    assert body.find_state()
    assert body._moving == ["history"]
    body.flat[0].fill_(1.0)
    body.compute()
    before = body.module.history.clone()
    for _ in range(3):
        body.keep()
        body.compute()
        assert not body.torch.equal(body.module.history, before)
        body.put_back()
        assert body.torch.equal(body.module.history, before)


def test_a_module_that_only_reads_its_buffers_has_no_state_to_keep():
    body = body_on_the_cpu(lambda module, obs: None, lambda torch: torch.zeros(2))
    assert not body.find_state()


def test_a_buffer_that_grows_is_not_rehearsed():
    def grown(module, obs) -> None:
        module.history = module.torch.cat([module.history, obs[None]])

    body = body_on_the_cpu(grown, lambda torch: torch.zeros(1, 2))
    body.module.torch = body.torch
    assert body.find_state()
    body.keep()
    body.compute()
    body.put_back()
    assert body.module.history.shape == (1, 2)
    body.compute()
    with pytest.raises(UsageError, match="can't be rehearsed"):
        body.keep()


def test_a_nudge_without_cuda_python_says_how_to_get_it(monkeypatch):
    import builtins

    from robot_perf.backends.gpu.nudge import Nudge
    from robot_perf.errors import BackendUnavailableError

    real = builtins.__import__

    def absent(name, *rest, **more):
        if name.startswith("cuda"):
            raise ImportError("No module named 'cuda'", name="cuda")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(BackendUnavailableError, match="cuda-python"):
        Nudge(0)


class Driver:
    """The driver's calls that a nudge makes; `calls` names them."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*given):
            self.calls.append((name, *given))
            return (0, len(self.calls))

        return call


def test_a_process_makes_one_nudge_for_a_device_however_often_it_keeps_warm(monkeypatch):
    from robot_perf.backends.gpu import nudge

    driver = Driver()
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(driver=driver, __path__=[]))
    monkeypatch.setattr(nudge, "_made", {})
    runner = SimpleNamespace(facts=lambda: {"device": "cuda:1"})
    loop = LoopSpec(period_ns=2_000_000, deadline_ns=2_000_000, steps=1, keep_warm="tiny-kernel:300")
    for _ in range(5):
        hook = keep_warm_hook(loop, runner, None, FakeClock(), [False])
        hook(3_000_000)
    names = [name for name, *_ in driver.calls]
    for made_once in ("cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuStreamCreate"):
        assert names.count(made_once) == 1
    assert names.count("cuLaunchKernel") == 5
    assert names.count("cuCtxSetCurrent") == 5, "the loop may be another thread's each time"
    assert len({given for name, *given in map(list, driver.calls) if name == "cuCtxSetCurrent" for given in given}) == 1
    nudge.nudge_of(0)
    assert [call[1] for call in driver.calls if call[0] == "cuDeviceGet"] == [1, 0]


@pytest.mark.gpu
def test_an_empty_kernel_runs_beside_a_policy():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    from robot_perf.backends.gpu.nudge import Nudge

    x = torch.ones(4, device="cuda")
    nudge = Nudge(0)
    for _ in range(100):
        nudge.tiny_kernel()
    torch.cuda.synchronize()
    assert float((x + 1).sum()) == 8.0


@pytest.mark.gpu
def test_state_that_hides_in_an_object_is_not_rehearsed(monkeypatch):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    monkeypatch.chdir(Path(__file__).resolve().parents[1] / "helpers")
    runner = backends.load("eager", policies.describe("cuda_policies:HiddenState"), {"device": "cuda:0"})
    try:
        with pytest.raises(UsageError, match="can't be rehearsed"):
            runner.rehearse_on(open_observations(runner.spec).at(0))
    finally:
        runner.close()
