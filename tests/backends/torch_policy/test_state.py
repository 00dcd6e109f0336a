"""State in TorchScript and torch modules: found, reset as the policy does it, restored where it does not, and said."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from robot_perf import backends, policies  # noqa: E402
from robot_perf.errors import PolicyError, UsageError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Counter(torch.nn.Module):
    """Adds its input to a buffer; `mean` is a normaliser that never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.full((1, 4), 0.5))
        self.register_buffer("mean", torch.ones(1, 4))

    def forward(self, obs):
        self.total = self.total + obs / self.mean
        return self.total


class InPlace(Counter):
    def forward(self, obs):
        self.total += obs
        return self.total.clone()


class WithReset(Counter):
    @torch.jit.export
    def reset(self):
        self.total = torch.full((1, 4), 0.5)


class ResetToZero(Counter):
    @torch.jit.export
    def reset_memory(self):
        self.total = torch.zeros(1, 4)


class NoOpReset(Counter):
    @torch.jit.export
    def reset(self):
        pass


class ResetDones(Counter):
    @torch.jit.export
    def reset(self, dones: torch.Tensor):
        self.total[dones] = 0.5


class ResetIndex(Counter):
    @torch.jit.export
    def reset(self, env_ids: torch.Tensor, noise: float):
        self.total[env_ids] = noise


class FailingReset(Counter):
    @torch.jit.export
    def reset(self):
        self.total = self.total.reshape(3, 3)


class KeepsItsInput(Counter):
    """Its buffer becomes the very tensor it was fed."""

    def forward(self, obs):
        out = self.total + obs
        self.total = obs
        return out


class FeedForwardWithReset(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 2)

    def forward(self, obs):
        return self.net(obs)

    @torch.jit.export
    def reset(self):
        pass

    @torch.jit.export
    def __len__(self) -> int:
        return 7


CASES: list[tuple[Any, str, list[str]]] = [
    (Counter, "state: total in buffers, reset by restoring the loaded buffer values before measuring", []),
    (InPlace, "state: total in buffers, reset by restoring the loaded buffer values before measuring", []),
    (WithReset, "state: total in buffers, reset by reset() before measuring", []),
    (
        ResetToZero,
        "state: total in buffers, reset by reset_memory() before measuring",
        ["sets total to other values than the file held"],
    ),
    (NoOpReset, "state: total in buffers, reset by reset() before measuring", ["reset() leaves total changed"]),
    (ResetDones, "state: total in buffers, reset by reset() before measuring", ["all 1 environments done"]),
    (ResetIndex, "restoring the loaded buffer values", ["reset(env_ids, noise) can't be called"]),
    (FailingReset, "restoring the loaded buffer values", ["reset() fails"]),
    (KeepsItsInput, "state: total in buffers", []),
    (FeedForwardWithReset, "state: none found", []),
]


@pytest.mark.parametrize(("module", "note", "warnings"), CASES, ids=[c[0].__name__ for c in CASES])
def test_buffers_that_change_are_state(
    scripted_file: Callable[..., str], module: Any, note: str, warnings: list[str]
) -> None:
    runner = backends.load("eager", policies.describe(scripted_file(module()), shapes={"obs": (1, 4)}), {})
    assert note in runner.spec.state_note
    for words in warnings:
        assert any(words in n for n in runner.spec.notes), runner.spec.notes
    assert len(runner.spec.notes) == len(warnings) or module is ResetToZero
    steps = [(np.full((1, 4), k, np.float32),) for k in range(4)]
    kept = [s[0].copy() for s in steps]
    first = [np.array(runner.step(s)[0]) for s in steps]
    runner.reset()
    again = [np.array(runner.step(s)[0]) for s in steps]
    if module is ResetToZero:
        assert np.allclose(again[0] + 0.5, first[0])
    else:
        assert all(np.allclose(a, b) for a, b in zip(first, again, strict=True))
    assert all(np.array_equal(a, s[0]) for a, s in zip(kept, steps, strict=True)), "a reset wrote into an observation"


