"""Real policy files of robots, through the command line: each runs at its documented rate and ends in a verdict, with the
outputs that are recorded for it; each file that must be refused ends in one message and exit code 2."""

from __future__ import annotations

import json
import os

import pytest

from robot_perf.cli.__main__ import main

# file, rate in Hz, options, recorded outputs (checked by the gate before measuring), backend
GOOD = [
    ("good/humanoid_lite_mlp.onnx", "25", [], "humanoid_lite_mlp", "onnxruntime"),
    ("good/g1_lstm_reset.pt", "50", [], "g1_lstm_reset", "eager"),
    ("good/h1_lstm_noreset.pt", "50", [], "h1_lstm_noreset", "eager"),
    ("good/b2w_lstm_state_io.onnx", "50", [], "b2w_lstm_state_io", "onnxruntime"),
    ("good/g1_voxel_bool.onnx", "50", ["--action", "2"], "g1_voxel_bool", "onnxruntime"),
    ("good/g1_external/policy.onnx", "50", [], "g1_external", "onnxruntime"),
    ("good/tron1_rank1/encoder.onnx", "50", [], None, "onnxruntime"),
    ("good/tron1_rank1/policy.onnx", "50", [], None, "onnxruntime"),
    ("good/go1_tf2onnx.onnx", "50", [], "go1_tf2onnx", "onnxruntime"),
    ("good/anydrive_lstm_tuple.pt", "200", ["--shape", "x=12,1,2", "--shape", "hc0.0=2,12,8", "--shape", "hc0.1=2,12,8"], "anydrive_lstm_tuple", "eager"),
    ("good/go1_actuator_cuda.pt", "200", ["--shape", "input=12,6"], None, "eager"),
    ("good/go1_actuator_dynamic.onnx", "200", ["--shape", "joints=12"], None, "onnxruntime"),
    ("good/go1_actuator_export.pt2", "200", ["--shape", "joint_history=12,6"], None, "eager"),
    ("good/t1_mlp_prints.pt", "50", [], "t1_mlp_prints", "eager"),
    ("synthetic/motion_table.onnx", "50", ["--action", "0"], "motion_table", "onnxruntime"),
    ("synthetic/double_input.onnx", "50", [], "double_input", "onnxruntime"),
    ("synthetic/fp16_io.onnx", "50", [], "fp16_io", "onnxruntime"),
    ("synthetic/frozen_state_lstm.onnx", "50", [], "frozen_state_lstm", "onnxruntime"),
]  # fmt: skip

BAD = [
    ("truncated.onnx", "copy it again"),
    ("lfs_pointer.onnx", "git lfs pull"),
    ("lfs_pointer.pt", "git lfs pull"),
    ("utf8_mangled.pt", "text conversion"),
    ("empty.onnx", "0 bytes"),
    ("empty.pt", "0 bytes"),
    ("json_renamed.onnx", "json"),
    ("html_page.onnx", "web page"),
    ("pickle_canary.pt", "never unpickles"),
    ("pickle_canary_zip.pt", "pickle"),
    ("checkpoint_state_dict.pt", "weights without a network"),
    ("unsupported_domain.onnx", "--ort-library"),
    ("external_missing.onnx", "external_missing.onnx.data"),
    ("external_short.onnx", "256"),
    ("external_escape.onnx", "g1_external"),
    ("future_opset.onnx", "99"),
    ("future_ir.onnx", "99"),
    ("state_shape_mismatch.onnx", "h_in"),
    ("open_dims.onnx", "--shape"),
    ("flatbuffer.tflite", "TensorFlow Lite"),
]


@pytest.mark.parametrize(
    ("file", "rate", "options", "recorded", "backend"), GOOD, ids=[g[0].split("/", 1)[1] for g in GOOD]
)
def test_good_files_end_in_a_verdict_with_their_outputs(
    file, rate, options, recorded, backend, shared_dir, tmp_path, capfd
):
    pytest.importorskip("onnxruntime" if backend == "onnxruntime" else "torch", reason=f"{backend} is not installed")
    arguments = ["deadline", str(shared_dir / "policies" / file), "--rate", rate, "--steps", "40", *options]
    if recorded:
        arguments += ["--observations", str(shared_dir / "policies" / "expected" / f"{recorded}.npz")]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--json", "-o", str(tmp_path / "run.parquet")])
    document = json.loads(capfd.readouterr().out)
    # 40 releases decide little; on a busy machine they may even miss. What matters: a verdict, and no INVALID.
    assert document["verdict"]["status"] in ("PASS", "INCONCLUSIVE", "FAIL"), document["verdict"]["reason"]
    assert end.value.code in (0, 1, 3)
    assert document["conditions"]["backend"]["name"] == backend
    assert document["conditions"]["policy"]["inputs"]
    if recorded:
        assert document["conditions"]["outputs_checked"]


