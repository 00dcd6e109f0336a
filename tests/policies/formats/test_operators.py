"""Operators counted from graphs: built-ins, ONNX and torch.export files, without running any."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.errors import PolicyError
from robot_perf.policies import describe
from robot_perf.policies.formats.operators import count_operators
from robot_perf.policies.onnxfile.shapes import known_shapes
from robot_perf.specs import TensorSpec

onnx = pytest.importorskip("onnx")


def test_the_built_in_mlp_by_hand() -> None:
    count = count_operators(describe("mlp"))
    gemms = [o for o in count.operators if o.kind == "Gemm"]
    assert [o.flop for o in gemms] == [2 * a * b for a, b in ((48, 512), (512, 256), (256, 128), (128, 12))]
    assert [o.flop for o in count.operators if o.kind == "Elu"] == [512, 256, 128]  # one per element, about
    assert count.weight_bytes == 190_860 * 4 and count.dtype == "fp32"
    assert count.io_bytes == (48 + 12) * 4 and count.least_bytes == count.weight_bytes + count.io_bytes
    assert gemms[0].bytes == (48 * 512 + 512) * 4 + (48 + 512) * 4


@pytest.mark.parametrize("name", ["mlp", "gru", "lstm"])
def test_matrix_flop_agree_with_the_policys_cost(name: str) -> None:
    spec = describe(name)
    count = count_operators(spec)
    assert spec.cost is not None
    assert sum(o.flop for o in count.operators if not o.about) == spec.cost.flop
    assert count.weight_bytes == spec.cost.bytes_read


@pytest.mark.parametrize(
    ("file", "flop", "weights"),
    [
        ("humanoid_lite_mlp.onnx", 142_336, 286_808),
        ("b2w_lstm_state_io.onnx", 342_016, 689_984),
        ("go1_actuator_dynamic.onnx", 2_496, 5_252),
    ],
)
def test_real_onnx_policies(shared_dir: Path, file: str, flop: int, weights: int) -> None:
    count = count_operators(describe(str(shared_dir / "policies" / "good" / file)))
    assert sum(o.flop for o in count.operators if not o.about) == flop
    assert count.weight_bytes == weights and not count.uncounted


def test_a_real_exported_policy_with_an_open_axis(shared_dir: Path) -> None:
    count = count_operators(describe(str(shared_dir / "policies" / "good" / "go1_actuator_export.pt2")))
    assert sum(o.flop for o in count.operators if not o.about) == 2 * (6 * 32 + 32 * 32 + 32)
    assert count.weight_bytes == 5252 and not count.uncounted


def test_half_precision_is_read_from_the_weights(shared_dir: Path) -> None:
    assert count_operators(describe(str(shared_dir / "policies" / "synthetic" / "fp16_io.onnx"))).dtype == "fp16"


@pytest.mark.parametrize("policy", ["null", "spin:100"])
def test_policies_without_a_graph_are_refused(policy: str) -> None:
    with pytest.raises(PolicyError, match="can't be counted"):
        count_operators(describe(policy))


def test_torchscript_is_refused(shared_dir: Path) -> None:
    spec = describe(str(shared_dir / "policies" / "good" / "h1_lstm_noreset.pt"))
    with pytest.raises(PolicyError, match="Export it to ONNX"):
        count_operators(spec)


def exported(path: Path, document: Any) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/models/model.json", json.dumps(document))
        archive.writestr("m/archive_format", "pt2")
    return path


def tensor(*sizes: int) -> dict[str, Any]:
    return {"dtype": 7, "sizes": [{"as_int": s} for s in sizes]}


def node(target: str, inputs: list[str], output: str) -> dict[str, Any]:
    return {
        "target": target,
        "inputs": [{"arg": {"as_tensor": {"name": n}}} for n in inputs],
        "outputs": [{"as_tensor": {"name": output}}],
    }


def test_exported_operators_by_hand(tmp_path: Path) -> None:
    from robot_perf.policies.formats.exported_operators import count
    from robot_perf.specs import PolicySpec

    values = {
        "x": tensor(2, 8),
        "w": tensor(16, 8),
        "y": tensor(2, 16),
        "k": tensor(2, 8, 4),
        "q": tensor(2, 8, 4),
        "a": tensor(2, 8, 4),
        "v": tensor(16, 2),
    }
    graph = {
        "nodes": [
            node("torch.ops.aten.linear.default", ["x", "w"], "y"),
            node("torch.ops.aten.transpose.int", ["y"], "v"),
            node("torch.ops.aten.scaled_dot_product_attention.default", ["q", "k", "k"], "a"),
            node("torch.ops.aten.unknown_shape.default", ["x"], "nowhere"),
        ],
        "tensor_values": values,
    }  # fmt: skip
    document = {"graph_module": {"graph": graph, "signature": {"input_specs": [{"parameter": {"arg": {"name": "w"}}}]}}}
    found = count(exported(tmp_path / "p.pt2", document), PolicySpec("p", "torch_export"))
    assert [o.kind for o in found.operators] == ["linear", "scaled_dot_product_attention"]
    assert found.operators[0].flop == 2 * 2 * 16 * 8 and found.operators[0].weight_bytes == 16 * 8 * 4
    assert found.operators[1].flop == 2 * (2 * 8 * 8 * 4) * 2
    assert found.uncounted == {"unknown_shape": 1}


@pytest.mark.parametrize(
    "document",
    [[], {}, {"graph_module": {}}, {"graph_module": {"graph": {"nodes": 1}, "signature": {"input_specs": []}}}],
)
def test_a_broken_export_ends_in_one_message(tmp_path: Path, document: Any) -> None:
    from robot_perf.policies.formats.exported_operators import count
    from robot_perf.specs import PolicySpec

    with pytest.raises(PolicyError, match="can't be read"):
        count(exported(tmp_path / "p.pt2", document), PolicySpec("p", "torch_export"))


def _sliced(starts: list[int], ends: list[int], axes: list[int], steps: list[int], shape: list[int]) -> Any:
    """A model that slices its input, the bounds as initializers."""
    h, t = onnx.helper, onnx.TensorProto
    bounds = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    held = [h.make_tensor(name, t.INT64, [len(values)], values) for name, values in bounds.items()]
    node = h.make_node("Slice", ["x", *bounds], ["y"])
    graph = h.make_graph(
        [node, h.make_node("Tanh", ["y"], ["z"])],
        "sliced",
        [h.make_tensor_value_info("x", t.FLOAT, shape)],
        [h.make_tensor_value_info("z", t.FLOAT, None)],
        held,
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])


@given(st.data())
def test_slices_have_the_shapes_that_onnx_infers(data: Any) -> None:
    """What keeps a history: the newest rows of it, with the observation behind them."""
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    bound = st.one_of(st.integers(-8, 8), st.sampled_from([2**63 - 1, -(2**63)]))
    many = {"min_size": len(axes), "max_size": len(axes)}
    starts, ends = data.draw(st.lists(bound, **many)), data.draw(st.lists(bound, **many))
    steps = data.draw(st.lists(st.sampled_from([1, 2, 3, -1, -2]), **many))
    model = _sliced(starts, ends, axes, steps, shape)
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info[0]
    wanted = tuple(d.dim_value for d in inferred.type.tensor_type.shape.dim)
    assert known_shapes(model, (TensorSpec("x", "float32", tuple(shape)),), {})["y"] == wanted


def test_declared_outputs_are_known_shapes() -> None:
    """A custom operator in the middle hides the rest, but what the file promises of its outputs stands there."""
    h, t = onnx.helper, onnx.TensorProto
    nodes = [h.make_node("Resize", ["x"], ["history"]), h.make_node("MatMul", ["history", "w"], ["z"])]
    outputs = [h.make_tensor_value_info("z", t.FLOAT, [1, 3]), h.make_tensor_value_info("history", t.FLOAT, [1, 4])]
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", t.FLOAT, [1, 4])],
        outputs,
        [h.make_tensor("w", t.FLOAT, [4, 3], [0.0] * 12)],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])
    assert known_shapes(model, (TensorSpec("x", "float32", (1, 4)),), {})["history"] == (1, 4)
