"""Factories: described without importing them, constructed in the worker, the user's frames alone on an error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from robot_perf import backends, policies
from robot_perf.backends.shared.check import check_outputs, expected_outputs
from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies import factory, scripted
from robot_perf.policies.observations import open_observations

SOURCE = """
import numpy as np
IMPORTED = True

class Policy:
    def __init__(self, gain=1.0, fail=False):
        if fail:
            raise ValueError("no weights here")
        self.gain, self.total, self.resets = gain, np.zeros((1, 4)), 0

    def spec(self):
        return {"inputs": {"obs": [1, 4]}, "outputs": {"actions": [[1, 4], "float64"]}}

    def step(self, inputs):
        self.total = self.total + inputs["obs"]
        return [self.gain * self.total]

    def reset(self):
        self.total, self.resets = np.zeros((1, 4)), self.resets + 1

class Silent(Policy):
    spec = None

def plain(scale=2):
    return lambda obs: obs * scale

def doubled():
    return lambda obs: obs.astype(np.float64)

def broken():
    def step(obs):
        raise RuntimeError("first call")
    return step

def leaving():
    raise SystemExit(7)

def wrong():
    return 3

def texts():
    return lambda obs: ["a", "b"]

def two():
    return lambda obs: {"torque": obs, "value": obs[:, :1]}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "my_policy.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield "my_policy"
    sys.path[:] = path
    sys.modules.pop("my_policy", None)


def test_describing_imports_nothing(module: str) -> None:
    spec = policies.describe(f"{module}:Policy", options={"gain": "2.5"})
    assert module not in sys.modules
    assert spec.kind == "factory" and spec.factory == "my_policy:Policy" and spec.sha256 is not None
    assert spec.asked["options"] == {"gain": 2.5}
    assert backends.default_backend(spec) == "python"


def test_a_source_that_imports_torch_goes_to_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net_policy.py").write_text("def build():\n    import torch.nn as nn\n    return nn.Linear(4, 2)\n")
    assert backends.default_backend(policies.describe("net_policy:build")) == "eager"
    (tmp_path / "torn.py").write_text("def build(:\n")
    assert backends.default_backend(policies.describe("torn:build")) == "python"


def test_an_object_with_state_is_reset_by_its_own_method(module: str) -> None:
    runner = backends.load("python", policies.describe(f"{module}:Policy", options={"gain": 2}), {})
    assert runner.spec.state_note == "state: kept in the object, reset() is called before measuring"
    assert runner.spec.action == 0 and runner.spec.inputs[0].shape == (1, 4)
    x = (np.ones((1, 4), np.float32),)
    assert runner.step(x)[0][0, 0] == 2 and runner.step(x)[0][0, 0] == 4
    runner.reset()
    assert runner.step(x)[0][0, 0] == 2
    assert runner.facts()["import_ns"] > 0 and "construct_ns" in runner.facts()


def test_a_mistyped_factory_is_not_called_a_fault_of_its_code(module: str) -> None:
    """`the policy's own code raised AttributeError … mend the factory` sent its reader into a file that is sound."""
    with pytest.raises(PolicyError) as refused:
        backends.load("python", policies.describe(f"{module}:Polizy"), {})
    assert "my_policy has no Polizy" in str(refused.value) and "Did you mean Policy?" in str(refused.value)
    with pytest.raises(PolicyError) as refused:
        backends.load("python", policies.describe("my_polizy:Policy"), {})
    assert "there is no module my_polizy" in str(refused.value) and "Did you mean my_policy?" in str(refused.value)
    with pytest.raises(PolicyError) as refused:
        backends.load("python", policies.describe("zzz.walk:Policy"), {})
    assert "there is no module zzz" in str(refused.value) and str(Path.cwd()) in str(refused.value)


