"""The truth gate's reference: who makes it, for how many steps, and what happens where none can be had."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_perf import backends, policies
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.window.truth import _asked, truth
from robot_perf.policies.observations import open_observations
from robot_perf.specs import LoopSpec
from robot_perf.tasks.reference import candidates, make_reference, needs_reference, trials, with_reference

LOOP = LoopSpec(period_ns=1_000_000, deadline_ns=1_000_000, steps=1)


def _order(spec: Any, backend: str = "python", **options: Any) -> WorkOrder:
    return WorkOrder(map_path="", policy=spec, backend=backend, loop=LOOP, options=options)


def test_a_stateful_policy_gets_a_hundred_steps_and_every_backend_passes(tmp_path: Path) -> None:
    spec = policies.describe("lstm", preset="tiny")
    made = make_reference(spec, tmp_path, seed=3)
    assert made.path is not None and made.steps == 100
    arrays = np.load(made.path)
    assert arrays["in.0"].shape == (100, 1, 12) and arrays["out.2"].shape == (100, 1, 1, 16)
    assert not np.array_equal(arrays["in.0"][0], open_observations(spec, seed=3).at(0)[0])  # not the loop's own inputs
    order = replace(_order(spec), reference=made.path)
    runner = backends.load("python", spec, {})
    found = truth(order, runner, open_observations(spec))
    assert found.invalid == [] and found.checked == {"0": 100, "1": 100, "2": 100}
    assert found.relative == pytest.approx(1e-4)


def test_a_backend_that_loses_its_state_is_invalid(tmp_path: Path) -> None:
    spec = policies.describe("lstm", preset="tiny")
    made = make_reference(spec, tmp_path)
    runner = backends.load("python", spec, {})
    step = runner.step

    def forgets(observation: Any) -> Any:
        runner.reset()
        return step(observation)

    runner.step = forgets  # type: ignore[method-assign]
    found = truth(replace(_order(spec), reference=made.path), runner, open_observations(spec))
    assert found.invalid and "float32 CPU reference" in found.invalid[0] and "first at step 1" in found.invalid[0]


def test_the_next_runner_is_compared_though_it_lies_where_the_last_one_lay(tmp_path: Path) -> None:
    """A node that is configured again loads another; CPython gives it the dead one's address, and so its id."""
    spec = policies.describe("lstm", preset="tiny")
    order = replace(_order(spec), reference=make_reference(spec, tmp_path).path)

    class Wrong:
        def __init__(self, offset: float) -> None:
            self.inner, self.offset, self.spec = backends.load("python", spec, {}), offset, spec

        def reset(self) -> None:
            self.inner.reset()

        def step(self, observation: Any) -> Any:
            return tuple(a + np.float32(self.offset) for a in self.inner.step(observation))

    remembered = len(_asked)
    for offset in (0.0, 1.0) * 20:
        runner = Wrong(offset)
        found = truth(order, runner, open_observations(spec))  # type: ignore[arg-type]
        assert bool(found.invalid) == bool(offset)
        del runner
        gc.collect()
        assert len(_asked) <= remembered  # whether an address comes again in these 40 is the allocator's affair


def test_half_precision_gets_its_own_tolerance(tmp_path: Path) -> None:
    spec = policies.describe("mlp", preset="tiny")
    made = make_reference(spec, tmp_path)
    assert made.steps == 20
    order = replace(_order(spec, device="cuda:0", precision="fp16"), reference=made.path)
    found = truth(order, backends.load("python", spec, {}), open_observations(spec))
    assert found.relative == 5e-3 and not found.invalid


