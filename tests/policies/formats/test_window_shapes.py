"""Shapes behind windows, parts and sums are those that onnx itself infers; what no rule reaches is named as missing work."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from robot_perf.policies import describe
from robot_perf.policies.formats.operators import count_operators
from robot_perf.policies.onnxfile.shapes import known_shapes
from robot_perf.specs import TensorSpec

onnx = pytest.importorskip("onnx")
WINDOWS = ["Conv", "ConvTranspose", "MaxPool", "AveragePool"]


def agrees(kind: str, shape: tuple[int, ...], held: dict[str, Any], outputs: int = 1, **attributes: Any) -> None:
    """Our shapes of a node's outputs against onnx's. `held`: constants by name: a list of ints, or a shape of floats."""
    h, t = onnx.helper, onnx.TensorProto
    given_ = [
        h.make_tensor(n, t.INT64, [len(v)], v) if isinstance(v, list) else h.make_tensor(n, t.FLOAT, v, bytes(4 * math.prod(v)), raw=True)
        for n, v in held.items()
    ]  # fmt: skip
    names = [f"y{i}" for i in range(outputs)]
    node = h.make_node(kind, ["x", *held], names, **attributes)
    shown = [h.make_node("Identity", [n], [f"out_{n}"]) for n in names]
    graph = h.make_graph(
        [node, *shown],
        "g",
        [h.make_tensor_value_info("x", t.FLOAT, shape)],
        [h.make_tensor_value_info(f"out_{n}", t.FLOAT, None) for n in names],
        given_,
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)])
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info
    except onnx.shape_inference.InferenceError:
        return  # no shape to agree with: a window larger than what it slides over
    wanted = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in inferred if v.name in names}
    if any(min(shape, default=1) < 1 for shape in wanted.values()):
        return
    found = known_shapes(model, (TensorSpec("x", "float32", shape),), {})
    if attributes.get("ceil_mode") and "y0" not in found:
        return  # a window that would begin in the padding
    assert {n: found.get(n) for n in wanted} == wanted and len(wanted) == outputs


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_windows_have_the_shapes_that_onnx_infers(data: Any) -> None:
    kind, axes = data.draw(st.sampled_from(WINDOWS)), data.draw(st.integers(1, 2))
    many = {"min_size": axes, "max_size": axes}
    sizes = data.draw(st.lists(st.integers(4, 12), **many))
    kernel = data.draw(st.lists(st.integers(1, 3), **many))
    options: dict[str, Any] = {"strides": data.draw(st.lists(st.integers(1, 3), **many))}
    padding = data.draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    assume(kind != "ConvTranspose" or not padding.startswith("SAME"))
    if padding != "NOTSET":
        options["auto_pad"] = padding
    else:
        options["pads"] = data.draw(st.lists(st.integers(0, 1), min_size=2 * axes, max_size=2 * axes))
        options["dilations"] = data.draw(st.lists(st.integers(1, 2), **many)) if kind != "AveragePool" else [1] * axes
    if kind.endswith("Pool"):
        assume(all(2 * p <= k for p, k in zip(options.get("pads", []), kernel * 2, strict=False)))
        options["ceil_mode"] = data.draw(st.integers(0, 1)) if padding == "NOTSET" else 0
        agrees(kind, (2, 3, *sizes), {}, kernel_shape=kernel, **options)
        return
    group = data.draw(st.sampled_from([1, 3]))
    weights = (3, 4, *kernel) if kind == "ConvTranspose" else (6, 3 // group, *kernel)
    agrees(kind, (2, 3, *sizes), {"w": weights}, group=group, **options)


@pytest.mark.parametrize(
    ("kind", "shape", "held", "more"),
    [
        ("GlobalAveragePool", (1, 8, 5, 7), {}, {}),
        ("GlobalMaxPool", (1, 8, 5), {}, {}),
        ("Flatten", (2, 3, 4), {}, {"axis": 2}),
        ("MaxPool", (1, 2, 9), {}, {"kernel_shape": [3], "outputs": 2}),
        ("Split", (1, 24), {"sizes": [8, 16]}, {"outputs": 2}),
        ("Split", (7, 2), {}, {"outputs": 3, "num_outputs": 3}),
        ("Gather", (5, 4), {"at": [0, 2, 2]}, {"axis": -1}),
        ("ReduceMean", (2, 3, 4), {"axes": [-1]}, {"keepdims": 0}),
        ("ReduceMax", (2, 3, 4), {}, {}),
        ("Pad", (2, 3), {"pads": [0, 1, 2, 0]}, {}),
        ("Expand", (1, 3), {"to": [4, 1]}, {}),
    ],
)
def test_other_shapes_are_those_that_onnx_infers(kind: str, shape: Any, held: Any, more: Any) -> None:
    agrees(kind, shape, held, **more)


def test_act_is_counted_whole() -> None:
    spec = describe("act")
    count = count_operators(spec)
    assert spec.cost is not None and spec.cost.flop == 34_931_824_640
    assert count.product_flop == spec.cost.flop
    assert count.weight_bytes == pytest.approx(spec.cost.bytes_read, rel=0.01)  # tables of positions are no parameters
    assert not count.uncounted and not count.missing


@pytest.mark.parametrize("file", ["go1_tf2onnx.onnx", "g1_external/policy.onnx", "tron1_rank1/policy.onnx"])
def test_real_files_are_counted_whole(shared_dir: Path, file: str) -> None:
    count = count_operators(describe(str(shared_dir / "policies" / "good" / file)))
    assert not count.uncounted and not count.missing


def test_products_that_nobody_counts_are_missing_work_and_no_element_wise_ones(tmp_path: Path) -> None:
    """Their output has a shape, so they would have counted as one operation per element."""
    h, t = onnx.helper, onnx.TensorProto
    graph = h.make_graph(
        [h.make_node("Einsum", ["x", "w"], ["z"], equation="ij,jk->ik")],
        "g",
        [h.make_tensor_value_info("x", t.FLOAT, [1, 4])],
        [h.make_tensor_value_info("z", t.FLOAT, [1, 3])],
        [h.make_tensor("w", t.FLOAT, [4, 3], [0.0] * 12)],
    )
    path = tmp_path / "einsum.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    spec = describe(str(path))
    count = count_operators(spec)
    assert count.missing == {"Einsum": 1} and count.flop == 0
    assert spec.cost is not None and spec.cost.flop is None