def test_a_module_that_the_policy_lacks_is_its_own_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "needs.py").write_text("import no_such_dependency\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(PolicyError, match=r"own code raised ModuleNotFoundError.*no_such_dependency") as refused:
        backends.load("python", policies.describe("needs:build"), {})
    assert "needs.py:1" in str(refused.value)


def test_a_callable_needs_its_sizes(module: str) -> None:
    with pytest.raises(PolicyError, match="does not say what it is fed"):
        backends.load("python", policies.describe(f"{module}:plain"), {})
    runner = backends.load(
        "python", policies.describe(f"{module}:plain", shapes={"obs": (1, 4)}, options={"scale": "3"}), {}
    )
    assert runner.spec.outputs[0].shape == (1, 4) and runner.spec.action == 0
    assert any("while loading" in n for n in runner.spec.notes)
    assert runner.step((np.ones((1, 4), np.float32),))[0][0, 0] == 3


def test_a_result_of_another_dtype_is_said_once(module: str) -> None:
    runner = backends.load("python", policies.describe(f"{module}:doubled", shapes={"obs": (1, 4)}), {})
    for _ in range(3):
        runner.step((np.ones((1, 4), np.float32),))
    assert sum("answers float64 although it is fed float32" in n for n in runner.spec.notes) == 1
    assert runner.spec.outputs[0].dtype == "float64"


def test_several_outputs_need_an_action(module: str) -> None:
    with pytest.raises(UsageError, match="2 outputs"):
        backends.load("python", policies.describe(f"{module}:two", shapes={"obs": (1, 4)}), {})
    runner = backends.load("python", policies.describe(f"{module}:two", shapes={"obs": (1, 4)}, action="torque"), {})
    assert runner.spec.action == 0 and [t.name for t in runner.spec.outputs] == ["torque", "value"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", ["my_policy has no absent"]),
        ("Policy", ["no weights here", "my_policy.py:8 in __init__"]),
        ("leaving", ["SystemExit", "7"]),
        ("wrong", ["int", "no step()"]),
        ("broken", ["first call", "my_policy.py"]),
        ("texts", ["str", "numpy array"]),
    ],
)
def test_failures_of_the_users_code(module: str, name: str, words: list[str]) -> None:
    options = {"fail": True} if name == "Policy" else {}
    with pytest.raises(PolicyError) as caught:
        backends.load("python", policies.describe(f"{module}:{name}", shapes={"obs": (1, 4)}, options=options), {})
    message = str(caught.value)
    for word in words:
        assert word in message, f"{word!r} is not in:\n{message}"
    assert len(message.splitlines()) <= 4 and "robot_perf" not in message and "Traceback" not in message


def test_a_missing_module_and_a_syntax_error(module: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="there is no module no_such_module"):
        backends.load("python", policies.describe("no_such_module:build"), {})
    (tmp_path / "torn2.py").write_text("x = (\n")
    with pytest.raises(PolicyError, match="SyntaxError"):
        backends.load("python", policies.describe("torn2:build"), {})


def test_spec_that_lies_or_is_no_mapping(module: str, tmp_path: Path) -> None:
    (tmp_path / "liar.py").write_text(
        "import numpy as np\n"
        "class Liar:\n"
        "    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'a': [1, 9]}}\n"
        "    def step(self, inputs): return (np.zeros((1, 2), np.float32),)\n"
        "class Odd(Liar):\n"
        "    def spec(self): return ['obs']\n"
        "class Bad(Liar):\n"
        "    def spec(self): return {'inputs': {'obs': 'big'}}\n"
    )
    runner = backends.load("python", policies.describe("liar:Liar"), {})
    with pytest.raises(PolicyError, match=r"answered float32 \[1, 2\]"):
        runner.step((np.zeros((1, 4), np.float32),))
    for name, words in (("Odd", "returned list"), ("Bad", "describes a tensor wrongly")):
        with pytest.raises(PolicyError, match=words):
            backends.load("python", policies.describe(f"liar:{name}"), {})
    sys.modules.pop("liar")


def test_resets_with_arguments(module: str, tmp_path: Path) -> None:
    (tmp_path / "resets.py").write_text(
        "import numpy as np\n"
        "class Dones:\n"
        "    def __init__(self): self.total = np.ones((3, 4), np.float32)\n"
        "    def spec(self): return {'inputs': {'obs': [3, 4]}, 'outputs': {'a': [3, 4]}}\n"
        "    def step(self, inputs):\n"
        "        self.total = self.total + inputs['obs']\n"
        "        return (self.total,)\n"
        "    def reset(self, dones): self.total[dones] = 0\n"
        "class Noise(Dones):\n"
        "    def reset(self, low, high): pass\n"
        "class Raising(Dones):\n"
        "    def reset(self): raise OSError('no device')\n"
    )
    runner = backends.load("python", policies.describe("resets:Dones"), {})
    x = (np.ones((3, 4), np.float32),)
    assert runner.step(x)[0].max() == 1 and runner.step(x)[0].max() == 2
    runner.reset()
    assert runner.step(x)[0].max() == 1
    assert any("all 3 environments done" in n for n in runner.spec.notes)
    with pytest.raises(PolicyError, match=r"reset\(low, high\)"):
        backends.load("python", policies.describe("resets:Noise"), {})
    with pytest.raises(PolicyError, match="no device"):
        backends.load("python", policies.describe("resets:Raising"), {})
    sys.modules.pop("resets")


