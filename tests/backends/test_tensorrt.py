"""TensorRT: the build path with the RTX edition's builder, which needs no GPU; whole measurements where there is one (`-m gpu`).

The measurements run in a worker under `ROBOT_PERF_TENSORRT_PYTHON` where that is set (TensorRT 8.6 wants a Python of its own).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_perf import backends, policies
from robot_perf.backends.shared import progress
from robot_perf.backends.trt import cache
from robot_perf.errors import PolicyError, RobotPerfError, UsageError
from robot_perf.measure.conductor import Plan, measure
from robot_perf.measure.order import WorkOrder
from robot_perf.run.model import Run
from robot_perf.specs import Budget, LoopSpec, PolicySpec, to_json
from robot_perf.tasks.reference import make_reference

PYTHON = os.environ.get("ROBOT_PERF_TENSORRT_PYTHON", sys.executable)
NOWHERE = {"device_name": "no device", "compute_capability": "0.0"}
NETWORKS = [("mlp", None), ("lstm", None), ("gru", None), ("act", "tiny")]


# --- building, without a GPU --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rtx() -> Any:
    """The RTX edition; skips with the reason where it is not installed."""
    if importlib.util.find_spec("tensorrt_rtx") is None:
        pytest.skip("TensorRT for RTX is not installed: pip install tensorrt-rtx (its builder needs no GPU)")
    from robot_perf.backends.trt import api

    return api.load("tensorrt_rtx")


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Engines of a test stay in its own folder; kernel timings are passed on, without which each build takes half a minute."""
    monkeypatch.setenv("ROBOT_PERF_CACHE", str(tmp_path / "cache"))
    session = tmp_path_factory.getbasetemp()
    passed_on = session.parent if "PYTEST_XDIST_WORKER" in os.environ else session
    for path in passed_on.glob("timing-*.cache"):
        shutil.copy(path, cache.folder())
    yield
    for path in cache.folder().glob("timing-*.cache"):
        cache.keep_timing(passed_on / path.name, path.read_bytes())


def _engine(api: Any, spec: PolicySpec, precision: str = "fp32", **given: Any) -> Any:
    from robot_perf.backends.trt.build import engine_for

    return engine_for(api, spec, precision, given.pop("device", NOWHERE), given)


@pytest.mark.parametrize(("network", "preset"), NETWORKS, ids=[n for n, _ in NETWORKS])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_builtin_networks_build(rtx: Any, network: str, preset: str | None, precision: str) -> None:
    engine = _engine(rtx, policies.describe(network, preset=preset), precision)
    assert len(engine.plan) > 10_000 and engine.facts["engine"] == "built" and engine.facts["build_ns"] > 0


def test_lower_precision_makes_a_smaller_engine(rtx: Any) -> None:
    spec = policies.describe("mlp", preset="humanoid")
    wide, half, brain = (len(_engine(rtx, spec, p).plan) for p in ("fp32", "fp16", "bf16"))
    assert half < 0.75 * wide and brain < 0.75 * wide


def test_an_engine_is_kept_and_found_again_for_the_same_thing_only(rtx: Any) -> None:
    spec = policies.describe("mlp", preset="tiny")
    built = _engine(rtx, spec)
    kept = _engine(rtx, spec)
    assert (
        kept.facts["engine"] == "kept" and kept.plan == built.plan and kept.facts["build_ns"] == built.facts["build_ns"]
    )
    for other in (
        _engine(rtx, spec, "fp16"),
        _engine(rtx, policies.describe("mlp", preset="tiny", seed=1)),
        _engine(rtx, spec, device={"device_name": "another", "compute_capability": "9.0"}),
        _engine(rtx, spec, builder_level=1),
    ):
        assert other.facts["engine"] == "built"


def test_a_kept_engine_that_was_changed_is_built_again_and_says_so(rtx: Any) -> None:
    spec = policies.describe("mlp", preset="tiny")
    _engine(rtx, spec)
    (path,) = cache.folder().glob("*.engine")
    path.write_bytes(b"damaged")
    again = _engine(rtx, spec)
    assert again.facts["engine"] == "built" and "not used" in again.facts["engine_note"]
    assert path.read_bytes() == again.plan


