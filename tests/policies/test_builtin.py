"""Built-in policies: public dimensions, equal arithmetic in numpy, ONNX and torch, options checked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from robot_perf import backends, policies
from robot_perf.policies import builtin
from robot_perf.policies.builtin import networks, onnx_model
from robot_perf.policies.observations import open_observations
from robot_perf.policies.resolve import config_names
from robot_perf.specs import PolicySpec, from_json, to_json

COUNTS = {
    ("mlp", "quadruped"): 190_860,
    ("mlp", "humanoid"): 414_237,
    ("lstm", "small"): 31_404,
    ("lstm", "large"): 530_717,
    ("gru", "quadrotor"): 2_068,
}
PRESETS = [(name, preset) for name in builtin.NUMPY_NETWORKS for preset in builtin.PRESETS[name]]


@pytest.mark.parametrize(("name", "preset"), COUNTS)
def test_parameters_are_the_published_ones(name: str, preset: str) -> None:
    spec = policies.describe(name, preset=preset)
    assert spec.cost is not None and spec.cost.parameters == COUNTS[name, preset]
    drawn = networks.weights(spec.builtin, 0)
    assert sum(w.size for w in drawn.values()) == COUNTS[name, preset]
    assert spec.cost.bytes_read == 4 * COUNTS[name, preset]


def test_flop_of_a_dense_network() -> None:
    cost = policies.describe("mlp").cost
    assert cost is not None and cost.flop == 2 * (48 * 512 + 512 * 256 + 256 * 128 + 128 * 12)


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_onnx_rendering_is_valid_and_equals_numpy(name: str, preset: str) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    spec = policies.describe(name, preset=preset, seed=3)
    model = onnx.load_model_from_string(onnx_model.render(spec.builtin, spec.seed))
    onnx.checker.check_model(model, full_check=True)
    _compare(spec, "onnxruntime", "python")


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_torch_rendering_equals_numpy(name: str, preset: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    _compare(policies.describe(name, preset=preset, seed=4), "eager", "python")


def _compare(spec: PolicySpec, one: str, other: str) -> None:
    observations = open_observations(spec)
    a, b = backends.load(one, spec, {}), backends.load(other, spec, {})
    for k in range(20):
        x, y = a.step(observations.at(k)), b.step(observations.at(k))
        for got, want in zip(x, y, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype == np.float32
            assert np.max(np.abs(got - want)) <= 1e-6 + 1e-4 * np.max(np.abs(want))


@pytest.mark.parametrize("name", builtin.NUMPY_NETWORKS)
def test_tiny_presets_stay_small(name: str) -> None:
    cost = policies.describe(name, preset="tiny").cost
    assert cost is not None and cost.parameters <= 500_000


def test_seeds_change_weights_and_nothing_else() -> None:
    one, other = policies.describe("mlp", seed=1), policies.describe("mlp", seed=2)
    assert one.inputs == other.inputs and one.cost == other.cost
    assert onnx_model.render(one.builtin, 1) == onnx_model.render(one.builtin, 1)
    assert onnx_model.render(one.builtin, 1) != onnx_model.render(one.builtin, 2)


def test_every_dimension_is_an_option(refused: Callable[..., str]) -> None:
    spec = policies.describe("lstm", options={"obs": "60", "memory": 128, "hidden": "256,128", "actions": "16"})
    assert spec.inputs[0].shape == (1, 60) and spec.inputs[1].shape == (1, 1, 128) and spec.outputs[0].shape == (1, 16)
    assert any("differ from the preset" in n for n in spec.notes)
    assert policies.describe("mlp", options={"hidden": [8]}).outputs[0].shape == (1, 12)
    for value in ("0", "x", "-3", "1.5", "99999999", "", None, True, [1, 2]):
        assert "not a size" in refused("mlp", options={"obs": value})
    assert "no option layers" in refused("mlp", options={"layers": 3})
    assert "no preset huge" in refused("mlp", preset="huge")
    assert "parameters" in refused("mlp", options={"obs": 65536, "hidden": "65536"})


def test_null_and_spin(refused: Callable[..., str]) -> None:
    assert policies.describe("null").builtin == {"name": "null"}
    assert policies.describe("spin:250").builtin["duration_ns"] == 250_000
    assert policies.describe("spin:0.5").builtin["duration_ns"] == 500
    for text in ("spin", "spin:", "spin:0", "spin:-1", "spin:1e3", "spin:99999999", "spin:ten"):
        assert "spin:<µs>" in refused(text)
    assert "no presets" in refused("null", preset="tiny")


def test_specs_survive_the_way_to_the_worker() -> None:
    import json

    for text in ("null", "spin:50", "mlp", "lstm", "gru"):
        spec = policies.describe(text)
        assert from_json(PolicySpec, json.loads(json.dumps(to_json(spec)))) == spec


def test_named_configurations() -> None:
    names = config_names()
    assert "humanoid-mlp" in names and "quadrotor-gru" in names
    for name in names:
        spec = policies.describe(name)
        assert spec.kind == "builtin" and spec.name == name and float(spec.metadata["documented_rate_hz"]) > 0
    assert policies.describe("humanoid-mlp").builtin["obs"] == 480


def test_default_backends() -> None:
    assert backends.default_backend(policies.describe("null")) == "python"
    assert backends.default_backend(policies.describe("spin:5")) == "python"
    assert backends.default_backend(policies.describe("mlp")) == "onnxruntime"
