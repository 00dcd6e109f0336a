"""The built-in action-chunking transformer: published sizes, one answer in torch and ONNX, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from robot_perf import policies
from robot_perf.errors import UsageError
from robot_perf.policies.builtin import act
from robot_perf.policies.observations import open_observations

FULL = act.PRESETS["one-camera"]


def test_layers_have_the_published_sizes() -> None:
    def parameters(prefix: str) -> int:
        dense = sum(rows * (columns + 1) for name, columns, rows, _ in act.linears(FULL) if name.startswith(prefix))
        return dense + 2 * FULL["hidden"] * sum(n.startswith(f"{prefix}norm") for n in act.norms(FULL))

    assert parameters("encoder.0.") == 4_333_184
    assert parameters("decoder.0.") == 5_384_832
    assert abs(act.cost(FULL)[0] / 34.4e6 - 1) < 0.02


@pytest.mark.parametrize("preset", act.PRESETS)
def test_signature_and_tokens(preset: str) -> None:
    spec = policies.describe("act", preset=preset)
    dims = act.PRESETS[preset]
    assert spec.inputs[0].shape == (1, dims["cameras"], 3, dims["height"], dims["width"])
    assert spec.outputs[0].shape == (1, dims["chunk"], dims["actions"])
    assert (spec.chunk, spec.action, spec.state) == (dims["chunk"], 0, ())
    assert act.tokens(FULL) == 2 + 300
    assert act.image_positions(dims).shape == (
        act.projection(dims).size[0] * act.projection(dims).size[1],
        dims["hidden"],
    )


def test_cost_counts_what_the_weights_hold() -> None:
    for preset in ("tiny", "four-cameras"):
        dims = act.PRESETS[preset]
        assert act.cost(dims)[0] == sum(a.size for a in act.weights(dims, 0).values())
    assert act.cost(act.PRESETS["tiny"])[0] <= 500_000
    one, four = act.cost(FULL), act.cost(act.PRESETS["four-cameras"])
    assert one[0] == four[0] and 3.5 < four[1] / one[1] < 4.5


@pytest.mark.parametrize("options", [{}, {"cameras": 2, "decoder_layers": 2}], ids=["tiny", "two cameras"])
def test_torch_and_onnx_answer_alike(options: dict[str, int]) -> None:
    torch = pytest.importorskip("torch")
    runtime = pytest.importorskip("onnxruntime")
    from robot_perf.policies.builtin.onnx_model import render
    from robot_perf.policies.builtin.torch_module import build

    spec = policies.describe("act", preset="tiny", options=options, seed=3)
    module = build(spec.builtin, spec.seed)
    session = runtime.InferenceSession(render(spec.builtin, spec.seed), providers=["CPUExecutionProvider"])
    observations = open_observations(spec)
    seen = []
    for k in range(3):
        images, state = observations.at(k)
        (want,) = session.run(None, {"images": images, "state": state})
        with torch.no_grad():
            got = module(torch.from_numpy(images), torch.from_numpy(state))[0].numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
        seen.append(want)
    images, state = observations.at(0)
    (moved,) = session.run(None, {"images": images[..., ::-1].copy(), "state": state})
    assert np.abs(moved - seen[0]).max() > 0.05 * np.abs(seen[0]).max()  # the images have a say


def test_onnx_form_is_sound() -> None:
    onnx = pytest.importorskip("onnx")
    from robot_perf.policies.builtin.onnx_model import render

    spec = policies.describe("act", preset="tiny")
    onnx.checker.check_model(onnx.load_from_string(render(spec.builtin, 0)), full_check=True)


def test_seed_decides_the_weights() -> None:
    dims = act.PRESETS["tiny"]
    a, b, c = (act.weights(dims, seed)["head.weight"] for seed in (0, 0, 1))
    assert np.array_equal(a, b) and not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("options", "words"), [({"heads": 3}, "heads=3"), ({"height": 16}, "32x32"), ({"depth": 2}, "no option")]
)
def test_unsound_dimensions_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        policies.describe("act", preset="tiny", options=options)
    assert words in str(refused.value)


def test_the_numpy_backend_says_that_it_has_no_form() -> None:
    from robot_perf import backends

    reason = backends.backend_module("python").takes(policies.describe("act", preset="tiny"))
    assert reason is not None and "onnxruntime" in reason
    assert backends.default_backend(policies.describe("act")) == "onnxruntime"
