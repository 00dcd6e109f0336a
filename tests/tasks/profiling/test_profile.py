"""`profile`: robot-safe command lines, ncu's skip and count, refusals, and a run under torch's profiler."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_profiles import Timeline, steady

from robot_perf.analyze.prediction.matching import matching_per_step
from robot_perf.backends.protocol import DeviceRunner, StagedRunner
from robot_perf.errors import BackendUnavailableError, ProfileError, UsageError
from robot_perf.measure.profiling.marks import marked, profiler_control
from robot_perf.profiles import load
from robot_perf.tasks.profiling.lines import SECTIONS
from robot_perf.tasks.profiling.profile import NcuRequest, check_first_launch, inner_command, ncu, nsys, run_lines

COMMAND = ["python", "-m", "robot_perf.cli", "profile", "mlp", "--rate", "200", "--under-profiler"]


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_every_nsys_line_leaves_the_application_running(seconds: float | None) -> None:
    captures = [x for x in nsys(COMMAND, "out", seconds).lines if "profile" in x.words[1]]
    assert len(captures) == 2, "one for timing, one for attribution"
    for line in captures:
        assert {"--capture-range-end=stop", "--kill=none", "--sample=none", "--cpuctxsw=none"} <= set(line.words)
        assert line.text.startswith("LC_ALL=C nsys profile ")
        assert shlex.split(line.text)[1:] == list(line.words), "the printed line is the line that is run"
    timing, attribution = captures
    assert "--cuda-graph-trace=graph" in timing.words and "cuda,nvtx" in timing.words
    assert "--cuda-graph-trace=node" in attribution.words and "cuda,nvtx,osrt" in attribution.words


def test_the_skip_of_the_reference(shared_dir: Path) -> None:
    """7 kernels a step, 4 match: skip 20 steps and profile 3 is -s 80 -c 12."""
    trace = shared_dir / "profiles" / "kineto_h200_mlp_eager_200hz.json.gz"
    lines = ncu(COMMAND, "out", NcuRequest("gemv", trace, None, 20, 3))
    words = list(lines.lines[0].words)
    assert words[words.index("-s") + 1] == "80" and words[words.index("-c") + 1] == "12"
    assert [words[i + 1] for i, w in enumerate(words) if w == "--section"] == list(SECTIONS)
    assert {"--cache-control", "--clock-control", "--nvtx"} <= set(words) and "regex:gemv" in words
    assert lines.matching is not None and lines.matching.per_step == 4
    assert "--print-units" in lines.lines[1].words and lines.lines[1].stdout == "out.raw.csv"
    assert any("passes" in c for c in lines.costs) and any("no latency" in c for c in lines.costs)


@pytest.mark.parametrize("asked", [NcuRequest(), NcuRequest("gemv"), NcuRequest(None, None, 4), NcuRequest("gemv", None, 4, 20, 0), NcuRequest("gemv", None, 0), NcuRequest("gemv", None, 4, -1)])  # fmt: skip
def test_ncu_without_filter_and_count_is_refused(asked: NcuRequest) -> None:
    with pytest.raises(UsageError):
        ncu(COMMAND, "out", asked)


def test_graph_nodes_count_one_each(shared_dir: Path) -> None:
    from robot_perf.profiles import load

    found = matching_per_step(load(shared_dir / "profiles" / "kineto_h200_mlp_graph_200hz.json.gz"), "gemv")
    assert (found.per_step, found.steps) == (4, 30)


def test_varying_matches_are_refused() -> None:
    t = steady(5)
    t.ops[6]["name"] = t.name("other")
    with pytest.raises(UsageError, match="3 to 4 kernels a step"):
        matching_per_step(t.profile(), "^k$")
    with pytest.raises(UsageError, match="no kernel of a step matches"):
        matching_per_step(t.profile(), "absent")
    with pytest.raises(UsageError, match="marks no steps"):
        t.spans.clear()
        matching_per_step(t.profile(), "k")
    with pytest.raises(UsageError, match="no timeline"):
        matching_per_step(Timeline().profile(), "k")


def test_ncu_is_refused_inside_a_node_and_under_real_time_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rclpy", object())
    with pytest.raises(UsageError, match="inside a ROS node"):
        ncu(COMMAND, "out", NcuRequest("k", None, 4))
    monkeypatch.delitem(sys.modules, "rclpy")
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_FIFO)
    with pytest.raises(UsageError, match="real-time priority"):
        ncu(COMMAND, "out", NcuRequest("k", None, 4))


def test_the_inner_command_is_the_outer_without_the_tool() -> None:
    words = [
        "profile",
        "mlp",
        "--rate",
        "200",
        "--ncu",
        "--kernels",
        "gemv",
        "--skip-steps=4",
        "--trace",
        "t.json",
        "--run",
        "-o",
        "x",
        "--steps",
        "9",
        "-oz",
        "--force",
    ]
    assert inner_command(words)[3:] == ["profile", "mlp", "--rate", "200", "--steps", "9", "--under-profiler"]


@pytest.fixture(autouse=True)
def outside_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have imported rclpy: `profile --ncu` would rightly refuse to run beside a node."""
    monkeypatch.delitem(sys.modules, "rclpy", raising=False)
    monkeypatch.delenv("ROBOT_PERF_IN_NODE", raising=False)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with only what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return folder


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text("#!/bin/sh\n" + script)
    (folder / name).chmod(0o755)


