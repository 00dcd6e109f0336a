"""The torch and ONNX Runtime backends on a CUDA device. Run with `pytest -m gpu`; elsewhere each test says why it is skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_here import DEVICE, measured, need_ort, need_torch

from robot_perf import backends, policies
from robot_perf.backends.gpu.options import TOLERANCE
from robot_perf.backends.shared.check import check_outputs, expected_outputs
from robot_perf.errors import BackendUnavailableError, InvalidMeasurementError, PolicyError, RobotPerfError, UsageError
from robot_perf.policies.observations import open_observations
from robot_perf.specs import PolicySpec
from robot_perf.tasks.reference import make_reference

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
HELPERS = Path(__file__).resolve().parents[1] / "helpers"


ON_TORCH = [
    ("eager", {}),
    ("eager", {"marks": True, "sync": "block"}),
    ("cuda_graph", {}),
    ("cuda_graph", {"sync": "spin", "marks": True}),
    ("cuda_graph", {"buffers": "mapped", "sync": "block"}),
]
ON_ORT = [
    ("onnxruntime", {}),
    ("onnxruntime", {"cuda_graph": True}),
    ("onnxruntime", {"buffers": "mapped", "sync": "spin"}),
]
WAYS = [
    pytest.param(n, o, marks=need_torch, id=f"{n}-{'-'.join(f'{k}={v}' for k, v in o.items())}") for n, o in ON_TORCH
]
WAYS += [pytest.param(n, o, marks=need_ort, id=f"{n}-{'-'.join(f'{k}={v}' for k, v in o.items())}") for n, o in ON_ORT]
NETWORKS = [("mlp", None), ("lstm", None), ("gru", None), ("act", "tiny")]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`references(spec)`: the path of its float32 CPU reference, made once."""
    made: dict[str, str] = {}

    def reference(spec: PolicySpec) -> str:
        key = repr(spec)
        if key not in made:
            found = make_reference(spec, tmp_path_factory.mktemp("reference"))
            assert found.path is not None, found.reason
            made[key] = found.path
        return made[key]

    return reference


def _shared(shared_dir: Path, file: str) -> str:
    path = shared_dir / "policies" / "good" / file
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return str(path)


def _gate(name: str, spec: PolicySpec, given: dict[str, Any], reference: str) -> Any:
    """The loaded runner, once it has answered as its reference; the caller closes it."""
    runner = backends.load(name, spec, DEVICE | given)
    relative = TOLERANCE[str(given.get("precision", "fp32"))]
    observations = open_observations(runner.spec, path=reference)
    reason = check_outputs(runner, observations, expected_outputs(reference, runner.spec), relative=relative)
    assert reason is None, reason
    return runner


@pytest.mark.parametrize(("network", "preset"), NETWORKS, ids=[n for n, _ in NETWORKS])
@pytest.mark.parametrize(("name", "given"), WAYS)
def test_builtin_networks_answer_as_the_cpu_does(
    name: str, given: dict[str, Any], network: str, preset: str | None, references: Any
) -> None:
    spec = policies.describe(network, preset=preset)
    runner = _gate(name, spec, given, references(spec))
    facts = runner.facts()
    assert facts["captured"] == (name == "cuda_graph" or bool(given.get("cuda_graph")))
    # ONNX Runtime waits itself, inside its run, unless that is a graph
    waits = "runtime" if name == "onnxruntime" and not given.get("cuda_graph") else given.get("sync", "auto")
    assert facts["device_name"] and facts["sync"] == waits and facts["device"] == "cuda:0"
    assert not runner.pending()
    runner.close()


@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
@pytest.mark.parametrize(("network", "preset"), NETWORKS, ids=[n for n, _ in NETWORKS])
@pytest.mark.parametrize(
    "name", [pytest.param("cuda_graph", marks=need_torch), pytest.param("onnxruntime", marks=need_ort)]
)
def test_lower_precisions_stay_within_their_tolerance(
    name: str, network: str, preset: str | None, precision: str, references: Any
) -> None:
    spec = policies.describe(network, preset=preset)
    try:
        runner = _gate(name, spec, {"precision": precision}, references(spec))
    except (PolicyError, InvalidMeasurementError) as error:
        # A runtime may lack kernels in bfloat16 (recurrent cells, convolutions): then it says so and runs nothing else.
        assert precision == "bf16" and name == "onnxruntime", error
        pytest.skip(f"onnxruntime has no bfloat16 for {network}: {error}")
    assert runner.facts()["precision"] == precision
    runner.close()


