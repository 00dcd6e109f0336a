"""What is read from ONNX files: signature, state, counters, constants, cost, notes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from robot_perf import policies
from robot_perf.specs import StatePair

pytest.importorskip("onnx", reason="the package onnx is not installed")

GOOD = {
    "good/humanoid_lite_mlp.onnx": (71_702, ["obs"], [(1, 75)], [(1, 22)], {}),
    "good/b2w_lstm_state_io.onnx": (
        172_496,
        ["obs", "h_in", "c_in"],
        [(1, 60), (1, 1, 128), (1, 1, 128)],
        [(1, 16)],
        {},
    ),
    "good/g1_voxel_bool.onnx": (
        211_940,
        ["policy", "grid_map_", "mask"],
        [(1, 223), (1, 32, 32, 32), (1,)],
        [(1, 223)],
        {"action": "2"},
    ),
    "good/g1_external/policy.onnx": (217_821, ["obs"], [(1, 96)], [(1, 29)], {}),
    "good/tron1_rank1/encoder.onnx": (79_619, ["mlp_input"], [(180,)], [(3,)], {}),
    "good/tron1_rank1/policy.onnx": (188_296, ["mlp_input"], [(44,)], [(8,)], {}),
    "good/go1_tf2onnx.onnx": (192_504, ["obs"], [(1, 48)], [(1, 12)], {}),
    "good/go1_actuator_dynamic.onnx": (1_313, ["joint_history"], [(1, 6)], [(1, 1)], {}),
    "synthetic/motion_table.onnx": (1_102, ["obs", "time_step"], [(1, 8), (1, 1)], [(1, 29)], {"action": "0"}),
    "synthetic/double_input.onnx": (32, ["obs"], [(1, 8)], [(1, 4)], {}),
    "synthetic/fp16_io.onnx": (32, ["obs"], [(1, 8)], [(1, 4)], {}),
    "synthetic/nan_output.onnx": (32, ["obs"], [(1, 8)], [(1, 4)], {}),
}


@pytest.mark.parametrize("name", GOOD)
def test_signature_and_parameters(shared_dir: Path, name: str) -> None:
    parameters, names, shapes, first, asked = GOOD[name]
    spec = policies.describe(str(shared_dir / "policies" / name), **asked)
    assert spec.kind == "onnx" and spec.cost is not None
    assert spec.cost.parameters == parameters
    assert [t.name for t in spec.inputs] == names
    assert [t.shape for t in spec.inputs] == shapes
    assert [t.shape for t in spec.outputs][: len(first)] == first


def test_multiply_adds_are_counted_from_shapes(shared_dir: Path) -> None:
    def flop(name: str, **asked: object) -> int | None:
        cost = policies.describe(str(shared_dir / "policies" / name), **asked).cost  # type: ignore[arg-type]
        assert cost is not None
        return cost.flop

    assert flop("good/humanoid_lite_mlp.onnx") == 2 * (75 * 256 + 256 * 128 + 128 * 128 + 128 * 22)
    # Memory 60 -> 128 with four gates, then the 128-256-128-64-16 actor.
    assert flop("good/b2w_lstm_state_io.onnx") == 2 * (
        4 * 128 * (60 + 128) + 128 * 256 + 256 * 128 + 128 * 64 + 64 * 16
    )
    assert flop("good/tron1_rank1/encoder.onnx") == 2 * (180 * 256 + 256 * 128 + 128 * 3)
    one, twelve = (flop("good/go1_actuator_dynamic.onnx", shapes=s) for s in ({"joints": (1,)}, {"joints": (12,)}))
    assert one is not None and twelve == 12 * one
    conv = flop("good/g1_voxel_bool.onnx", action="2")
    assert conv is not None and conv > 1_000_000


def test_repeated_output_names_are_positions(shared_dir: Path) -> None:
    path = str(shared_dir / "policies" / "good" / "g1_voxel_bool.onnx")
    spec = policies.describe(path, action="2")
    assert [t.name for t in spec.outputs] == ["div", "mish_6", "linear_5", "mul_1", "linear_5", "sum_1"]
    assert [t.dtype for t in spec.inputs] == ["float32", "bool", "bool"]
    assert policies.describe(path, action="mul_1").action == 3


def test_the_action_is_never_the_first_output(shared_dir: Path, refused: Callable[..., str]) -> None:
    path = shared_dir / "policies" / "good" / "g1_voxel_bool.onnx"
    message = refused(path)
    assert "6 outputs" in message and "2 linear_5 float32 [1,23]" in message and "--action" in message
    ambiguous = refused(path, action="linear_5")
    assert "2, 4" in ambiguous and "--action 2" in ambiguous
    assert "no such output" in refused(path, action="9")
    assert policies.describe(str(shared_dir / "policies" / "good" / "b2w_lstm_state_io.onnx")).action == 0


def test_state_pairs_by_name(shared_dir: Path) -> None:
    spec = policies.describe(str(shared_dir / "policies" / "good" / "b2w_lstm_state_io.onnx"))
    assert spec.state == (StatePair(1, 1), StatePair(2, 2))
    assert spec.state_note == "state: 2 pairs carried (h_in<-h_out, c_in<-c_out), reset before measuring"
    assert spec.fed == (0,)
    plain = policies.describe(str(shared_dir / "policies" / "good" / "humanoid_lite_mlp.onnx"))
    assert plain.state_note == "state: none found"


def test_state_can_be_given_and_taken_away(shared_dir: Path, refused: Callable[..., str]) -> None:
    path = str(shared_dir / "policies" / "good" / "b2w_lstm_state_io.onnx")
    swapped = policies.describe(path, state=[("h_in", "2"), ("2", "h_out")])
    assert swapped.state == (StatePair(1, 2), StatePair(2, 1))
    fed = policies.describe(path, state=[("h_in", ""), ("c_in", "")], action="0")
    assert fed.state == () and fed.fed == (0, 1, 2)
    half = policies.describe(path, state=[("h_in", "")], action="0")
    assert half.state == (StatePair(2, 2),) and half.fed == (0, 1)
    assert "no such input" in refused(path, state=[("hidden", "1")])
    assert "[1,1,128]" in refused(path, state=[("h_in", "0")])


def test_constants_and_counter_of_a_motion_table(shared_dir: Path) -> None:
    spec = policies.describe(str(shared_dir / "policies" / "synthetic" / "motion_table.onnx"), action="0")
    assert spec.cost is not None and spec.cost.constants == 14_848
    assert spec.counters == (1,)
    assert any("time_step" in n and "advances by 1" in n for n in spec.notes)
    assert policies.describe(spec.path or "", action="0", counters=("none",)).counters == ()


def test_a_recurrent_operator_that_forgets_is_reported(shared_dir: Path) -> None:
    spec = policies.describe(str(shared_dir / "policies" / "synthetic" / "frozen_state_lstm.onnx"))
    assert any(
        "this file has an LSTM but its state is a constant: every step starts from the same memory" in n
        for n in spec.notes
    )


def test_open_axes(shared_dir: Path, onnx_file: Callable[..., Path], refused: Callable[..., str]) -> None:
    path = str(shared_dir / "policies" / "good" / "go1_actuator_dynamic.onnx")
    spec = policies.describe(path)
    assert spec.inputs[0].shape == (1, 6) and spec.inputs[0].symbols == ("joints", None)
    assert any("joints" in n and "1 is used" in n for n in spec.notes)
    for shapes in ({"joint_history": (12, 6)}, {"joints": (12,)}):
        sized = policies.describe(path, shapes=shapes)
        assert sized.inputs[0].shape == (12, 6) and sized.outputs[0].shape == (12, 1) and not sized.notes
    assert "[joints,6]" in refused(path, shapes={"joint_history": (12, 7)})
    assert "no such input" in refused(path, shapes={"obs": (12, 6)})
    assert "sizes start at 1" in refused(path, shapes={"joint_history": (0, 6)})
    images = str(shared_dir / "policies" / "bad" / "open_dims.onnx")
    assert policies.describe(images, shapes={"images": (1, 3, 48, 64)}).inputs[0].shape == (1, 3, 48, 64)
    assert policies.describe(images, shapes={"height": (48,), "width": (64,)}).inputs[0].shape == (1, 3, 48, 64)
    no_name = onnx_file({"x": [None, 4]}, {"y": [None, 4]})
    assert policies.describe(str(no_name)).inputs[0].shape == (1, 4)
    two = onnx_file({"x": ["n", 4], "y": ["n", 2]}, {"a": ["n", 4]}, "two.onnx")
    assert "two sizes" in refused(two, shapes={"x": (3, 4), "y": (2, 2)})


def test_a_size_may_come_from_a_recording(shared_dir: Path, tmp_path: Path) -> None:
    import numpy as np

    recording = tmp_path / "obs.npz"
    np.savez(recording, joint_history=np.zeros((5, 12, 6), np.float32))
    spec = policies.describe(
        str(shared_dir / "policies" / "good" / "go1_actuator_dynamic.onnx"), observations=str(recording)
    )
    assert spec.inputs[0].shape == (12, 6)


def test_a_batch_is_not_ours_to_choose(shared_dir: Path, refused: Callable[..., str]) -> None:
    path = shared_dir / "policies" / "good" / "humanoid_lite_mlp.onnx"
    assert "[1,75]" in refused(path, shapes={"obs": (2, 75)})


def test_metadata_and_versions(onnx_file: Callable[..., Path]) -> None:
    path = onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, metadata={"joint_names": "a,b", "kp": "20"}, opset=13)
    spec = policies.describe(str(path))
    assert spec.metadata["metadata.joint_names"] == "a,b" and spec.metadata["opset"] == "ai.onnx 13"
    assert spec.metadata["producer"] == "test"
    old = policies.describe(str(onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, "old.onnx", opset=9)))
    assert any("opset 9 is older" in n for n in old.notes)


def test_content_wins_over_the_extension(shared_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "policy.pt"
    path.write_bytes((shared_dir / "policies" / "good" / "humanoid_lite_mlp.onnx").read_bytes())
    spec = policies.describe(str(path))
    assert spec.kind == "onnx" and any("although its name ends in .pt" in n for n in spec.notes)


def test_names_and_dtypes_are_verbatim(onnx_file: Callable[..., Path], refused: Callable[..., str]) -> None:
    path = onnx_file({"onnx::Gemm_0": [1, 4]}, {"53": [1, 4]})
    spec = policies.describe(str(path))
    assert spec.inputs[0].name == "onnx::Gemm_0" and spec.outputs[0].name == "53"
    import onnx

    text = onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, "string.onnx", dtype=onnx.TensorProto.STRING)
    assert "string" in refused(text)
    brain = onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, "bf16.onnx", dtype=onnx.TensorProto.BFLOAT16)
    assert "bfloat16" in refused(brain)


def test_operators_the_runtime_lacks(
    onnx_file: Callable[..., Path], refused: Callable[..., str], tmp_path: Path
) -> None:
    unknown = onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, op="FusedGait")
    assert "FusedGait" in refused(unknown) and "ai.onnx" in refused(unknown)
    contrib = onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, "contrib.onnx", op="QuickGelu", domain="com.microsoft")
    assert policies.describe(str(contrib)).kind == "onnx"
    custom = onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, "custom.onnx", op="Gait", domain="org.robot")
    library = tmp_path / "libops.so"
    library.write_bytes(b"\x7fELF")
    assert policies.describe(str(custom), ort_library=str(library)).asked["ort_library"] == str(library)
    assert "no such file" in refused(custom, ort_library=str(tmp_path / "absent.so"))


def test_every_opset_the_runtime_takes_is_accepted(onnx_file: Callable[..., Path], refused: Callable[..., str]) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from robot_perf.policies.onnxfile import limits

    library, ir, opset = limits.newest()
    assert library.startswith("onnxruntime") and ir is not None and opset is not None and opset >= 21
    for version in (11, 13, 17, opset):
        assert policies.describe(str(onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, opset=version))).kind == "onnx"
    assert f"newest that {library} takes is {opset}" in refused(
        onnx_file({"obs": [1, 4]}, {"a": [1, 4]}, opset=opset + 1)
    )
