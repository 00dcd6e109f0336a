"""Damaged and hostile inputs: every one ends in a description or in one message that names it, never in a traceback."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robot_perf import policies
from robot_perf.errors import ExitCode, RobotPerfError
from robot_perf.policies.observations import open_observations
from robot_perf.policies.rate import check_rate

pytest.importorskip("onnx", reason="the package onnx is not installed")

SHARED = Path(__file__).resolve().parents[3] / "shared" / "policies"
BASES = {
    "onnx": ["synthetic/fp16_io.onnx", "synthetic/frozen_state_lstm.onnx", "good/go1_actuator_dynamic.onnx", "synthetic/motion_table.onnx",
             "bad/external_short.onnx", "bad/state_shape_mismatch.onnx", "bad/open_dims.onnx", "good/g1_external/policy.onnx"],
    "zip": ["good/anydrive_lstm_tuple.pt", "good/go1_actuator_export.pt2", "bad/checkpoint_state_dict.pt", "bad/pickle_canary_zip.pt",
            "bad/pickle_canary.pt", "bad/flatbuffer.tflite", "bad/json_renamed.onnx", "bad/lfs_pointer.pt"],
    "npz": ["expected/double_input.npz", "expected/go1_actuator.npz", "expected/tron1_encoder.npz"],
}  # fmt: skip
YAML = """
stages:
  encoder: {file: mlp, options: {obs: 20, actions: 3}, feed: "history[0:20]"}
  policy:
    file: lstm
    options: {obs: 8}
    feed: {obs: [encoder, "history[-3:]", commands]}
    outputs: [actions, h, c]
