"""The table, options and facts of the backends, what each refuses, and what the worker has to import for them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from custom_operator import model_and_library

from robot_perf import backends, policies
from robot_perf.backends.shared.check import state_findings
from robot_perf.backends.shared.child import in_child
from robot_perf.backends.shared.text import first_line
from robot_perf.errors import BackendUnavailableError, PolicyError, UsageError
from robot_perf.policies.observations import open_observations
from robot_perf.specs import PolicySpec, StatePair, TensorSpec

ROOT = Path(__file__).resolve().parents[2]


def test_unknown_backends_and_formats(shared_dir: Path) -> None:
    spec = policies.describe("mlp")
    with pytest.raises(UsageError, match="Known: python, onnxruntime, eager, compile"):
        backends.load("tensorflow", spec, {})
    script = policies.describe(str(shared_dir / "policies" / "good" / "g1_lstm_reset.pt"))
    onnx = policies.describe(str(shared_dir / "policies" / "good" / "humanoid_lite_mlp.onnx"))
    for name, policy, words in (
        ("onnxruntime", script, "export the network to ONNX"),
        ("python", script, "runs on eager or cuda_graph"),
        ("eager", onnx, "TorchScript"),
        ("compile", script, "factory"),
        ("onnxruntime", policies.describe("null"), "--backend python"),
    ):
        if backends.backend_module(name).unavailable():
            continue
        with pytest.raises(PolicyError, match=words):
            backends.load(name, policy, {})


def test_a_missing_runtime_gives_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, extra in (("onnxruntime", "onnx"), ("eager", "torch"), ("compile", "torch")):
        module = {"onnxruntime": "onnxruntime"}.get(name, "torch")
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        with pytest.raises(BackendUnavailableError) as caught:
            backends.load(name, policies.describe("mlp"), {})
        assert f"pip install 'robot_perf[{extra}]'" in str(caught.value) and caught.value.exit_code == 2


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(BackendUnavailableError, match=r"C\+\+ compiler.*apt install g\+\+"):
        backends.load("compile", policies.describe("mlp"), {})


@pytest.mark.parametrize("duration_us", [50, 400, 3000])
def test_spin_takes_its_time(duration_us: int) -> None:
    runner = backends.load("python", policies.describe(f"spin:{duration_us}"), {})
    observation = open_observations(runner.spec).at(0)
    took = []
    for _ in range(51):
        start = time.monotonic_ns()
        runner.step(observation)
        took.append(time.monotonic_ns() - start)
    assert min(took) >= duration_us * 1000
    assert sorted(took)[10] <= duration_us * 1000 * 1.01 + 5000


def test_null_answers_with_its_outputs() -> None:
    runner = backends.load("python", policies.describe("null"), {})
    outputs = runner.step(open_observations(runner.spec).at(0))
    assert [a.shape for a in outputs] == [(1, 12)] and runner.counters() == {}
    json.dumps(dict(runner.facts()))


def test_onnxruntime_options_and_facts() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    spec = policies.describe("mlp")
    facts = backends.load("onnxruntime", spec, {}).facts()
    assert facts["threads"] == 1 and facts["inter_threads"] == 1 and facts["spin"] is False and facts["arena"] is True
    assert facts["providers"] == ["CPUExecutionProvider"] and facts["execution"] == "sequential"
    facts = backends.load("onnxruntime", spec, {"threads": 2, "arena": False, "spin": True}).facts()
    assert facts["threads"] == 2 and facts["arena"] is False and facts["spin"] is True
    json.dumps(dict(facts))
    with pytest.raises(UsageError, match="threads"):
        backends.load("onnxruntime", spec, {"threads": -1})
    for options in ({"arena": "maybe"}, {"threads": True}, {"inter_threads": "two"}):
        with pytest.raises(UsageError):
            backends.load("onnxruntime", spec, options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch imports its own deprecated scripting
@pytest.mark.parametrize("name", ["python", "onnxruntime", "eager", "compile"])
def test_options_that_a_backend_lacks_are_refused(name: str) -> None:
    if reason := backends.backend_module(name).unavailable():
        pytest.skip(reason)
    spec = policies.describe("mlp", preset="tiny")
    for options, words in (
        ({"treads": 2}, "no option treads"),
        ({"precision": "fp16"}, "no option precision"),
        ({"device": "cuda:zero"}, "cuda:zero"),
    ):
        with pytest.raises(UsageError, match=words):
            backends.load(name, spec, options)
    assert (
        backends.load(name, spec, {"device": "cpu", "threads": 1, "tolerance": 1e-3, "ort_library": None}).spec.action
        == 0
    )


def test_larger_policies_leave_the_threads_to_the_runtime() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    spec = policies.describe("mlp", options={"hidden": "2048,2048,1024"})
    assert spec.cost is not None and spec.cost.parameters > 5_000_000
    assert backends.load("onnxruntime", spec, {}).facts()["threads"] == 0


def test_the_runtime_s_refusal_is_one_clean_line(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    info = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Add", ["x", "absent"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, [1, 4])], [info("y", 1, [1, 4])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "torn.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PolicyError) as caught:
        backends.load("onnxruntime", policies.describe(str(path)), {})
    message = str(caught.value)
    assert "detail:" in message and "onnxruntime_src" not in message and len(message.splitlines()) <= 4


def test_custom_operators_come_from_their_library(tmp_path: Path) -> None:
    """A real library of operators, as a robot's vendor ships one."""
    path, library = model_and_library(tmp_path)
    with pytest.raises(PolicyError, match="--ort-library"):
        policies.describe(str(path), action="action")
    runner = backends.load("onnxruntime", policies.describe(str(path), action="action", ort_library=library), {})
    observation = open_observations(runner.spec).at(3)
    assert np.array_equal(runner.step(observation)[0], np.maximum(observation[0], 0))
    (tmp_path / "text.so").write_text("no library")
    wrong = policies.describe(str(path), action="action", ort_library=str(tmp_path / "text.so"))
    with pytest.raises(PolicyError, match="refuses to load it"):
        backends.load("onnxruntime", wrong, {})