def test_the_silent_policy_is_called_once_and_reset(module: str) -> None:
    spec = policies.describe(f"{module}:Silent", shapes={"obs": (1, 4)})
    runner = backends.load("python", spec, {})
    assert runner.step((np.ones((1, 4), np.float32),))[0][0, 0] == 1


def scripted_policy(name: str, **options: object) -> backends.Runner:
    return backends.load("python", policies.describe(f"robot_perf.policies.scripted:{name}", options=options), {})


def test_scripted_stalls_and_durations() -> None:
    import time

    runner = scripted_policy("stalls", every=5, stall_us=3000, base_us=10, first=2)
    observation = open_observations(runner.spec).at(0)
    took = []
    for _ in range(12):
        start = time.monotonic_ns()
        runner.step(observation)
        took.append(time.monotonic_ns() - start)
    assert all(took[k] >= 3_000_000 for k in (2, 7))
    assert min(took[k] for k in (0, 1, 3, 4)) < 1_500_000


def test_scripted_faults(tmp_path: Path) -> None:
    runner = scripted_policy("raises", at=2, base_us=0)
    observation = open_observations(runner.spec).at(0)
    runner.step(observation)
    runner.step(observation)
    with pytest.raises(ValueError, match="scripted failure"):
        runner.step(observation)
    runner = scripted_policy("not_finite", at=1, base_us=0)
    assert np.isfinite(runner.step(observation)[0]).all() and np.isnan(runner.step(observation)[0]).all()
    count = tmp_path / "count"
    runner = scripted_policy("witness", path=str(count), base_us=0)
    for _ in range(7):
        runner.step(observation)
    assert scripted.witnessed(str(count)) == 7
    with pytest.raises(SystemExit):
        policy = scripted.exits(at=0, how="system_exit")
        policy.step({})


def test_a_published_numpy_policy_with_a_golden_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quadrotor GRU of the package foundation-policy: 22 -> dense 16 -> GRU 16 -> 4, 100 Hz, with 500 recorded steps."""
    package = pytest.importorskip("foundation_policy", reason="the optional package foundation-policy is not installed")
    h5py = pytest.importorskip("h5py", reason="the optional package h5py is not installed")
    (tmp_path / "raptor.py").write_text(
        "import foundation_policy\n"
        "class Policy:\n"
        "    def __init__(self):\n"
        "        self.model = foundation_policy.Raptor()\n"
        "        self.reset = self.model.reset\n"
        "    def step(self, inputs):\n"
        "        return [self.model.evaluate_step(inputs['obs'])]\n"
    )
    monkeypatch.chdir(tmp_path)
    with h5py.File(Path(package.__file__).parent / "blob" / "checkpoint.h5") as file:
        given, wanted = file["example/input"][:, :1], file["example/output"][:, :1]
    recording = tmp_path / "golden.npz"
    np.savez(recording, **{"in.obs": given.astype(np.float32), "out.0": wanted.astype(np.float32)})
    spec = policies.describe("raptor:Policy", observations=str(recording))
    runner = backends.load("python", spec, {})
    observations = open_observations(runner.spec, path=str(recording))
    assert runner.spec.outputs[0].shape == (1, 4) and "reset()" in runner.spec.state_note
    assert check_outputs(runner, observations, expected_outputs(str(recording), runner.spec)) is None
    sys.path[:] = [p for p in sys.path if p != str(tmp_path)]


def test_options_are_read_as_scalars(refused: Callable[..., str]) -> None:
    assert factory.plain("10") == 10 and factory.plain("1.5") == 1.5 and factory.plain("true") is True
    assert factory.plain("a: b: c") == "a: b: c" and factory.plain("text") == "text" and factory.plain(4) == 4
    assert "preset" in refused("robot_perf.policies.scripted:stalls", preset="tiny")