@need_torch
@pytest.mark.parametrize("name", ["eager", "cuda_graph"])
@pytest.mark.parametrize(
    "file", ["g1_lstm_reset.pt", "h1_lstm_noreset.pt", "go1_actuator_cuda.pt", "go1_actuator_export.pt2"]
)
def test_published_torch_files_answer_as_the_cpu_does(name: str, file: str, shared_dir: Path, references: Any) -> None:
    # In a worker of its own: a file is examined in a forked child, before the process opens the device.
    spec = policies.describe(_shared(shared_dir, file))
    run = measured(name, spec, {}, references(spec), steps=40)
    assert run.conditions["invalid"] == [] and run.conditions["outputs_checked"]["0"] >= 20


@pytest.mark.parametrize("given", [{}, {"cuda_graph": True}], ids=["calls", "graph"])
@need_ort
@pytest.mark.parametrize(
    "file", ["b2w_lstm_state_io.onnx", "g1_voxel_bool.onnx", "g1_external/policy.onnx", "humanoid_lite_mlp.onnx"]
)
def test_published_onnx_files_answer_as_the_cpu_does(
    file: str, given: dict[str, Any], shared_dir: Path, references: Any
) -> None:
    spec = policies.describe(_shared(shared_dir, file), action="2" if "voxel" in file else None)
    _gate("onnxruntime", spec, given, references(spec)).close()


# --- state ----------------------------------------------------------------------------------------------------------------


def _factory(name: str, monkeypatch: pytest.MonkeyPatch) -> PolicySpec:
    monkeypatch.chdir(HELPERS)
    return policies.describe(f"cuda_policies:{name}")


def _answers(runner: Any, steps: int = 6) -> list[np.ndarray]:
    runner.reset()
    observations = open_observations(runner.spec, seed=9)
    return [runner.step(observations.at(k))[0].copy() for k in range(steps)]