def test_an_engine_given_by_hand_must_fit(rtx: Any, tmp_path: Path) -> None:
    spec = policies.describe("mlp", preset="tiny")
    built = _engine(rtx, spec)
    (path,) = cache.folder().glob("*.engine")
    assert _engine(rtx, spec, engine=str(path)).plan == built.plan
    with pytest.raises(PolicyError) as refused:
        _engine(rtx, spec, "fp16", engine=str(path))
    assert "flags precision fp32, here fp16" in str(refused.value)
    with pytest.raises(PolicyError) as refused:
        _engine(rtx, spec, engine=str(path), device={"device_name": "Orin", "compute_capability": "8.7"})
    assert "compute capability 0.0, here 8.7" in str(refused.value)
    with pytest.raises(PolicyError, match="can't be read"):
        _engine(rtx, spec, engine=str(tmp_path / "none.engine"))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("file", ["humanoid_lite_mlp.onnx", "g1_external/policy.onnx", "tron1_rank1/encoder.onnx"])
def test_published_files_build(rtx: Any, file: str, precision: str, shared_dir: Path) -> None:
    spec = policies.describe(str(shared_dir / "policies" / "good" / file))
    assert len(_engine(rtx, spec, precision).plan) > 10_000


@pytest.mark.parametrize(("file", "action"), [("b2w_lstm_state_io.onnx", None), ("g1_voxel_bool.onnx", "2")])
def test_what_the_edition_can_not_build_is_one_message(
    rtx: Any, file: str, action: str | None, shared_dir: Path
) -> None:
    """RTX 1.7 fails on an ELU after a recurrent layer and on reductions over computed axes; a later version may not."""
    try:
        engine = _engine(rtx, policies.describe(str(shared_dir / "policies" / "good" / file), action=action))
    except PolicyError as error:
        assert rtx.version in str(error) and len(str(error).splitlines()) <= 4
    else:
        assert engine.facts["engine"] == "built"


def test_open_axes_are_built_for_the_size_that_runs(rtx: Any, shared_dir: Path) -> None:
    file = str(shared_dir / "policies" / "good" / "go1_actuator_dynamic.onnx")
    one, twelve = policies.describe(file), policies.describe(file, shapes={"joint_history": (12, 6)})
    assert _engine(rtx, one).facts["engine"] == "built"
    assert _engine(rtx, twelve).facts["engine"] == "built"


def test_an_unsupported_operator_is_named(rtx: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    spec = policies.describe(_det(onnx, tmp_path))
    with pytest.raises(PolicyError) as refused:
        _engine(rtx, spec)
    text = str(refused.value)
    assert "can't take this model" in text and "Det" in text and len(text.splitlines()) <= 4


def test_quantised_files_build_and_others_are_refused(rtx: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    with pytest.raises(PolicyError, match="no scales"):
        _engine(rtx, policies.describe("mlp"), "int8")
    assert _engine(rtx, policies.describe(_quantised(onnx, tmp_path)), "int8").facts["engine"] == "built"


def test_a_build_tells_how_far_it_is(rtx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, float | None]] = []
    monkeypatch.setattr(progress, "_listeners", [lambda what, fraction: heard.append((what, fraction))])
    _engine(rtx, policies.describe("mlp", preset="tiny"))
    fractions = [f for _, f in heard if f is not None]
    assert heard[0][1] is None and "mlp-tiny" in heard[0][0]
    assert fractions and max(fractions) == 1.0 and min(fractions) >= 0.0


def test_wrong_build_options_are_refused(rtx: Any) -> None:
    with pytest.raises(UsageError, match="0 to 5"):
        _engine(rtx, policies.describe("mlp", preset="tiny"), builder_level=9)
    with pytest.raises(UsageError, match="MiB"):
        _engine(rtx, policies.describe("mlp", preset="tiny"), workspace_mib=-1)


def test_nothing_is_kept_when_that_was_asked(rtx: Any) -> None:
    _engine(rtx, policies.describe("mlp", preset="tiny"), engine_cache=False)
    assert not list(cache.folder().glob("*.engine"))


def test_running_needs_a_device_and_says_so(rtx: Any) -> None:
    if reason := backends.backend_module("tensorrt_rtx").unavailable():
        pytest.skip(reason)
    if _gpu() is None:
        pytest.skip("there is a GPU here")
    with pytest.raises(RobotPerfError) as refused:
        backends.load("tensorrt_rtx", policies.describe("mlp", preset="tiny"), {"device": "cuda:0"})
    assert "device" in str(refused.value)


# --- measuring, with one ------------------------------------------------------------------------------------------------


def _gpu() -> str | None:
    """Why no TensorRT worker can run here."""
    look = (
        "from robot_perf.backends.trt import api; from robot_perf.backends.gpu import cudart; "
        "print(api.unavailable('tensorrt') or '', end=''); cudart.check('cudaGetDeviceCount', cudart.runtime().cudaGetDeviceCount())"
    )
    parent = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [PYTHON, "-c", look],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{parent}:{os.environ.get('PYTHONPATH', '')}"},
        check=False,
    )
    if done.stdout:
        return done.stdout
    return (
        None if done.returncode == 0 else f"no CUDA device under {PYTHON}: {done.stderr.strip().splitlines()[-1][:200]}"
    )