def test_a_device_and_compiled_code_need_one_and_nulls_have_none(tmp_path: Path) -> None:
    spec = policies.describe("mlp", preset="tiny")
    assert not needs_reference(spec, "eager", {"device": "cpu"}) and not needs_reference(spec, "onnxruntime", {})
    assert needs_reference(spec, "eager", {"device": "cuda:0"}) and needs_reference(spec, "compile", {})
    order, made = with_reference(_order(spec, device="cpu"), tmp_path)
    assert order.reference is None and made.conditions() == {"compared": False, "reason": made.reason}
    assert made.notes() == []
    order, made = with_reference(_order(spec, backend="compile"), tmp_path)
    assert order.reference == made.path and made.conditions()["compared"] and made.notes() == []
    order, made = with_reference(_order(spec, backend="cuda_graph", device="cuda:0"), tmp_path)
    assert order.reference == made.path and made.conditions()["compared"]
    assert make_reference(policies.describe("null"), tmp_path).path is None


@pytest.mark.parametrize(
    ("factory", "words"),
    [("odd_reference:Draws", "draws random numbers"), ("odd_reference:Raises", "no device here")],
)
def test_why_there_is_none(factory: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2] / "helpers")
    made = make_reference(policies.describe(factory), tmp_path)
    assert made.path is None and words in made.reason and words in made.notes()[0]


def test_a_policy_that_writes_into_its_input_has_one_of_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2] / "helpers")
    spec = policies.describe("odd_reference:WritesIntoItsInput")
    made = make_reference(spec, tmp_path)
    assert made.path is not None, made.reason
    arrays = np.load(made.path)
    assert np.array_equal(arrays["out.0"], arrays["in.0"][:, :, :2] * np.float32(0.25))


def test_a_factory_may_keep_the_dictionary_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "helpers")
    runner = backends.load("python", policies.describe("odd_reference:KeepsItsInputs"), {})
    answers = [float(runner.step([np.full((1, 4), v, np.float32)])[0][0, 0]) for v in (1, 3, 7)]
    assert answers == [1, 2, 4]


def _two(tmp_path: Path, first: str = "", second: str = "") -> Any:
    """Two networks of one input each, on the backends that they state."""
    path = tmp_path / "two.yaml"
    stated = [f", backend: {name}" if name else "" for name in (first, second)]
    path.write_text(f"stages: {{a: {{file: mlp, feed: obs{stated[0]}}}, b: {{file: lstm, feed: obs2{stated[1]}}}}}\n")
    return policies.describe(str(path))


@pytest.mark.parametrize(
    ("whole", "stated", "needed"),
    [
        ("eager", ("", "compile"), True),
        ("compile", ("", "eager"), True),
        ("compile", ("eager", "python"), False),
        ("eager", ("", ""), False),
    ],
)
def test_a_pipeline_needs_one_where_a_stage_of_it_is_compiled(
    whole: str, stated: tuple[str, str], needed: bool, tmp_path: Path
) -> None:
    assert needs_reference(_two(tmp_path, *stated), whole, {}) is needed


def test_a_pipelines_stages_are_compared_with_what_answers_for_each_of_them(tmp_path: Path) -> None:
    """Not with what they state: that would be compared with itself, and a device's backend can't run there at all."""
    pytest.importorskip("onnxruntime")
    spec = _two(tmp_path, "cuda_graph", "compile")
    assert [chosen for chosen, _ in trials(spec)] == [("onnxruntime",) * 2, ("eager",) * 2, ("python",) * 2]
    made = make_reference(spec, tmp_path)
    assert made.path is not None, made.reason
    assert made.conditions()["against"] == "onnxruntime in float32 on the CPU" and made.steps == 100
    runner = backends.load("python", _two(tmp_path), {})
    found = truth(replace(_order(spec), reference=made.path), runner, open_observations(runner.spec))
    assert found.invalid == [] and len(found.checked) == len(runner.spec.outputs)


def test_candidates_by_kind(shared_dir: Path) -> None:
    assert candidates(policies.describe("mlp")) == ("onnxruntime", "eager", "python")
    assert candidates(policies.describe("act")) == ("onnxruntime", "eager")
    assert candidates(policies.describe(str(shared_dir / "policies/good/g1_lstm_reset.pt"))) == ("eager",)
    assert candidates(policies.describe(str(shared_dir / "policies/good/humanoid_lite_mlp.onnx"))) == ("onnxruntime",)