def test_running_without_the_tool_is_one_message(tools: Path) -> None:
    with pytest.raises(ProfileError, match="not on the PATH"):
        run_lines(nsys(COMMAND, "out"))


def test_forbidden_counters_are_explained(tools: Path) -> None:
    tool(tools, "ncu", 'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1\n')
    with pytest.raises(ProfileError, match="SYS_ADMIN"):
        run_lines(ncu(COMMAND, "out", NcuRequest("k", None, 4)))


def test_a_tool_that_fails_or_writes_nothing_is_said_so(tools: Path) -> None:
    tool(tools, "ncu", "echo boom; exit 3\n")
    with pytest.raises(ProfileError, match="exit 3"):
        run_lines(ncu(COMMAND, "out", NcuRequest("k", None, 4)))
    tool(tools, "ncu", 'echo "==WARNING== No kernels were profiled."\n')
    with pytest.raises(ProfileError, match="without a report"):
        run_lines(ncu(COMMAND, "out", NcuRequest("k", None, 4)))


def test_lines_run_in_order_in_the_c_locale(tools: Path, shared_dir: Path) -> None:
    sample = shared_dir / "profiles" / "ncu_h200_raw_base_C.csv"
    tool(
        tools,
        "ncu",
        f'[ "$LC_ALL" = C ] || exit 9\ncase "$*" in *--import*) cat "{sample}";; *--csv*) echo few;; *) touch out.ncu-rep;; esac\n',
    )
    lines = ncu(COMMAND, "out", NcuRequest("k", None, 4))
    assert run_lines(lines) == ["out.raw.csv", "out.few.csv"]
    with pytest.raises(UsageError, match=r"out\.ncu-rep exists"):
        run_lines(lines)
    assert run_lines(lines, force=True) == ["out.raw.csv", "out.few.csv"]


def test_a_wrong_first_launch_cant_answer(shared_dir: Path) -> None:
    trace = shared_dir / "profiles" / "kineto_h200_mlp_eager_200hz.json.gz"
    lines = ncu(COMMAND, "out", NcuRequest("elu_kernel", trace))
    assert lines.matching is not None
    wrong = check_first_launch(lines.matching, shared_dir / "profiles" / "ncu_h200_raw_base_C.csv")
    assert wrong is not None and "wrong kernel matched" in wrong


def test_a_first_launch_is_known_without_the_namespaces_that_ncu_drops() -> None:
    reports = Path(__file__).resolve().parents[3] / "reports" / "nvidia-h200" / "diagnose"
    for name, kernels in (("launch_bound", "gemv"), ("transfer_bound", "reduce_kernel"), ("memory_bound", "nvjet")):
        matching = matching_per_step(load(reports / f"{name}.json.gz"), kernels)
        assert check_first_launch(matching, reports / f"{name}.ncu.csv") is None
        assert check_first_launch(replace(matching, grid=(999, 1, 1)), reports / f"{name}.ncu.csv") is not None


def test_a_stale_report_is_never_taken_for_a_new_one(tools: Path) -> None:
    tool(tools, "nsys", "exit 0\n")
    Path("out-timing.nsys-rep").touch()
    with pytest.raises(UsageError, match=r"out-timing\.nsys-rep exists"):
        run_lines(nsys(COMMAND, "out"))
    with pytest.raises(ProfileError, match="without a report"):
        run_lines(nsys(COMMAND, "out"), force=True)