def test_output_sizes_that_the_file_leaves_open_are_found(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    info = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Concat", ["x", "x"], ["y"], axis=1), onnx.helper.make_node("NonZero", ["m"], ["z"])]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [info("x", 1, ["n", 4]), info("m", 9, [1, 64])],
        [info("y", 1, ["n", "wide"]), info("z", 7, ["rank", "found"])],
    )
    path = tmp_path / "open.onnx"
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    spec = policies.describe(str(path), action="0")
    assert spec.outputs[0].shape == (1, -1)
    runner = backends.load("onnxruntime", spec, {})
    assert runner.spec.outputs[0].shape == (1, 8)
    assert runner.spec.outputs[1].shape == (2, -1), "a size that depends on the data stays open"
    assert runner.step(open_observations(runner.spec).at(0))[0].shape == (1, 8)


def test_library_text_loses_paths_and_unsafe_advice() -> None:
    text = "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/core/graph/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, const X&) Unsupported model IR version: 99"
    assert first_line(
        RuntimeError(text)
    ) == "FAIL : Unsupported model IR version: 99" or "Unsupported model IR version: 99" in first_line(
        RuntimeError(text)
    )
    assert "/onnxruntime_src" not in first_line(RuntimeError(text)) and "::" not in first_line(RuntimeError(text))
    advice = "Weights only load failed. Re-running `torch.load` with `weights_only` set to `False` will likely succeed. Do it"
    assert "weights_only" not in first_line(RuntimeError(advice))
    assert first_line(ValueError()) == "ValueError"


