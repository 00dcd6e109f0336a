"""Streams, waits, pipelines and torch's own CUDA graphs on a CUDA device. Run with `pytest -m gpu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_here import DEVICE, measured, need_ort, need_torch

from robot_perf import backends, policies
from robot_perf.backends.gpu.options import TOLERANCE
from robot_perf.backends.shared.check import check_outputs, expected_outputs
from robot_perf.errors import UsageError
from robot_perf.measure.clock import MonotonicClock
from robot_perf.measure.window.keep_warm import keep_warm_hook
from robot_perf.policies.observations import open_observations
from robot_perf.specs import LoopSpec, PolicySpec
from robot_perf.tasks.reference import make_reference

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
HELPERS = Path(__file__).resolve().parents[1] / "helpers"
WAYS = [
    pytest.param("eager", marks=need_torch),
    pytest.param("compile", marks=need_torch),
    pytest.param("cuda_graph", marks=need_torch),
    pytest.param("onnxruntime", marks=need_ort),
]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("asked", [0, -1])
def test_a_priority_is_the_streams_own(name: str, asked: int, tmp_path: Path) -> None:
    spec = policies.describe("mlp")
    reference = make_reference(spec, tmp_path).path
    runner = backends.load(name, spec, DEVICE | {"priority": asked})
    observations = open_observations(runner.spec, path=reference)
    assert (
        check_outputs(runner, observations, expected_outputs(reference, runner.spec), relative=TOLERANCE["fp32"])
        is None
    )
    assert runner.facts()["stream_priority"] == asked
    runner.close()


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("asked", [-1000, 7])
def test_a_priority_that_the_device_lacks_is_refused_with_its_range(name: str, asked: int) -> None:
    with pytest.raises(UsageError, match=f"priority {asked} is not offered by cuda:0") as refused:
        backends.load(name, policies.describe("mlp"), DEVICE | {"priority": asked})
    assert "It has 0 (the lowest) to -" in str(refused.value)


@need_ort
def test_a_runtime_that_waits_itself_says_so_and_spinning_is_no_cure(tmp_path: Path) -> None:
    spec = policies.describe("mlp")
    loop = LoopSpec(period_ns=2_000_000, deadline_ns=2_000_000, steps=1, keep_warm="spin-sync")
    for graph, said in ((False, "runtime"), (True, "spin")):
        runner: Any = backends.load("onnxruntime", spec, DEVICE | {"sync": "spin", "cuda_graph": graph})
        assert runner.facts()["sync"] == said
        arguments = loop, runner, open_observations(spec), MonotonicClock(), [False]
        if graph:
            assert keep_warm_hook(*arguments) is None
        else:
            with pytest.raises(UsageError, match="the runtime waits for the device itself"):
                keep_warm_hook(*arguments)
        runner.step(open_observations(spec).at(0))
        assert not runner.pending()
        runner.close()


def _pipeline(folder: Path, second: str = "") -> PolicySpec:
    path = folder / "two.yaml"
    path.write_text(
        "stages:\n  first:\n    file: mlp\n    feed: obs\n"
        f'  second:\n    file: mlp\n    feed:\n      obs: [first, "obs[12:]"]\n{second}inputs:\n  obs: [1, 48]\n'
    )
    return policies.describe(str(path))


@pytest.mark.parametrize("name", WAYS)
def test_a_pipeline_is_gated_and_described_as_one_policy(name: str, tmp_path: Path) -> None:
    spec = _pipeline(tmp_path)
    run = measured(name, spec, {}, make_reference(spec, tmp_path).path)
    facts = run.conditions["backend_facts"]
    assert run.conditions["invalid"] == [] and run.conditions["outputs_checked"]["1"] >= 20
    assert facts["device"] == "cuda:0" and facts["device_name"]
    # ONNX Runtime's is read off the device's free memory, which other processes give back meanwhile
    assert facts["device_memory_bytes"] >= (0 if name == "onnxruntime" else 1)
    assert facts["captured"] is (name == "cuda_graph")
    runner: Any = backends.load(name, spec, DEVICE)
    runner.step(open_observations(runner.spec).at(0))
    assert not runner.pending()
    examined = runner.examine()
    parts = [examined["stages"][stage]["launches_per_step"] for stage in ("first", "second")]
    assert None not in parts and examined["launches_per_step"] == sum(parts)
    runner.close()


@need_torch
def test_stages_of_two_backends_take_turns_on_one_device(tmp_path: Path) -> None:
    spec = _pipeline(tmp_path, second="    backend: eager\n")
    run = measured("cuda_graph", spec, {}, make_reference(spec, tmp_path).path)
    stages = run.conditions["backend_facts"]["stages"]
    assert run.conditions["invalid"] == [] and run.conditions["outputs_checked"]["1"] >= 20
    assert [stages[s]["captured"] for s in ("first", "second")] == [True, False]


@need_torch
def test_a_compile_mode_whose_graphs_are_all_skipped_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HELPERS)
    run = measured("compile", policies.describe("cuda_policies:WritesItsInput"), {"mode": "reduce-overhead"}, None)
    assert run.conditions["backend_facts"]["counted"]["skipped CUDA graphs"] >= 1, run.conditions["backend_facts"]
    reasons = [r for r in run.conditions["invalid"] if "none was captured" in r]
    assert reasons and "mutated" in reasons[0], run.conditions["invalid"]


@need_torch
def test_a_compile_mode_that_holds_its_graphs_is_not(tmp_path: Path) -> None:
    spec = policies.describe("lstm")
    run = measured("compile", spec, {"mode": "reduce-overhead"}, make_reference(spec, tmp_path).path)
    assert run.conditions["invalid"] == []
    assert "not_captured" not in run.conditions["backend_facts"]


@need_torch
def test_more_compiles_than_torch_allows_end_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HELPERS)
    measured("compile", policies.describe("cuda_policies:CountsUp"), {}, None, ended="torch stopped compiling it")


@need_torch
@pytest.mark.parametrize("name", ["eager", "cuda_graph"])
def test_poison_reaches_every_answer_of_a_pipeline(name: str, tmp_path: Path) -> None:
    spec = _pipeline(tmp_path)
    runner: Any = backends.load(name, spec, DEVICE)
    answers = runner.step(open_observations(runner.spec).at(0))
    runner.poison()
    assert len(answers) == 2 and not any(np.isfinite(a).all() for a in answers)
    runner.close()