def test_normalisers_are_not_state(scripted_file: Callable[..., str]) -> None:
    runner = backends.load("eager", policies.describe(scripted_file(Counter()), shapes={"obs": (1, 4)}), {})
    runner.step((np.ones((1, 4), np.float32),))
    assert list(runner.state()) == ["total"]  # type: ignore[attr-defined]
    runner.reset()
    assert np.isfinite(runner.step((np.ones((1, 4), np.float32),))[0]).all()


def test_no_graph_is_kept_between_steps(shared_dir: Path) -> None:
    runner = backends.load("eager", policies.describe(str(shared_dir / "policies" / "good" / "g1_lstm_reset.pt")), {})
    x = (np.ones((1, 47), np.float32),)
    for _ in range(3):
        runner.step(x)
    assert all(not b.requires_grad for _, b in runner._call.named_buffers())  # type: ignore[attr-defined]
    assert runner.facts()["mode"] == "no_grad" and runner.facts()["threads"] == 1


class TwoFit(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 2), torch.nn.Linear(6, 2)

    def forward(self, obs):
        if obs.shape[1] == 4:
            return self.a(obs)
        return self.b(obs)


class NoneFit(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Conv2d(3, 4, 3)

    def forward(self, images):
        return self.a(images)


class HiddenFirst(torch.nn.Module):
    """The first weight of the file is not the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(16, 2)
        self.memory = torch.nn.GRU(5, 16)

    def forward(self, obs):
        return self.head(self.memory(obs.unsqueeze(0))[0].squeeze(0))


def test_sizes_are_found_by_trial_or_asked_for(scripted_file: Callable[..., str]) -> None:
    runner = backends.load("eager", policies.describe(scripted_file(HiddenFirst())), {})
    assert runner.spec.inputs[0].shape == (1, 5)
    assert any("[1,5] was found by trial" in n for n in runner.spec.notes)
    with pytest.raises(PolicyError, match=r"accepted: \[1,4\], \[1,6\]") as two:
        backends.load("eager", policies.describe(scripted_file(TwoFit())), {})
    assert "--shape obs=" in str(two.value)
    with pytest.raises(PolicyError, match="no 2-D weights"):
        backends.load("eager", policies.describe(scripted_file(NoneFit())), {})
    runner = backends.load("eager", policies.describe(scripted_file(NoneFit()), shapes={"images": (1, 3, 8, 8)}), {})
    assert runner.spec.outputs[0].shape == (1, 4, 6, 6)


def test_a_call_that_fails_is_told_in_one_line(shared_dir: Path) -> None:
    path = str(shared_dir / "policies" / "good" / "g1_lstm_reset.pt")
    for shapes, words in (({"x": (2, 47)}, "Expected hidden"), ({"x": (1, 48)}, "47")):
        with pytest.raises(PolicyError) as caught:
            backends.load("eager", policies.describe(path, shapes=shapes), {})
        assert (
            words in str(caught.value)
            and len(str(caught.value).splitlines()) <= 4
            and "code/__torch__" not in str(caught.value)
        )
    with pytest.raises(UsageError, match="no such input"):
        backends.load("eager", policies.describe(path, shapes={"obs": (1, 47)}), {})


def test_tuples_need_sizes_and_tell_their_names(shared_dir: Path) -> None:
    path = str(shared_dir / "policies" / "good" / "anydrive_lstm_tuple.pt")
    with pytest.raises(PolicyError, match=r"hc0\.0"):
        backends.load("eager", policies.describe(path), {})
    runner = backends.load("eager", policies.describe(path, shapes={"x": (12, 1, 2), "hc0.0": (2, 12, 8)}), {})
    assert runner.spec.state_note == "state: 2 pairs carried (hc0.0<-out.1.0, hc0.1<-out.1.1), reset before measuring"
    assert any("takes the size of hc0.0" in n for n in runner.spec.notes)
    assert runner.spec.fed == (0,)


class Dictionary(torch.nn.Module):
    def forward(self, obs, scale: float = 2.0):
        return {"action": obs * scale, "value": obs.sum()}


class TakesText(torch.nn.Module):
    def forward(self, obs, name: str):
        return obs


def test_results_and_arguments_of_other_types(scripted_file: Callable[..., str]) -> None:
    runner = backends.load(
        "eager", policies.describe(scripted_file(Dictionary()), shapes={"obs": (1, 4)}, action="action"), {}
    )
    assert [t.name for t in runner.spec.outputs] == ["action", "value"] and runner.spec.outputs[1].shape == ()
    assert runner.step((np.ones((1, 4), np.float32),))[0][0, 0] == 2
    with pytest.raises(UsageError, match="2 outputs"):
        backends.load("eager", policies.describe(scripted_file(Dictionary()), shapes={"obs": (1, 4)}), {})
    with pytest.raises(PolicyError, match="name: str"):
        backends.load("eager", policies.describe(scripted_file(TakesText()), shapes={"obs": (1, 4)}), {})


class ExportedMemory(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(1, 3))

    def forward(self, obs, hc):
        self.seen.add_(self.linear(obs))
        return self.seen + hc[0], (hc[0] + 1, hc[1] * 2)


def test_torch_export_with_buffers_and_nested_state(tmp_path: Path) -> None:
    path = tmp_path / "memory.pt2"
    example = (torch.zeros(1, 4), (torch.zeros(1, 3), torch.zeros(1, 2)))
    torch.export.save(torch.export.export(ExportedMemory().eval(), example), str(path))
    spec = policies.describe(str(path))
    assert [t.name for t in spec.inputs] == ["obs", "hc_0", "hc_1"]
    assert [(p.target, p.source) for p in spec.state] == [(1, 1), (2, 2)] and spec.action == 0
    runner = backends.load("eager", spec, {})
    assert "hc_0<-" in runner.spec.state_note and "seen in buffers" in runner.spec.state_note
    x = (np.ones((1, 4), np.float32),)
    first = [np.array(runner.step(x)[0]) for _ in range(3)]
    assert not np.allclose(first[0], first[1])
    runner.reset()
    assert all(np.allclose(runner.step(x)[0], f) for f in first)


def test_an_export_loads_without_torchs_warning_of_the_bytes_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch 2.11 does it; the warning would stand in the terminal at each load."""
    path, load = tmp_path / "memory.pt2", torch.export.load
    example = (torch.zeros(1, 4), (torch.zeros(1, 3), torch.zeros(1, 2)))
    torch.export.save(torch.export.export(ExportedMemory().eval(), example), str(path))

    def warns(*given: Any) -> Any:
        warnings.warn("The given buffer is not writable, and PyTorch does not", UserWarning, stacklevel=2)
        return load(*given)

    monkeypatch.setattr(torch.export, "load", warns)
    runner = backends.load("eager", policies.describe(str(path)), {})
    runner.step((np.ones((1, 4), np.float32),))
    runner.close()


def test_torch_factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "torch_policy.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.l = torch.nn.Linear(4, 2)\n"
        "        self.register_buffer('total', torch.zeros(1, 2))\n"
        "        self.drop = torch.nn.Dropout(0.9)\n"
        "    def forward(self, obs):\n"
        "        self.total += self.drop(self.l(obs))\n"
        "        return self.total.clone()\n"
        "class Stepper:\n"
        "    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'a': [1, 4]}}\n"
        "    def step(self, inputs): return [inputs['obs'] * 2]\n"
    )
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    spec = policies.describe("torch_policy:Net", shapes={"obs": (1, 4)})
    assert backends.default_backend(spec) == "eager"
    runner = backends.load("eager", spec, {})
    assert (
        runner.spec.state_note
        == "state: total in buffers, reset by restoring the loaded buffer values before measuring"
    )
    assert runner.spec.cost is not None and runner.spec.cost.parameters == 10
    x = (np.ones((1, 4), np.float32),)
    first = np.array(runner.step(x)[0])
    second = np.array(runner.step(x)[0])
    assert np.allclose(second, 2 * first), "dropout was left on"
    runner.reset()
    assert np.allclose(runner.step(x)[0], first)
    with pytest.raises(PolicyError, match="--backend eager"):
        backends.load("python", spec, {})
    stepper = backends.load("eager", policies.describe("torch_policy:Stepper"), {})
    assert stepper.step(x)[0][0, 0] == 2
    sys.path[:] = path
    sys.modules.pop("torch_policy")
