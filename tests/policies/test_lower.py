"""ONNX models computed in float16 and bfloat16: same signature, close answers, refusals by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robot_perf import policies
from robot_perf.errors import PolicyError
from robot_perf.policies.builtin.onnx_model import render
from robot_perf.policies.observations import initial_state, open_observations
from robot_perf.policies.onnxfile import encode, lower, protobuf
from robot_perf.policies.onnxfile.tensors import bfloat16
from robot_perf.specs import PolicySpec

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

BUILTINS = [("mlp", "tiny"), ("lstm", "tiny"), ("gru", "tiny"), ("act", "tiny")]
FILES = [
    "humanoid_lite_mlp.onnx", "b2w_lstm_state_io.onnx", "g1_voxel_bool.onnx", "g1_external/policy.onnx",
    "tron1_rank1/encoder.onnx", "go1_tf2onnx.onnx", "go1_actuator_dynamic.onnx",
]  # fmt: skip


def _run(source: bytes | str, spec: PolicySpec, steps: int = 4) -> list[list[np.ndarray]]:
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    session = ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
    observations = open_observations(spec, seed=5)
    state = {spec.inputs[p.target].name: v for p, v in zip(spec.state, initial_state(spec), strict=True)}
    answers = []
    for k in range(steps):
        feed = {spec.inputs[i].name: a for i, a in zip(spec.fed, observations.at(k), strict=True)} | state
        outputs = session.run([t.name for t in spec.outputs], feed)
        state = {spec.inputs[p.target].name: outputs[p.source] for p in spec.state}
        answers.append(outputs)
    return answers


def _worst(want: list[list[np.ndarray]], got: list[list[np.ndarray]]) -> float:
    worst = 0.0
    for x, y in zip(want, got, strict=True):
        for a, b in zip(x, y, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            scale = float(np.max(np.abs(a.astype(float)))) or 1.0
            worst = max(worst, float(np.max(np.abs(a.astype(float) - b.astype(float)))) / scale)
    return worst


@pytest.mark.parametrize(("name", "preset"), BUILTINS)
def test_builtin_networks_stay_within_float16s_tolerance(name: str, preset: str) -> None:
    spec = policies.describe(name, preset=preset)
    data = render(spec.builtin, 0)
    lowered = lower.lower(data, "fp16")
    onnx.checker.check_model(onnx.load_from_string(lowered), full_check=True)
    worst = _worst(_run(data, spec), _run(lowered, spec))
    assert 1e-6 < worst < 5e-3  # rounded, and no more than that
    assert len(lowered) < 0.75 * len(data)


@pytest.mark.parametrize("file", FILES)
def test_published_files_stay_within_float16s_tolerance(file: str, shared_dir: Path) -> None:
    path = shared_dir / "policies" / "good" / file
    spec = policies.describe(str(path), action="0")
    lowered = lower.lower(path.read_bytes(), "fp16", folder=path.parent)
    onnx.checker.check_model(onnx.load_from_string(lowered))
    assert _worst(_run(str(path), spec), _run(lowered, spec)) < 5e-3


def test_bfloat16_is_sound_and_rounds_to_nearest_even() -> None:
    spec = policies.describe("act", preset="tiny")
    onnx.checker.check_model(onnx.load_from_string(lower.lower(render(spec.builtin, 0), "bf16")))
    values = np.array([1.0, 1.00390625, 1.01171875, -3.4e38, np.inf, np.nan, 0.0, 1e-40], np.float32)
    back = (np.frombuffer(bfloat16(values), "<u2").astype(np.uint32) << 16).view(np.float32)
    torch = pytest.importorskip("torch")
    want = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(back, want)


def _model(nodes: list, weights: dict, **kwargs: object) -> bytes:
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, kwargs.pop("shape", [1, 3, 4, 4]))],  # type: ignore[arg-type]
            [onnx.helper.make_tensor_value_info("y", 1, ["a", "b", "c", "d"])],
            [onnx.numpy_helper.from_array(v, k) for k, v in weights.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", int(kwargs.pop("opset", 17)))],  # type: ignore[call-overload]
        ir_version=8,
    )
    return bytes(proto.SerializeToString())


def test_kept_operators_compute_in_float32_between_casts() -> None:
    node, scales = onnx.helper.make_node, np.array([1, 1, 1.3, 1.3], np.float32)
    data = _model(
        [
            node("Mul", ["x", "w"], ["m"]),
            node("Resize", ["m", "", "s"], ["r"], mode="linear"),
            node("Add", ["r", "b"], ["y"]),
        ],
        {"w": np.full((1,), 0.3, np.float32), "s": scales, "b": np.ones((1,), np.float32)},
    )
    lowered = onnx.load_from_string(lower.lower(data, "fp16"))
    onnx.checker.check_model(lowered, full_check=True)
    resize = next(n for n in lowered.graph.node if n.op_type == "Resize")
    kept = next(t for t in lowered.graph.initializer if t.name == resize.input[2])
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(kept), scales)  # 1.3 has no float16
    x = np.random.default_rng(0).random((1, 3, 4, 4)).astype(np.float32)
    want, got = (
        ort.InferenceSession(d, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for d in (data, lowered.SerializeToString())
    )
    np.testing.assert_allclose(got, want, rtol=5e-3)


def test_masks_are_clamped_constants_lowered_casts_redirected() -> None:
    node = onnx.helper.make_node
    mask = onnx.numpy_helper.from_array(np.array(-1e9, np.float32), "")
    data = _model(
        [
            node("Constant", [], ["mask"], value=mask),
            node("Constant", [], ["half"], value_float=0.5),
            node("Greater", ["x", "half"], ["big"]),
            node("Where", ["big", "x", "mask"], ["kept"]),
            node("Cast", ["big"], ["f"], to=1),
            node("Max", ["kept", "f"], ["y"]),
        ],
        {},
    )
    lowered = lower.lower(data, "fp16")
    onnx.checker.check_model(onnx.load_from_string(lowered), full_check=True)
    x = np.random.default_rng(0).random((1, 3, 4, 4)).astype(np.float32)
    want, got = (
        ort.InferenceSession(d, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0] for d in (data, lowered)
    )
    np.testing.assert_allclose(got, want, atol=1e-3)


def test_what_can_not_be_lowered_is_refused_by_name() -> None:
    node = onnx.helper.make_node
    wide = _model([node("Mul", ["x", "w"], ["y"])], {"w": np.full((2, 1, 1, 1), 1e6, np.float32)})
    with pytest.raises(PolicyError, match="65504"):
        lower.lower(wide, "fp16")
    lower.lower(wide, "bf16")
    with pytest.raises(PolicyError, match="opset 11"):
        lower.lower(_model([node("Relu", ["x"], ["y"])], {}, opset=11), "bf16")
    q = _model(
        [node("QuantizeLinear", ["x", "s"], ["q"]), node("DequantizeLinear", ["q", "s"], ["y"])],
        {"s": np.array(0.1, np.float32)},
    )
    assert lower.is_quantised(q) and not lower.is_quantised(wide)
    with pytest.raises(PolicyError, match="quantised"):
        lower.lower(q, "fp16")
    branch = onnx.helper.make_graph(
        [node("Identity", ["x"], ["z"])], "b", [], [onnx.helper.make_tensor_value_info("z", 1, None)]
    )
    conditional = _model(
        [node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], {"c": np.array(True)}, shape=[1, 3, 4, 4]
    )
    with pytest.raises(PolicyError, match="branch"):
        lower.lower(conditional, "fp16")


@pytest.mark.parametrize("cut", [1, 40, 300, 900])
def test_damaged_models_are_refused(cut: int) -> None:
    spec = policies.describe("mlp", preset="tiny")
    data = render(spec.builtin, 0)
    with pytest.raises(PolicyError):
        lower.lower(data[:-cut], "fp16")


def test_weights_in_a_second_file_stay_in_its_folder(tmp_path: Path) -> None:
    tensor = onnx.helper.make_tensor("w", 1, [4], [1, 2, 3, 4])
    entries = [("location", "../w.bin"), ("offset", "0"), ("length", "16")]
    model = onnx.load_from_string(
        _model([onnx.helper.make_node("Mul", ["x", "w"], ["y"])], {"w": np.ones(4, np.float32)})
    )
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].data_location = 1
    for key, value in entries:
        model.graph.initializer[0].external_data.add(key=key, value=value)
    (tmp_path.parent / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    assert tensor.name == "w"
    with pytest.raises(PolicyError, match="outside"):
        lower.lower(model.SerializeToString(), "fp16", folder=tmp_path)


def test_wire_format_round_trip() -> None:
    message = protobuf.integer(1, -5) + protobuf.text(2, "é") + protobuf.block(3, b"\x01\x02")
    found = list(protobuf.fields(message))
    assert protobuf.signed(int(found[0][2])) == -5  # type: ignore[arg-type]
    assert b"".join(protobuf.encoded(*f) for f in found) == message
    for broken in (b"\x0a\x05ab", b"\x80", b"\x0b", b"\xff" * 12):
        with pytest.raises(ValueError):
            list(protobuf.fields(broken))
    assert encode.model([], {}, [], [])