@need_torch
@pytest.mark.parametrize("name", ["eager", "cuda_graph"])
@pytest.mark.parametrize("factory", ["Plain", "AssignedBuffer", "WrittenBuffer"])
def test_state_in_buffers_moves_and_resets(name: str, factory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = _factory(factory, monkeypatch)
    want = _answers(backends.load("eager", spec, {"device": "cpu"}))
    runner = backends.load(name, spec, DEVICE)
    for _ in range(2):
        for got, wanted in zip(_answers(runner), want, strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())
    if factory != "Plain":
        assert "memory" in runner.state()
    runner.close()


@pytest.mark.parametrize(("name", "given"), WAYS)
def test_a_rehearsal_leaves_state_and_answers_alone(name: str, given: dict[str, Any]) -> None:
    spec = policies.describe("lstm", preset="tiny")
    runner: Any = backends.load(name, spec, DEVICE | given)
    want = _answers(runner)
    runner.reset()
    observations = open_observations(spec, seed=9)
    for k, wanted in enumerate(want):
        got = runner.step(observations.at(k))[0].copy()
        state = {n: v.copy() for n, v in runner.state().items()}
        for _ in range(3):
            runner.rehearse_on(observations.at(500))
        np.testing.assert_array_equal(runner.finish()[0], got)
        assert all(np.array_equal(v, state[n]) for n, v in runner.state().items())
        np.testing.assert_allclose(got, wanted, atol=1e-6)
    runner.close()


@need_torch
@pytest.mark.parametrize("name", ["eager", "compile", "cuda_graph"])
def test_rehearsals_put_buffers_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for factory in ("AssignedBuffer", "WrittenBuffer"):
        runner: Any = backends.load(name, _factory(factory, monkeypatch), DEVICE)
        want = _answers(runner)
        runner.reset()
        observations = open_observations(runner.spec, seed=9)
        for k, wanted in enumerate(want):
            runner.rehearse_on(observations.at(500))
            np.testing.assert_allclose(runner.step(observations.at(k))[0], wanted, atol=1e-6)
            runner.touch()
        runner.close()


KEEPING = ("InBuffer", "InAttribute", "InView", "InList", "InDictionary", "InObject", "Copied")


def _changes(runner: Any) -> list[float]:
    runner.reset()
    fed = [np.full((1, 4), value, np.float32) for value in (1, 3, 7, 15, 31)]
    return [float(runner.step((x,))[0][0, 0]) for x in fed]


@need_torch
@pytest.mark.parametrize(("name", "given"), [("eager", {}), ("compile", {}), ("compile", {"mode": "reduce-overhead"})])
@pytest.mark.parametrize("factory", KEEPING)
def test_an_input_that_is_kept_stays(
    name: str, given: dict[str, Any], factory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "compile" and factory == "InObject":
        pytest.skip("torch.compile needs a module")
    monkeypatch.chdir(HELPERS)
    runner = backends.load(name, policies.describe(f"keeping_policies:{factory}"), DEVICE | given)
    assert [_changes(runner) for _ in range(2)] == [[1, 2, 4, 8, 16]] * 2
    runner.close()


@need_torch
@pytest.mark.parametrize("factory", KEEPING)
def test_an_input_that_is_kept_is_followed_or_refused(factory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HELPERS)
    spec = policies.describe(f"keeping_policies:{factory}")
    if factory in ("InBuffer", "Copied"):
        runner = backends.load("cuda_graph", spec, DEVICE)
        assert _changes(runner) == [1, 2, 4, 8, 16]
        runner.close()
    else:
        with pytest.raises(InvalidMeasurementError, match="keeps its input obs"):
            backends.load("cuda_graph", spec, DEVICE)
    runner = backends.load("eager", spec, DEVICE | {"buffers": "mapped"})
    if factory == "Copied":
        assert _changes(runner) == [1, 2, 4, 8, 16]
    else:
        with pytest.raises(PolicyError, match="keeps its input obs"):
            runner.step((np.ones((1, 4), np.float32),))
    runner.close()


# --- marks and facts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "given"), WAYS)
def test_phases_are_marked_on_demand(name: str, given: dict[str, Any]) -> None:
    spec = policies.describe("mlp")
    runner: Any = backends.load(name, spec, DEVICE | given)
    observation = open_observations(spec).at(0)
    runner.step(observation)
    marks = bool(given.get("marks", False))
    assert (runner.device_ns() > 0) == marks
    runner.mark_phases(True)
    for _ in range(3):
        answer = runner.step(observation)[0].copy()
    h2d, policy, d2h = runner.phases_ns()
    assert policy > 1000 and h2d >= 0 and d2h >= 0
    runner.mark_phases(False)
    np.testing.assert_allclose(runner.step(observation)[0], answer, atol=1e-5)
    examined = runner.examine()
    facts = {**runner.facts(), **examined}
    if facts["captured"]:
        assert facts["launches_per_step"] == 1
    elif (
        facts["launches_per_step"] is None
    ):  # torch's profiler may see nothing where it may not look; a capture always counts
        assert name == "eager" and facts["launches_per_step_reason"], facts
    else:
        assert facts["launches_per_step"] > 3
    assert facts["device_memory_bytes"] >= 0 and "build_ns" in facts
    if name == "cuda_graph":
        assert facts["kernels_per_step"] is None or facts["kernels_per_step"] >= 4
        assert "equal to its eager step" in facts["verified"]
    runner.close()


@need_torch
def test_compile_counts_what_it_does(monkeypatch: pytest.MonkeyPatch, references: Any) -> None:
    spec = policies.describe("mlp")
    for mode in ("default", "reduce-overhead"):
        runner = _gate("compile", spec, {"mode": mode}, references(spec))
        events = dict(runner.counters())
        assert events["compiles"] >= 1 and events["graph breaks"] == 0
        if mode == "reduce-overhead":
            assert events["skipped CUDA graphs"] == 0
        runner.close()
    runner = backends.load("compile", _factory("Breaks", monkeypatch), DEVICE)
    _answers(runner, 3)
    assert runner.counters()["graph breaks"] >= 1
    runner.close()


@need_torch
def test_a_recompile_is_counted_with_its_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    runner: Any = backends.load("compile", _factory("Recompiles", monkeypatch), DEVICE)
    observation = open_observations(runner.spec).at(0)
    for _ in range(5):
        runner.step(observation)
    before = dict(runner.counters())
    runner.work.body.module.late = True
    runner.step(observation)
    assert runner.counters()["compiles"] == before["compiles"] + 1
    assert "late" in runner.reasons()["compiles"]
    runner.close()


# --- provoked failures --------------------------------------------------------------------------------------------------


@need_torch
@pytest.mark.parametrize(
    ("name", "factory", "error", "words"),
    [
        ("cuda_graph", "Waits", InvalidMeasurementError, "waits for the device"),
        ("cuda_graph", "MakesOnHost", InvalidMeasurementError, "can't be captured"),
        ("cuda_graph", "HiddenState", InvalidMeasurementError, "answers otherwise"),
        ("cuda_graph", "StaysOnCpu", PolicyError, "not on cuda:0"),
        ("cuda_graph", "AnswersOnCpu", RobotPerfError, "cuda:0"),
    ],
)
def test_what_a_graph_can_not_hold_is_told(
    name: str, factory: str, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(error) as told:
        backends.load(name, _factory(factory, monkeypatch), DEVICE)
    assert words in str(told.value) and len(str(told.value).splitlines()) <= 4
    # The device still works after a failed capture.
    backends.load("cuda_graph", policies.describe("mlp", preset="tiny"), DEVICE).close()


@need_torch
@pytest.mark.parametrize("factory", ["StaysOnCpu", "AnswersOnCpu"])
def test_a_policy_on_the_wrong_device_is_told_in_its_first_step(factory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = backends.load("eager", _factory(factory, monkeypatch), DEVICE)
    with pytest.raises(PolicyError, match="not on cuda:0"):
        runner.step(open_observations(runner.spec).at(0))


@need_torch
def test_too_little_memory_is_one_message() -> None:
    import torch

    torch.cuda.set_per_process_memory_fraction(1e-4)
    torch.cuda.empty_cache()
    try:
        with pytest.raises(PolicyError, match="too little memory"):
            backends.load("eager", policies.describe("act"), DEVICE)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@need_torch
def test_absent_devices_and_quantised_torch_are_refused() -> None:
    with pytest.raises(UsageError, match="cuda:99"):
        backends.load("eager", policies.describe("mlp"), {"device": "cuda:99"})
    with pytest.raises(PolicyError, match="ONNX"):
        backends.load("cuda_graph", policies.describe("mlp"), DEVICE | {"precision": "int8"})
    with pytest.raises(UsageError, match="backend eager"):
        backends.load("cuda_graph", policies.describe("mlp"), DEVICE | {"cuda_graph": False})


@need_ort
def test_a_node_on_the_cpu_is_refused_by_name_or_listed(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    helper = onnx.helper
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w"], ["g"]),
            helper.make_node("Det", ["g"], ["d"], name="det"),
            helper.make_node("Add", ["g", "d"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, [4, 4])],
        [helper.make_tensor_value_info("y", 1, [4, 4])],
        [onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")],
    )
    path = tmp_path / "det.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    spec = policies.describe(str(path))
    with pytest.raises(InvalidMeasurementError) as told:
        backends.load("onnxruntime", spec, DEVICE)
    assert "on the CPU" in str(told.value) and "Det" in str(told.value)
    runner = backends.load("onnxruntime", spec, DEVICE | {"allow_cpu_nodes": True})
    assert [n.split()[0] for n in runner.facts()["cpu_nodes"]] == ["Det"]
    runner.close()


@need_ort
def test_providers_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    spec = policies.describe("mlp", preset="tiny")
    with pytest.raises(UsageError, match="provider dml"):
        backends.load("onnxruntime", spec, DEVICE | {"provider": "dml"})
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    with pytest.raises(BackendUnavailableError, match="TensorrtExecutionProvider"):
        backends.load("onnxruntime", spec, DEVICE | {"provider": "tensorrt"})


@need_ort
def test_nan_outputs_fail_the_gate(shared_dir: Path) -> None:
    path = shared_dir / "policies" / "synthetic" / "nan_output.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    spec = policies.describe(str(path))
    runner = backends.load("onnxruntime", spec, DEVICE)
    reason = check_outputs(runner, open_observations(spec))
    assert reason is not None and "not finite" in reason
    runner.close()


# --- whole measurements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "given"), WAYS)
def test_a_measurement_is_gated_and_taken_apart(name: str, given: dict[str, Any], references: Any) -> None:
    spec = policies.describe("lstm")
    run = measured(name, spec, given, references(spec))
    conditions = run.conditions
    assert conditions["invalid"] == [] and conditions["outputs_checked"]["0"] == 100
    columns = conditions["phases"]["columns"]
    # the pass has fifty releases; a busy machine skips some of them
    assert len(columns["policy_ns"]) >= 10 and min(columns["policy_ns"]) > 0
    assert all(len(v) == len(columns["policy_ns"]) for v in columns.values())
    enqueued = run.columns["enqueue_end_ns"]
    assert (np.asarray(enqueued) > 0).all()


@need_torch
def test_nan_actions_make_a_measurement_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured("cuda_graph", _factory("TurnsNan", monkeypatch), {}, None, steps=20)
    assert any("NaN" in reason for reason in run.conditions["invalid"])


@need_torch
def test_an_uncaptured_graph_ends_with_the_code_of_an_invalid_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RobotPerfError, match="can't be captured") as told:
        measured("cuda_graph", _factory("Waits", monkeypatch), {}, None, steps=20)
    assert int(told.value.exit_code) == 4
