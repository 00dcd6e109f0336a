"""Pipelines of several files and YAML that names one policy: wiring, sizes, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from robot_perf import policies
from robot_perf.specs import PolicySpec, from_json, to_json

pytest.importorskip("onnx", reason="the package onnx is not installed")


def chain(shared_dir: Path, **changes: Any) -> dict[str, Any]:
    folder = shared_dir / "policies" / "good" / "tron1_rank1"
    data: dict[str, Any] = {
        "stages": {
            "encoder": {"file": str(folder / "encoder.onnx"), "feed": "history"},
            "policy": {
                "file": str(folder / "policy.onnx"),
                "feed": {"mlp_input": ["encoder", "history[-36:]", "commands"]},
            },
        },
        "inputs": {"commands": [5]},
        "action": "policy",
    }
    for path, value in changes.items():
        *parents, leaf = path.split("__")
        target = data
        for part in parents:
            target = target[part]
        if value is None:
            del target[leaf]
        else:
            target[leaf] = value
    return data


def write(tmp_path: Path, data: object) -> str:
    path = tmp_path / "chain.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(path)


def test_two_files_make_one_step(shared_dir: Path, tmp_path: Path) -> None:
    spec = policies.describe(write(tmp_path, chain(shared_dir)))
    assert spec.kind == "pipeline"
    assert [(t.name, t.shape) for t in spec.inputs] == [("history", (180,)), ("commands", (5,))]
    assert [(t.name, t.shape) for t in spec.outputs] == [("encoder", (3,)), ("policy", (8,))]
    assert spec.action == 1 and spec.stage_action == ("policy", 0)
    assert spec.fed == (0, 1)
    assert spec.cost is not None and spec.cost.parameters == 79_619 + 188_296
    assert from_json(PolicySpec, to_json(spec)) == spec


def test_outputs_may_be_named_and_the_action_defaults_to_the_last_stage(shared_dir: Path, tmp_path: Path) -> None:
    data = chain(shared_dir, action=None, stages__encoder__outputs=["latent"], stages__policy__outputs=["actions"])
    data["stages"]["policy"]["feed"]["mlp_input"][0] = "encoder.latent"
    spec = policies.describe(write(tmp_path, data))
    assert [t.name for t in spec.outputs] == ["latent", "actions"] and spec.action == 1
    assert policies.describe(write(tmp_path, data), action="encoder").action == 0
    assert policies.describe(write(tmp_path, data), action="0").stage_action == ("encoder", 0)


def test_files_are_relative_to_the_yaml(shared_dir: Path, tmp_path: Path) -> None:
    for name in ("encoder.onnx", "policy.onnx"):
        (tmp_path / name).write_bytes((shared_dir / "policies" / "good" / "tron1_rank1" / name).read_bytes())
    data = chain(shared_dir, stages__encoder__file="encoder.onnx", stages__policy__file="./policy.onnx")
    first = policies.describe(write(tmp_path, data))
    assert first.size_bytes == 341_144 + 778_692
    changed = bytearray((tmp_path / "policy.onnx").read_bytes())
    changed[-1000] ^= 1
    (tmp_path / "policy.onnx").write_bytes(changed)
    assert policies.describe(write(tmp_path, data)).sha256 != first.sha256


BROKEN = [
    ({"inputs": None}, ["commands", "inputs: {commands: [5]}"]),
    ({"inputs__commands": [6]}, ["policy", "mlp_input", "[44]", "commands float32 [6]"]),
    ({"inputs__spare": [3]}, ["spare", "no stage"]),
    ({"inputs__commands": [-1]}, ["commands"]),
    ({"inputs__commands": "five"}, ["inputs", "commands"]),
    ({"stages__policy__feed": "encoder", "inputs": None}, ["policy", "mlp_input", "encoder float32 [3]"]),
    ({"stages__policy__feed": {"obs": "encoder"}}, ["policy", "no such input", "mlp_input"]),
    ({"stages__policy__feed": None}, ["feed", "required"]),
    ({"stages__encoder__feed": "policy"}, ["policy", "later"]),
    ({"stages__encoder__feed": "history[1:2:3]"}, ["encoder", "no piece"]),
    ({"stages__policy__feed__mlp_input": ["encoder.1", "history[-36:]", "commands"]}, ["no such output"]),
    ({"stages__encoder__file": "absent.onnx"}, ["absent.onnx"]),
    ({"stages__encoder__fil": "x"}, ["encoder", "fil"]),
    ({"stages__encoder__outputs": ["a", "b"]}, ["2 outputs", "1"]),
    ({"stages": {}}, ["stages is empty"]),
    ({"action": "motor"}, ["motor", "encoder, policy"]),
    ({"action": "policy.3"}, ["no such output"]),
    ({"rate": 50}, ["rate"]),
]


@pytest.mark.parametrize(("change", "words"), BROKEN)
def test_broken_pipelines_name_stage_and_key(
    shared_dir: Path, tmp_path: Path, refused: Callable[..., str], change: dict[str, Any], words: list[str]
) -> None:
    message = refused(write(tmp_path, chain(shared_dir, **change)))
    for word in words:
        assert word in message, f"{word!r} is not in:\n{message}"


def test_options_of_stages_are_not_options_of_the_pipeline(
    shared_dir: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert "belong to its stages" in refused(write(tmp_path, chain(shared_dir)), shapes={"history": (180,)})


def test_a_recording_gives_sizes(shared_dir: Path, tmp_path: Path) -> None:
    recording = str(shared_dir / "policies" / "expected" / "tron1_chain.npz")
    spec = policies.describe(write(tmp_path, chain(shared_dir, inputs=None)), observations=recording)
    assert [t.shape for t in spec.inputs] == [(180,), (5,)]


def test_stages_keep_their_state_and_builtins_may_be_stages(tmp_path: Path) -> None:
    data = {
        "stages": {
            "memory": {"file": "lstm", "feed": "obs"},
            "head": {"file": "mlp", "options": {"obs": 12, "actions": 3}, "feed": {"obs": ["memory"]}},
        }
    }
    spec = policies.describe(write(tmp_path, data))
    assert [(t.name, t.shape) for t in spec.inputs] == [("obs", (1, 47))]
    assert "memory: state: 2 pairs carried" in spec.state_note
    assert [t.name for t in spec.outputs] == ["memory.actions", "memory.h_out", "memory.c_out", "head"]
    assert spec.action == 3


def test_a_counter_that_nobody_feeds_counts_the_steps(shared_dir: Path, tmp_path: Path) -> None:
    file = str(shared_dir / "policies" / "synthetic" / "motion_table.onnx")
    spec = policies.describe(
        write(tmp_path, {"stages": {"motion": {"file": file, "feed": {"obs": "obs"}, "action": 0}}})
    )
    assert [t.name for t in spec.inputs] == ["motion.time_step", "obs"] or [t.name for t in spec.inputs] == [
        "obs",
        "motion.time_step",
    ]
    assert [spec.inputs[i].name for i in spec.counters] == ["motion.time_step"]


def test_one_policy_with_its_options(shared_dir: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    file = str(shared_dir / "policies" / "good" / "go1_actuator_dynamic.onnx")
    spec = policies.describe(write(tmp_path, {"policy": file, "shape": {"joint_history": [12, 6]}, "rate_hz": 200}))
    assert spec.inputs[0].shape == (12, 6) and spec.metadata["documented_rate_hz"] == "200"
    assert policies.describe(write(tmp_path, {"policy": file}), shapes={"joints": (4,)}).inputs[0].shape == (4, 6)
    assert "another YAML" in refused(write(tmp_path, {"policy": "chain.yaml"}))
    assert "preset" in refused(write(tmp_path, {"policy": file, "preset": "tiny"}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("just: [a, list]\n", ["without a policy", "stages"]),
        ("- a\n- b\n", ["list", "mapping"]),
        ("stages: [unclosed\n", ["not sound YAML"]),
        ("a: &x [*x]\nstages: *x\n", ["chain.yaml"]),
        ("!!python/object/apply:os.system ['true']\n", ["not sound YAML"]),
        ("{" * 2000, ["not sound YAML"]),
        ("'just text'\n", ["str"]),
        ("stages: {a: {file: mlp, feed: [1, 2]}}\n", ["feed"]),
        ("stages: {'a.b': {file: mlp, feed: obs}}\n", ["dot"]),
        ("stages: {a: {file: chain.yaml, feed: obs}}\n", ["chain.yaml"]),
    ],
)
def test_yaml_that_is_no_policy(tmp_path: Path, refused: Callable[..., str], text: str, words: list[str]) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text(text)
    message = refused(path)
    for word in words:
        assert word in message, f"{word!r} is not in:\n{message}"