def test_compile_counts_its_compiles() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    if reason := backends.backend_module("compile").unavailable():
        pytest.skip(reason)
    code = """
import json
from robot_perf import backends, policies
from robot_perf.policies.observations import open_observations
import numpy as np
spec = policies.describe("gru", preset="tiny")
compiled, plain = (backends.load(n, spec, {}) for n in ("compile", "python"))
observations = open_observations(spec)
counts, worst = [dict(compiled.counters())], 0.0
for k in range(5):
    a, b = compiled.step(observations.at(k)), plain.step(observations.at(k))
    worst = max(worst, *(float(np.abs(x - y).max()) for x, y in zip(a, b)))
    counts.append(dict(compiled.counters()))
print(json.dumps({"counts": counts, "worst": worst, "facts": dict(compiled.facts())}))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    answer = json.loads(done.stdout)
    assert answer["counts"][0] == {"compiles": 0, "graph breaks": 0}
    assert answer["counts"][1]["compiles"] >= 1 and answer["counts"][1] == answer["counts"][-1]
    assert answer["worst"] < 1e-5 and answer["facts"]["compile_mode"] == "default"
    with pytest.raises(UsageError, match="max-autotune"):
        backends.load("compile", policies.describe("mlp"), {"mode": "fastest"})
    with pytest.raises(UsageError, match="does nothing on the CPU"):
        backends.load("compile", policies.describe("mlp"), {"mode": "reduce-overhead"})


def test_what_each_backend_makes_the_worker_import() -> None:
    heavy = ["pydantic", "scipy", "pyarrow", "rich", "typer", "yaml", "onnx", "onnxruntime", "torch", "pandas"]
    allowed = {"null": set(), "mlp": {"onnxruntime"}, "robot_perf.policies.scripted:stalls": set()}
    for text, may in allowed.items():
        spec = policies.describe(text)
        name = backends.default_backend(spec)
        if backends.backend_module(name).unavailable():
            continue
        from robot_perf.specs import to_json

        code = f"""
import json, sys
from robot_perf import backends
from robot_perf.policies.observations import open_observations
from robot_perf.backends.shared.check import check_outputs
from robot_perf.specs import PolicySpec, from_json
spec = from_json(PolicySpec, json.loads({json.dumps(json.dumps(to_json(spec)))}))
runner = backends.load({name!r}, spec, {{}})
runner.step(open_observations(runner.spec).at(0))
print(json.dumps([m for m in {heavy!r} if m in sys.modules]))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert set(json.loads(done.stdout)) <= may, text


def test_a_child_answers_crashes_or_hangs() -> None:
    import os
    import signal

    assert in_child("p", lambda: {"a": [1, 2]}) == {"a": [1, 2]}
    with pytest.raises(PolicyError, match="SIGSEGV"):
        in_child("p", lambda: os.kill(os.getpid(), signal.SIGSEGV))
    with pytest.raises(PolicyError, match="did not end"):
        in_child("p", lambda: time.sleep(60), timeout_s=0.2)

    def refuse() -> None:
        raise UsageError("what", why="why", do="do", detail="detail")

    with pytest.raises(UsageError, match="what") as caught:
        in_child("p", refuse)
    assert caught.value.do == "do"

    def bug() -> None:
        raise ZeroDivisionError("ours")

    with pytest.raises(RuntimeError, match="ZeroDivisionError: ours"):
        in_child("p", bug)


class Fake:
    """A runner with a state that does as it is told."""

    def __init__(self, update) -> None:  # type: ignore[no-untyped-def]
        self.spec = PolicySpec(
            name="fake",
            kind="onnx",
            inputs=(TensorSpec("obs", "float32", (1,)), TensorSpec("h", "float32", (1,))),
            outputs=(TensorSpec("a", "float32", (1,)),),
            action=0,
            state=(StatePair(1, 0),),
        )
        self.update, self.h = update, np.ones(1)

    def step(self, observation):  # type: ignore[no-untyped-def]
        self.h = self.update(self.h, observation[0])
        return [self.h]

    def reset(self) -> None:
        self.h = np.ones(1)

    def state(self):  # type: ignore[no-untyped-def]
        return {"h": self.h}


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (lambda h, x: np.tanh(h + x), None),
        (lambda h, x: h + 1, None),
        (lambda h, x: h, "never changes"),
        (lambda h, x: h * np.nan, "not finite"),
        (lambda h, x: h * 2, "grows without bound"),
    ],
)
def test_findings_about_state(update, words: str | None) -> None:  # type: ignore[no-untyped-def]
    runner = Fake(update)
    findings = state_findings(runner, open_observations(runner.spec))  # type: ignore[arg-type]
    assert (findings == []) if words is None else (len(findings) == 1 and words in findings[0])
