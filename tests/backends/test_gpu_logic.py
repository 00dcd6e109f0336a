"""The GPU backends' logic that needs no GPU: options, precision by version, the engine cache, fault messages, the runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from custom_operator import model_and_library

from robot_perf import backends, policies
from robot_perf.backends.gpu import faults, nvtx, options, ort_session
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.backends.protocol import DeviceRunner, PhasedRunner, Runner
from robot_perf.backends.shared.check import check_outputs
from robot_perf.backends.torch_policy.compile_events import guard
from robot_perf.backends.trt import cache
from robot_perf.backends.trt.precision import means
from robot_perf.errors import BackendUnavailableError, InvalidMeasurementError, PolicyError, UsageError
from robot_perf.policies.observations import open_observations

V8 = {"FP16", "INT8", "FP8", "TF32", "REFIT"}
V10 = V8 | {"BF16"}


# --- options ------------------------------------------------------------------------------------------------------------


def test_options_are_read_and_said_back() -> None:
    read = options.read(
        {
            "device": "cuda:1",
            "precision": "fp16",
            "sync": "block",
            "cuda_graph": "false",
            "buffers": "mapped",
            "priority": -2,
        },
        "tensorrt",
        cuda_graph=True,
    )
    assert (read.index, read.precision, read.sync, read.cuda_graph, read.mapped) == (1, "fp16", "block", False, True)
    assert read.facts() == {
        "device": "cuda:1", "precision": "fp16", "sync": "block", "cuda_graph": False, "buffers": "mapped", "marks": False,
        "stream_priority": -2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"device": "cpu"}, "--device cuda:0"),
        ({}, "--device cuda:0"),
        ({"device": "cuda:"}, "is unknown"),
        ({"device": "gpu"}, "is unknown"),
        ({"device": "cuda:0", "precision": "fp31"}, "fp32, tf32"),
        ({"device": "cuda:0", "sync": "sleep"}, "auto, block, spin"),
        ({"device": "cuda:0", "cuda_graph": "perhaps"}, "neither true nor false"),
        ({"device": "cuda:0", "priority": "high"}, "whole number"),
        ({"device": "cuda:0", "treads": 1}, "no option treads"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        options.read(given, "cuda_graph")
    assert words in str(refused.value)


def test_a_priority_that_the_device_would_clamp_is_refused_with_its_range() -> None:
    options.check_priority(-5, 0, -5, "cuda:0")
    for asked in (7, -6):
        with pytest.raises(UsageError, match=f"priority {asked} is not offered by cuda:0") as refused:
            options.check_priority(asked, 0, -5, "cuda:0")
        assert "0 (the lowest) to -5 (served first)" in str(refused.value)


def test_tolerance_follows_the_precision() -> None:
    assert options.tolerance({"device": "cpu"}) is None
    assert options.tolerance({"device": "cuda:0"}) == 1e-4
    assert options.tolerance({"device": "cuda:0", "precision": "bf16"}) == 4e-2
    assert options.tolerance({"device": "cuda:0", "precision": "bf16", "tolerance": 0.5}) == 0.5
    assert set(options.TOLERANCE) == set(options.PRECISIONS)


@pytest.mark.parametrize("name", ["cuda_graph", "tensorrt", "tensorrt_rtx", "onnxruntime", "eager", "compile"])
def test_every_backend_says_why_it_can_not_run_or_take(name: str) -> None:
    module = backends.backend_module(name)
    reason = module.unavailable()
    assert reason is None or "install" in reason.lower() or "can't be" in reason
    factory = policies.describe("json:loads", shapes={"obs": (1, 8)})
    taken = module.takes(factory)
    assert (taken is None) == (name in ("cuda_graph", "eager", "compile"))


# --- precision by version -----------------------------------------------------------------------------------------------


def _means(
    precision: str, version: str = "8.6.0", flags: Any = V8, network: Any = ("EXPLICIT_BATCH",), quantised: bool = False
) -> Any:
    return means(precision, version=version, builder_flags=flags, network_flags=network, quantised=quantised)


def test_builder_flags_where_a_version_has_them() -> None:
    assert _means("fp32").off == ("TF32",) and _means("fp32").on == ()
    assert _means("tf32").on == ("TF32",)
    assert _means("fp16").on == ("TF32", "FP16") and not _means("fp16").strongly_typed
    assert _means("bf16", "10.3.0", V10, ("EXPLICIT_BATCH", "STRONGLY_TYPED")).on == ("TF32", "BF16")
    assert "INT8" in _means("int8", quantised=True).on


def test_strong_typing_where_flags_are_gone() -> None:
    typed = {"flags": {"TF32"}, "network": ("STRONGLY_TYPED",), "version": "11.0.0"}
    assert _means("fp32", **typed).strongly_typed and _means("fp32", **typed).lower_to is None
    assert _means("fp16", **typed).lower_to == "fp16" and _means("bf16", **typed).lower_to == "bf16"
    assert _means("int8", quantised=True, **typed).lower_to is None


@pytest.mark.parametrize(
    ("precision", "arguments", "words"),
    [
        ("int8", {}, "no scales"),
        ("bf16", {}, "8.6.0 does not offer it"),
        ("fp8", {"quantised": True}, "8.6.0 does not offer it"),
        ("fp32", {"flags": set(), "network": ()}, "neither precision flags nor strong typing"),
        ("tf32", {"flags": set(), "network": ("STRONGLY_TYPED",)}, "no flag"),
    ],
)
def test_precisions_a_version_lacks_are_refused(precision: str, arguments: Any, words: str) -> None:
    with pytest.raises(PolicyError) as refused:
        _means(precision, **arguments)
    assert words in str(refused.value)


# --- engine cache -------------------------------------------------------------------------------------------------------


def _record(**changes: Any) -> cache.Record:
    given = {
        "policy_sha256": "a" * 64, "runtime": "tensorrt", "version": "8.6.0", "device_name": "NVIDIA H200",
        "compute_capability": "9.0", "flags": {"precision": "fp16", "shapes": {"obs": [1, 48]}},
    }  # fmt: skip
    return cache.Record(**{**given, **changes})


def test_a_kept_engine_comes_back_with_its_entries(tmp_path: Path) -> None:
    assert cache.find(_record(), tmp_path) == (None, "")
    cache.write(_record(), b"engine", tmp_path, {"build_ns": 5})
    found, why = cache.find(_record(), tmp_path)
    assert found is not None and found.engine == b"engine" and found.entries["build_ns"] == 5 and why == ""
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "10.3.0"}, "version 8.6.0, here 10.3.0"),
        ({"device_name": "Orin", "compute_capability": "8.7"}, "device name NVIDIA H200, here Orin"),
        ({"policy_sha256": "b" * 64}, "policy sha256 aaaaaaaaaaaa, here bbbbbbbbbbbb"),
        ({"flags": {"precision": "fp32", "shapes": {"obs": [1, 48]}}}, "flags precision fp16, here fp32"),
        ({"flags": {"precision": "fp16", "shapes": {"obs": [1, 47]}}}, "flags shapes obs [1, 48], here [1, 47]"),
    ],
)
def test_an_engine_made_from_something_else_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = cache.write(_record(), b"engine", tmp_path, {})
    with pytest.raises(PolicyError) as refused:
        cache.read(path, _record(**change))
    assert words in str(refused.value) and "Give the ONNX file" in str(refused.value)
    assert cache.find(_record(**change), tmp_path) == (None, "")  # it has a name of its own


def test_a_changed_or_unrecorded_engine_is_never_used(tmp_path: Path) -> None:
    path = cache.write(_record(), b"engine", tmp_path, {})
    path.write_bytes(b"other bytes")
    found, why = cache.find(_record(), tmp_path)
    assert found is None and "not those that its record was written for" in why
    # A sidecar that was edited to look right for another machine still names another key.
    sidecar = cache.sidecar_of(path)
    document = json.loads(sidecar.read_text())
    document["record"]["version"] = "9.9.9"
    sidecar.write_text(json.dumps(document))
    assert "version 9.9.9, here 8.6.0" in cache.find(_record(), tmp_path)[1]
    sidecar.write_text("not json")
    assert "no readable record" in cache.find(_record(), tmp_path)[1]
    sidecar.unlink()
    with pytest.raises(PolicyError, match="no readable record"):
        cache.read(path, _record())


def test_the_cache_obeys_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOT_PERF_CACHE", str(tmp_path / "own"))
    assert cache.folder() == tmp_path / "own" / "engines" and cache.folder().is_dir()
    monkeypatch.delenv("ROBOT_PERF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg" / "robot-perf" / "engines"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROBOT_PERF_CACHE", str(tmp_path / "file"))
    with pytest.raises(PolicyError, match="ROBOT_PERF_CACHE"):
        cache.folder()


def test_timings_are_shared_by_device_and_version_alone(tmp_path: Path) -> None:
    one, other = _record(), _record(policy_sha256="c" * 64, flags={})
    assert cache.timing_path(one, tmp_path) == cache.timing_path(other, tmp_path)
    assert cache.timing_path(one, tmp_path) != cache.timing_path(_record(version="8.6.1"), tmp_path)


# --- faults -------------------------------------------------------------------------------------------------------------


def test_faults_are_told_by_kind() -> None:
    capture = RuntimeError(
        "CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might be asynchronously"
    )
    later = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    later.__context__ = capture
    told = faults.not_captured("p", later)
    assert (
        isinstance(told, InvalidMeasurementError) and "waits for the device" in told.why and "capturing" in told.detail
    )
    assert faults.is_out_of_memory(RuntimeError("cudaErrorMemoryAllocation: out of memory"))
    memory = faults.out_of_memory("p", RuntimeError("CUDA out of memory. Tried"), 2**30, 4 * 2**30)
    assert "1.00 of 4.00 GiB are free" in memory.why
    mixed = RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    )
    assert "not on cuda:0" in str(faults.on_device("p", "cuda:0", mixed))
    assert faults.on_device("p", "cuda:0", ValueError("the user's own")) is None
    library = faults.library_missing(
        "X", OSError("libcudnn.so.9: cannot open shared object file: No such file"), "install it"
    )
    assert isinstance(library, BackendUnavailableError) and "libcudnn.so.9 is missing" in library.why


def test_nodes_on_the_cpu_are_named_once() -> None:
    event = {"cat": "Node", "name": "det_kernel_time", "args": {"op_name": "Det", "provider": "CPUExecutionProvider"}}
    other = {
        "cat": "Node",
        "name": "gemm_kernel_time",
        "args": {"op_name": "Gemm", "provider": "CUDAExecutionProvider"},
    }
    profile = json.dumps([event, event, other, {"cat": "Session", "name": "x"}])
    assert ort_session.nodes_on(profile, "CPUExecutionProvider") == ["Det det"]


def test_provider_options_say_what_was_asked() -> None:
    read = options.DeviceOptions(index=1, precision="fp32", cuda_graph=True)
    ((name, given),) = ort_session.provider_options("cuda", read, 123, {"conv_search": "default"})
    assert name == "CUDAExecutionProvider"
    assert given == {
        "device_id": "1", "user_compute_stream": "123", "use_tf32": "0", "enable_cuda_graph": "1",
        "cudnn_conv_algo_search": "DEFAULT",
    }  # fmt: skip
    with pytest.raises(UsageError, match="exhaustive, heuristic, default"):
        ort_session.provider_options("cuda", read, 123, {"conv_search": "fast"})
    half = options.DeviceOptions(precision="fp16", cuda_graph=True)
    first, second = ort_session.provider_options("tensorrt", half, 1, {})
    assert first[1]["trt_fp16_enable"] == "1" and first[1]["trt_cuda_graph_enable"] == "1"
    assert second[1]["enable_cuda_graph"] == "0"


@pytest.mark.parametrize(
    ("provider", "precision", "words"),
    [
        ("cuda", "fp8", "Its CUDA provider has no fp8"),
        ("tensorrt", "fp8", "--backend tensorrt"),
        ("cuda", "int8", "no scales"),
        ("tensorrt", "int8", "no scales"),
    ],
)
def test_both_providers_refuse_what_they_would_not_compute(provider: str, precision: str, words: str) -> None:
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    with pytest.raises(PolicyError, match=f"precision {precision} is not offered") as refused:
        ort_session.in_precision(policies.describe("mlp", preset="tiny"), precision, provider)
    assert words in str(refused.value)


def test_nodes_on_the_cpu_are_found_with_the_sessions_own_operators(tmp_path: Path) -> None:
    path, library = model_and_library(tmp_path)
    spec = policies.describe(str(path), ort_library=library, action="action")
    assert ort_session.cpu_nodes(spec, {"ort_library": library}, str(path), []) != []


def test_the_guard_is_found_in_torchs_report() -> None:
    report = "Recompiling function f in x.py:1\n    triggered by the following guard failure(s):\n    - 0/0: tensor 'x' size mismatch"
    assert guard(report) == "0/0: tensor 'x' size mismatch"


# --- the runner over a work of plain memory -----------------------------------------------------------------------------


class MemoryWork:
    """Doubles its input and counts what happens; a `lazy` one answers nothing."""

    def __init__(self, *, lazy: bool = False) -> None:
        self.staged = [np.zeros((1, 48), np.float32)]
        self.answers = [np.zeros((1, 12), np.float32)]
        self.lazy, self.log, self.marked = lazy, [], False
        self.launch, self.wait, self.busy = self._launch, (lambda: self.log.append("wait")), (lambda: False)

    def _launch(self) -> None:
        self.log.append("launch")
        if not self.lazy:
            self.answers[0][...] = 2 * self.staged[0][:, :12]

    def _launch_marked(self) -> None:
        self.log.append("marked")
        self._launch()

    def mark_phases(self, on: bool) -> None:
        self.launch = self._launch_marked if on else self._launch

    def device_ns(self) -> int:
        return -1

    def phases_ns(self) -> tuple[int, int, int]:
        return 1, 2, 3

    def rehearse(self) -> None: ...

    def poison(self) -> None:
        self.log.append("poison")

    def reset(self) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def counters(self) -> dict[str, int]:
        return {}

    reasons = examine = facts = counters

    def close(self) -> None:
        self.log.append("close")


def test_the_runner_keeps_the_contract() -> None:
    work = MemoryWork()
    runner = QueuedRunner(policies.describe("mlp"), work)
    assert isinstance(runner, DeviceRunner) and isinstance(runner, PhasedRunner)
    as_runner: Runner = runner
    observation = [np.ones((1, 48), np.float32)]
    assert as_runner.step(observation)[0][0, 0] == 2
    runner.enqueue(observation)
    assert runner.finish()[0] is work.answers[0]
    runner.mark_phases(True)
    runner.launch()
    runner.mark_phases(False)
    runner.launch()
    assert work.log.count("marked") == 1
    runner.close()
    assert work.log[-1] == "close"


def test_a_step_that_writes_nothing_is_seen_by_the_gate() -> None:
    spec = policies.describe("mlp")
    observations = open_observations(spec)
    assert check_outputs(QueuedRunner(spec, MemoryWork()), observations) is None
    reason = check_outputs(QueuedRunner(spec, MemoryWork(lazy=True)), observations)
    assert reason is not None and "not finite" in reason


def test_poison_reaches_every_dtype() -> None:
    from robot_perf.backends.gpu.runner import poison_array

    for dtype in ("float16", "float32", "float64", "int32", "int64", "uint8", "bool"):
        array = np.zeros((2, 3), dtype)
        poison_array(array)
        assert np.isnan(array).all() if array.dtype.kind == "f" else array.all()


# --- NVTX ---------------------------------------------------------------------------------------------------------------


def test_ranges_exist_only_where_a_profiler_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in nvtx.INJECTIONS:
        monkeypatch.delenv(name, raising=False)
    assert not nvtx.listening() and nvtx.ranges() is None
    assert nvtx.within("policy", print) is print
    monkeypatch.setenv(nvtx.INJECTIONS[0], "/nowhere/libinjection.so")
    assert nvtx.listening()
    seen: list[str] = []
    monkeypatch.setattr(nvtx, "ranges", lambda: nvtx.Ranges(seen.append, lambda: seen.append("end")))
    nvtx.within("policy", lambda: seen.append("call"))()
    assert seen == ["policy", "call", "end"]


def test_a_step_carries_ranges_by_name_and_none_without_a_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    from robot_perf.measure import step as steps

    class Rows:
        def begin(self, *_: int) -> None: ...
        def finish(self, *_: int) -> None: ...

    class Tick:
        def now(self) -> int:
            return 1

    spec = policies.describe("mlp")
    seen: list[str] = []
    ranges = nvtx.Ranges(seen.append, lambda: seen.append("end"))
    arguments = (open_observations(spec), Rows(), Tick(), steps.OutputWatch(0, spec.outputs[0]))
    steps.make_step(QueuedRunner(spec, MemoryWork()), *arguments)(0, 0, 0)  # type: ignore[arg-type]
    assert seen == []
    monkeypatch.setattr(nvtx, "ranges", lambda: ranges)
    steps.make_step(QueuedRunner(spec, MemoryWork()), *arguments)(0, 0, 0)  # type: ignore[arg-type]
    assert seen == ["step", "host prepare", "end", "host finish", "end", "end"]


def test_phase_rows_follow_their_columns() -> None:
    from robot_perf.measure.step import PHASE_COLUMNS, phase_step

    class Count:
        at = 0

        def now(self) -> int:
            self.at += 10
            return self.at

    spec, rows = policies.describe("mlp"), []  # type: ignore[var-annotated]
    phase_step(QueuedRunner(spec, MemoryWork()), open_observations(spec), Count(), rows)(0, 0, 0)  # type: ignore[arg-type]
    assert rows == [(10, 10, 10, 10, 1, 2, 3)] and len(PHASE_COLUMNS) == len(rows[0])


@pytest.mark.parametrize("policy", ["mlp", "two inputs"])
def test_calls_that_were_taken_before_follow_the_marks_and_find_nothing_once_closed(policy: str) -> None:
    work = MemoryWork()
    if policy == "two inputs":
        work.staged.append(np.zeros((1, 3), np.float32))
    runner = QueuedRunner(policies.describe("mlp"), work)
    prepare, enqueue, finish = runner.prepare, runner.enqueue, runner.finish
    observation = [np.ones(a.shape, np.float32) for a in work.staged]
    runner.mark_phases(True)
    enqueue(observation)
    assert work.log == ["marked", "launch"] and [a.sum() for a in work.staged] == [a.size for a in work.staged]
    places = list(work.staged)
    runner.close()
    for place in places:
        place[...] = 0
    for call in (lambda: prepare(observation), lambda: enqueue(observation), finish, runner.launch, runner.wait):
        with pytest.raises(RuntimeError, match="the runner is closed"):
            call()
    assert not any(p.any() for p in places) and work.log[-1] == "close"