@pytest.fixture(scope="module")
def worker() -> str:
    """The interpreter of TensorRT's worker; skips with the reason where it can't run one."""
    if reason := _gpu():
        pytest.skip(reason)
    return PYTHON


def _measured(
    worker: str, spec: PolicySpec, reference: str | None = None, keep_warm: str = "none", **options: Any
) -> Run:
    loop = LoopSpec(period_ns=5_000_000, deadline_ns=5_000_000, steps=100, warmup_max=60, keep_warm=keep_warm)
    order = WorkOrder(
        map_path="",
        policy=spec,
        backend="tensorrt",
        loop=loop,
        options={"device": "cuda:0", **options},
        reference=reference,
    )
    conditions = {"backend": {"name": "tensorrt"}, "budget": to_json(Budget(deadline_ns=loop.deadline_ns))}
    run = measure(Plan(order=order, conditions=conditions, python=worker))
    Path(run.conditions["step_map"]).unlink()
    # A process that dies as it closes has measured all the same; without its last report nothing here would say so.
    assert run.conditions["state"] == "complete", (run.conditions["state"], run.conditions["printed"])
    return run


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cuda_graph": False},
        {"buffers": "mapped", "sync": "spin"},
        {"precision": "fp16", "sync": "block"},
        {"precision": "tf32", "marks": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(("network", "preset"), NETWORKS, ids=[n for n, _ in NETWORKS])
def test_builtin_networks_are_gated_and_measured(
    worker: str, network: str, preset: str | None, options: dict[str, Any], tmp_path: Path
) -> None:
    spec = policies.describe(network, preset=preset)
    made = make_reference(spec, tmp_path)
    run = _measured(worker, spec, made.path, **options)
    facts, conditions = run.conditions["backend_facts"], run.conditions
    assert conditions["invalid"] == [] and conditions["outputs_checked"]["0"] == made.steps
    assert facts["captured"] == options.get("cuda_graph", True) and facts["version"] and facts["device_name"]
    assert facts["sync"] == options.get("sync", "auto") and facts["precision"] == options.get("precision", "fp32")
    assert facts["build_ns"] > 0 and facts["device_memory_bytes"] >= 0
    assert facts["launches_per_step"] == 1 if facts["captured"] else True
    assert min(conditions["phases"]["columns"]["policy_ns"]) > 0
    assert (run.columns["device_ns"][-50:] > 0).all() == bool(options.get("marks"))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("file", "action"),
    [("b2w_lstm_state_io.onnx", None), ("g1_voxel_bool.onnx", "2"), ("g1_external/policy.onnx", None)],
)
def test_published_files_are_gated_and_measured(
    worker: str, file: str, action: str | None, shared_dir: Path, tmp_path: Path
) -> None:
    path = shared_dir / "policies" / "good" / file
    if not path.exists():
        pytest.skip(f"{path} is not there")
    spec = policies.describe(str(path), action=action)
    made = make_reference(spec, tmp_path)
    assert made.path is not None, made.reason
    try:
        run = _measured(worker, spec, made.path)
    except RobotPerfError as error:
        # 8.6 has no Mish, 10 has: a refusal by name is an answer, a wrong one is not.
        assert "voxel" in file and "can't take this model" in str(error), error
        pytest.skip(str(error))
    assert run.conditions["invalid"] == []


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("network", "options"),
    [("lstm", {}), ("lstm", {"buffers": "mapped"}), ("gru", {"cuda_graph": False})],
    ids=["lstm", "lstm-mapped", "gru-calls"],
)
def test_a_rehearsal_puts_state_and_answers_back(
    worker: str, network: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """The gate holds answers with rehearsals between them against answers without; the reference holds both against the CPU."""
    spec = policies.describe(network)
    made = make_reference(spec, tmp_path)
    run = _measured(worker, spec, made.path, keep_warm="rehearse:300", **options)
    assert run.conditions["invalid"] == [] and run.conditions["outputs_checked"]["0"] == made.steps
    assert not any("not known whether the rehearsals" in note for note in run.conditions["notes"])


@pytest.mark.gpu
def test_a_second_load_takes_the_kept_engine(worker: str) -> None:
    spec = policies.describe("mlp", preset="tiny")
    assert _measured(worker, spec).conditions["backend_facts"]["engine"] == "built"
    facts = _measured(worker, spec).conditions["backend_facts"]
    assert facts["engine"] == "kept" and facts["build_ns"] > 0


@pytest.mark.gpu
def test_an_engine_of_another_version_or_gpu_never_runs(worker: str) -> None:
    spec = policies.describe("mlp", preset="tiny")
    _measured(worker, spec)
    (path,) = cache.folder().glob("*.engine")
    sidecar = cache.sidecar_of(path)
    for wrong, right in (('"version": "9.9.9"', '"version": '), ('"device_name": "Orin"', '"device_name": ')):
        text = sidecar.read_text()
        line = next(part for part in text.splitlines() if right in part)
        sidecar.write_text(text.replace(line.strip().rstrip(","), wrong))
        with pytest.raises(RobotPerfError, match="is refused"):
            _measured(worker, spec, engine=str(path))
        # Without the option it is built again, and the report says why.
        facts = _measured(worker, spec).conditions["backend_facts"]
        assert facts["engine"] == "built" and "not used" in facts["engine_note"]


@pytest.mark.gpu
def test_operators_and_precisions_it_lacks_are_one_message(worker: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    with pytest.raises(RobotPerfError, match="can't take this model") as refused:
        _measured(worker, policies.describe(_det(onnx, tmp_path)))
    assert "Det" in str(refused.value)
    with pytest.raises(RobotPerfError, match="no scales"):
        _measured(worker, policies.describe("mlp", preset="tiny"), precision="int8")


def _det(onnx: Any, folder: Path) -> str:
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Det", ["x"], ["d"], name="det"), helper.make_node("Add", ["x", "d"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [4, 4])],
        [helper.make_tensor_value_info("y", 1, [4, 4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "det.onnx")
    return str(folder / "det.onnx")


def _quantised(onnx: Any, folder: Path) -> str:
    """One layer whose input and weights pass through int8."""
    helper, array = onnx.helper, onnx.numpy_helper.from_array
    node, scale = helper.make_node, np.array(0.02, np.float32)
    graph = helper.make_graph(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
            node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
            node("DequantizeLinear", ["wq", "s", "z"], ["wd"]),
            node("MatMul", ["xd", "wd"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, [1, 32])],
        [helper.make_tensor_value_info("y", 1, [1, 16])],
        [
            array(scale, "s"),
            array(np.array(0, np.int8), "z"),
            array(np.random.default_rng(0).integers(-127, 127, (32, 16)).astype(np.int8), "wq"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "q.onnx")
    return str(folder / "q.onnx")
