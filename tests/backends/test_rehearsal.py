"""A rehearsal leaves a stateful policy's answers exactly as they would have been."""

from __future__ import annotations

import numpy as np
import pytest

from robot_perf import backends, policies
from robot_perf.policies.observations import open_observations


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


def test_a_nudge_without_cuda_python_says_how_to_get_it(monkeypatch):
    import builtins

    from robot_perf.backends.cuda_nudge import Nudge
    from robot_perf.errors import BackendUnavailableError

    real = builtins.__import__

    def absent(name, *rest, **more):
        if name.startswith("cuda"):
            raise ImportError("No module named 'cuda'", name="cuda")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(BackendUnavailableError, match="cuda-python"):
        Nudge(0)


@pytest.mark.gpu
def test_an_empty_kernel_runs_beside_a_policy():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    from robot_perf.backends.cuda_nudge import Nudge

    x = torch.ones(4, device="cuda")
    nudge = Nudge(0)
    for _ in range(100):
        nudge.tiny_kernel()
    torch.cuda.synchronize()
    assert float((x + 1).sum()) == 8.0


@pytest.mark.gpu
@pytest.mark.parametrize("policy", ["mlp", "lstm"])
def test_a_device_rehearsal_leaves_the_state_alone(policy):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    runner = backends.load("cuda_graph", policies.describe(policy), {"device": "cuda:0"})
    observations = open_observations(runner.spec)
    try:
        plain = answers(runner, observations, lambda: None)
        rehearsed = answers(runner, observations, runner.rehearse)
    finally:
        runner.close()
    assert all(np.array_equal(a, b) for a, b in zip(plain, rehearsed, strict=True))