def test_nan_outputs_are_invalid(shared_dir, tmp_path, capfd):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with pytest.raises(SystemExit) as end:
        main(["deadline", str(shared_dir / "policies/synthetic/nan_output.onnx"), "--rate", "50", "--steps", "30", "-o", str(tmp_path / "r.parquet")])  # fmt: skip
    assert end.value.code == 4
    assert "NaN" in capfd.readouterr().out


def test_a_wrong_output_is_invalid(shared_dir, tmp_path, capfd):
    """The gate itself: another policy's recording must not pass."""
    np = pytest.importorskip("numpy")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with np.load(shared_dir / "policies/expected/humanoid_lite_mlp.npz") as recording:
        arrays = {k: recording[k] for k in recording.files}
    arrays["out.0"] = arrays["out.0"] * 1.001
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(SystemExit) as end:
        main(["deadline", str(shared_dir / "policies/good/humanoid_lite_mlp.onnx"), "--rate", "50", "--steps", "30", "--observations", str(tmp_path / "wrong.npz"), "-o", str(tmp_path / "r.parquet")])  # fmt: skip
    assert end.value.code == 4
    assert "differs from its recording" in " ".join(capfd.readouterr().out.split())


def test_the_printing_policy_leaves_json_parseable_and_is_warned_about(shared_dir, tmp_path, capfd):
    pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(SystemExit):
        main(["deadline", str(shared_dir / "policies/good/t1_mlp_prints.pt"), "--rate", "50", "--steps", "30", "--json", "-o", str(tmp_path / "r.parquet")])  # fmt: skip
    document = json.loads(capfd.readouterr().out)
    assert document["conditions"]["printed"]["stdout_bytes"] > 80 * 30
    assert any("print" in note for note in document["conditions"]["notes"])


@pytest.mark.parametrize(("file", "words"), BAD, ids=[b[0] for b in BAD])
def test_bad_files_end_in_one_message(file, words, shared_dir, tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("ROBOT_PERF_UNPICKLED", raising=False)
    pytest.importorskip("onnx", reason="onnx is not installed")
    with pytest.raises(SystemExit) as end:
        main(["deadline", str(shared_dir / "policies" / "bad" / file), "--rate", "50", "--steps", "10", "-o", str(tmp_path / "r.parquet")])  # fmt: skip
    captured = capfd.readouterr()
    assert end.value.code == 2
    assert words.lower() in " ".join(captured.err.split()).lower()
    assert len(captured.err.strip().splitlines()) <= 4
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert "weights_only" not in captured.err
    assert "ROBOT_PERF_UNPICKLED" not in os.environ
    assert not (tmp_path / "r.parquet").exists()


def test_a_pipeline_of_two_files_is_one_step_with_its_stages_shown(shared_dir, tmp_path, capfd):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    folder = shared_dir / "policies/good/tron1_rank1"
    chain = tmp_path / "chain.yaml"
    chain.write_text(
        "stages:\n"
        f"  encoder: {{file: {folder}/encoder.onnx, feed: history}}\n"
        f"  policy: {{file: {folder}/policy.onnx, feed: {{mlp_input: [encoder, 'history[-36:]', commands]}}, outputs: [actions]}}\n"
        "inputs: {commands: [5]}\naction: policy\n"
    )
    recorded = str(shared_dir / "policies/expected/tron1_chain.npz")
    arguments = ["deadline", str(chain), "--rate", "50", "--steps", "60", "--observations", recorded]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "-o", str(tmp_path / "r.parquet")])
    assert end.value.code in (0, 1, 3)
    text = capfd.readouterr().out
    assert "encoder" in text
    assert "policy" in text
    from robot_perf.analyze.summary import summarize
    from robot_perf.run.parquet import load

    run = load(tmp_path / "r.parquet")
    assert run.conditions["outputs_checked"] == {"0": 4, "1": 4}
    assert not run.conditions["invalid"]
    stages = summarize(run).stages
    assert [s.metric for s in stages] == ["stage encoder", "stage policy"]
    assert sum(s.mean or 0 for s in stages) == pytest.approx(summarize(run).execution.mean)