inputs: {history: [1, 30], commands: [1, 2]}
action: policy.actions
rate_hz: 50
"""
CONFIG = "policy: mlp\npreset: tiny\noptions: {obs: 8}\naction: 0\nrate_hz: 50.0\n"
DEPLOY = "sim: {dt: 0.005, decimation: 4}\ncontrol_dt: 0.02\nloop_frequency: 500\n"

pytestmark = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the folder ../shared with sample policies is not beside this checkout"
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

pieces = st.binary(min_size=0, max_size=12) | st.sampled_from(
    [
        b"\xff" * 10,
        b"\x00" * 8,
        b"\x80\x02c",
        b"PK\x03\x04",
        b"../../etc/passwd",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x08\x07",
        b"\xef\xbf\xbd",
        b'use_pickle": true',
    ]
)
edits = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert", "delete", "repeat"]), st.floats(0, 1), pieces),
    min_size=1,
    max_size=5,
)


def mutated(data: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    out = bytearray(data)
    for kind, where, piece in changes:
        at = int(where * len(out))
        if kind == "flip":
            out[at : at + len(piece)] = piece
        elif kind == "cut":
            del out[at:]
        elif kind == "insert":
            out[at:at] = piece
        elif kind == "delete":
            del out[at : at + len(piece) * 7]
        else:
            out[at:at] = out[at : at + 400]
    return bytes(out)


def settles(work: Callable[[], Any], name: str) -> bool:
    """True when `work` succeeds, False when it refuses properly; anything else fails the test."""
    os.environ.pop("ROBOT_PERF_UNPICKLED", None)
    try:
        work()
    except RobotPerfError as error:
        message = str(error)
        assert error.exit_code == ExitCode.USAGE
        assert 1 <= len(message.splitlines()) <= 4 and len(message) < 4000
        assert name in message, message
        assert all(c.isprintable() or c == "\n" for c in message), repr(message)
        return False
    finally:
        assert "ROBOT_PERF_UNPICKLED" not in os.environ
    return True


def test_descriptions_of_mutated_models() -> None:
    succeeded: list[bool] = []

    @QUICK
    @given(st.sampled_from(BASES["onnx"]), edits)
    def run(base: str, changes: list[tuple[str, float, bytes]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mutant.onnx"
            path.write_bytes(mutated((SHARED / base).read_bytes(), changes))
            succeeded.append(settles(lambda: policies.describe(str(path), action="0"), "mutant"))

    run()
    assert any(succeeded) and not all(succeeded)


@QUICK
@given(base=st.sampled_from(BASES["zip"]), changes=edits)
def test_descriptions_of_mutated_archives(base: str, changes: list[tuple[str, float, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"mutant{Path(base).suffix}"
        path.write_bytes(mutated((SHARED / base).read_bytes(), changes))
        settles(lambda: policies.describe(str(path)), "mutant")


@QUICK
@given(base=st.sampled_from([YAML, CONFIG]), changes=edits)
def test_descriptions_of_mutated_yaml(base: str, changes: list[tuple[str, float, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.yaml"
        path.write_bytes(mutated(base.encode(), changes))
        settles(lambda: policies.describe(str(path)), "")


words = st.text(alphabet="abcdefghilmnopstuy_.:-[]{}&*!%@'\"0123456789 \n\t", max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@QUICK
@given(
    key=st.sampled_from(["stages", "inputs", "action", "policy", "preset", "options", "shape", "state", "rate_hz"]),
    value=values,
    inner=st.sampled_from([None, "file", "feed", "shape", "state", "options", "outputs", "action", "backend"]),
)
def test_descriptions_of_yaml_with_wrong_values(key: str, value: Any, inner: str | None) -> None:
    import yaml

    data = yaml.safe_load(CONFIG if key in ("policy", "preset", "options", "shape", "state") else YAML)
    if inner is not None and "stages" in data:
        data["stages"]["policy"][inner] = value
    else:
        data[key] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.yaml"
        path.write_text(yaml.safe_dump(data, allow_unicode=True))
        settles(lambda: policies.describe(str(path)), "")


@QUICK
@given(base=st.sampled_from(BASES["npz"]), changes=edits, cast=st.booleans())
def test_mutated_recordings(base: str, changes: list[tuple[str, float, bytes]], cast: bool) -> None:
    spec = (
        policies.describe("mlp", options={"obs": 180})
        if "tron" in base
        else policies.describe(str(SHARED / "synthetic/double_input.onnx"))
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.npz"
        path.write_bytes(mutated((SHARED / base).read_bytes(), changes))

        def work() -> None:
            policies.describe(str(SHARED / "synthetic/double_input.onnx"), observations=str(path))
            observations = open_observations(spec, path=str(path), cast=cast)
            for k in range(3):
                assert all(isinstance(a, np.ndarray) for a in observations.at(k))

        settles(work, "mutant")


@QUICK
@given(changes=edits)
def test_mutated_configurations(changes: list[tuple[str, float, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.yaml"
        path.write_bytes(mutated(DEPLOY.encode(), changes))
        settles(lambda: check_rate(str(path), 50), "mutant")


@QUICK
@given(
    text=st.text(max_size=60)
    | st.sampled_from(["spin:", "mlp:", "a.b:c", "..:..", "-", "/", "\x1b[2J", "robot_perf:nothing"]),
    shapes=st.dictionaries(words, st.lists(st.integers(-3, 10**12), max_size=4).map(tuple), max_size=2),
    state=st.lists(st.tuples(words, words), max_size=2),
    action=st.none() | words,
    preset=st.none() | words,
    options=st.dictionaries(words, values, max_size=2),
)
def test_descriptions_of_any_text(text: str, shapes: Any, state: Any, action: Any, preset: Any, options: Any) -> None:
    def work(name: str) -> Any:
        return policies.describe(name, shapes=shapes, state=state, action=action, preset=preset, options=options)

    settles(lambda: work(text), "")
    settles(lambda: work("mlp"), "mlp")
    settles(lambda: work(str(SHARED / "good/go1_actuator_dynamic.onnx")), "go1_actuator_dynamic")


def test_mutated_models_that_reach_the_runtime() -> None:
    """In forked children: the runtime's C++ loader may crash on what the description lets through, and that is one message too."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from robot_perf import backends
    from robot_perf.backends.shared.child import in_child

    rng = np.random.default_rng(7)
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.onnx"
        while tried < 12:
            base = bytearray((SHARED / BASES["onnx"][int(rng.integers(0, 4))]).read_bytes())
            for _ in range(int(rng.integers(1, 4))):
                base[int(rng.integers(20, len(base)))] = int(rng.integers(0, 256))
            path.write_bytes(base)
            try:
                spec = policies.describe(str(path), action="0")
            except RobotPerfError:
                continue
            tried += 1

            def work(spec: Any = spec) -> int:
                runner = backends.load("onnxruntime", spec, {})
                observations = open_observations(runner.spec)
                try:
                    return len(runner.step(observations.at(0)))
                except Exception as error:  # noqa: BLE001 - the loop reports what a policy raises
                    return -len(str(error))

            settles(lambda work=work: in_child("mutant", work, timeout_s=30), "mutant")  # type: ignore[misc]