class Marks:
    """Records ranges as they open and close."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __call__(self, name: str) -> Any:
        marks = self

        class Range:
            def __enter__(self) -> None:
                marks.log.append(f"<{name}")

            def __exit__(self, *_: object) -> None:
                marks.log.append(f"{name}>")

        return Range()


class Plain:
    spec = None

    def step(self, observation: Any) -> list[Any]:
        return [observation]

    def reset(self) -> None: ...
    def counters(self) -> dict[str, int]:
        return {}

    def facts(self) -> dict[str, Any]:
        return {}

    def close(self) -> None: ...


class Device(Plain):
    def enqueue(self, observation: Any) -> None: ...
    def finish(self) -> list[Any]:
        return [1]

    def device_ns(self) -> int:
        return -1

    def pending(self) -> bool:
        return False


class Staged(Plain):
    stage_names = ("see", "act")

    def run_stage(self, index: int, observation: Any) -> None: ...
    def outputs(self) -> list[Any]:
        return [2]


def test_steps_and_phases_are_marked_for_each_kind_of_runner() -> None:
    marks = Marks()
    runner: Any = marked(Plain(), marks)  # type: ignore[arg-type]
    assert runner.step(5) == [5] and marks.log == ["<policy_step", "policy_step>"]
    marks = Marks()
    device: Any = marked(Device(), marks)  # type: ignore[arg-type]
    assert isinstance(device, DeviceRunner) and not isinstance(device, StagedRunner)
    device.enqueue(0)
    assert device.finish() == [1]
    assert marks.log == ["<policy_step", "<enqueue", "enqueue>", "<wait", "wait>", "policy_step>"]
    marks = Marks()
    staged: Any = marked(Staged(), marks)  # type: ignore[arg-type]
    assert isinstance(staged, StagedRunner)
    staged.run_stage(0, 0)
    staged.run_stage(1, 0)
    assert marks.log == ["<policy_step", "<see", "see>", "<act", "act>", "policy_step>"]


def test_without_a_driver_nsys_has_nothing_to_record() -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("a CUDA driver is here")
    with pytest.raises(BackendUnavailableError, match="no CUDA driver"):
        profiler_control("cuProfilerStart")


def test_marked_steps_run_between_start_and_stop() -> None:
    from robot_perf.measure.profiling.run import run_marked
    from robot_perf.tasks.deadline import DeadlineRequest
    from robot_perf.tasks.profiling.profile import order_of

    marks, control = Marks(), []
    facts = run_marked(order_of(DeadlineRequest("mlp", "500", steps=4, backend="python")), control.append, marks)
    assert control == ["cuProfilerStart", "cuProfilerStop"]
    assert marks.log == ["<policy_step", "policy_step>"] * 4 and facts["steps"] == 4


def test_a_run_under_torchs_profiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("the CPU's trace is looked at here")
    from robot_perf.cli.__main__ import main

    trace = tmp_path / "t.json.gz"
    try:
        main(["profile", "mlp", "--rate", "200", "--steps", "30", "-o", str(trace), "--json"])
    except SystemExit as end:
        assert not end.code
    document = json.loads(capsys.readouterr().out)
    ran = document["run"]["steps"]
    assert document["primary"] == "can't answer" and ran + document["run"]["skipped_releases"] == 30 and ran > 3
    import gzip

    text = gzip.decompress(trace.read_bytes())
    assert b"host_name" not in text and b"traceName" not in text and text.count(b'"policy_step"') == ran
    from robot_perf.cli.profile import _summary

    _summary(trace, "200", {"notes": []}, json=False, on_cpu=True)
    assert "with --device cuda:0 the trace has its kernels too" in capsys.readouterr().out


def test_identities_are_taken_out_of_a_trace(tmp_path: Path) -> None:
    from robot_perf.measure.profiling.run import remove_identity

    path = tmp_path / "t.json"
    path.write_text(
        '{"schemaVersion": 1,\n "host_name": "secret \\" host",\n "username" : "me", "traceEvents": [{"name": "host_name", "ph": "M"}], "traceName": "/home/me/t.json" }\n'
    )
    remove_identity(path)
    assert json.loads(path.read_text()) == {"schemaVersion": 1, "traceEvents": [{"name": "host_name", "ph": "M"}]}


def test_the_arrays_of_a_made_profile_are_int64() -> None:
    assert steady().profile().kernels["start_ns"].dtype == np.int64


def test_a_profile_needs_no_place_for_a_run(monkeypatch):
    """It saves none: in a read-only folder it was refused, and told to name another with the -o that it had."""
    from robot_perf.tasks.deadline import DeadlineRequest
    from robot_perf.tasks.profiling.profile import order_of

    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert order_of(DeadlineRequest("mlp", "500", steps=4)).loop.steps == 4
