"""`profile` on a GPU: torch's profiler (CUPTI) on eager, compiled and captured policies, from the command line to the diagnosis.

Each profile runs in a process of its own: CUPTI and the policy's stream belong to a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_perf.analyze.diagnose.work import devices_of
from robot_perf.analyze.prediction.matching import matching_per_step
from robot_perf.profiles import load
from robot_perf.profiles.model import GRAPH_LAUNCH, KERNEL, LAUNCH, MEMCPY

pytestmark = pytest.mark.gpu
STEPS = 40
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def cuda() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def robot_perf(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "robot_perf.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("backend", ["eager", "compile", "cuda_graph"])
def test_a_profile_of_each_torch_backend(tmp_path: Path, backend: str) -> None:
    trace = tmp_path / "t.json.gz"
    code, out, err = robot_perf(
        "profile", "mlp", "--rate", "50", "--steps", str(STEPS), "--backend", backend, "--device", "cuda:0", "-o", str(trace), "--json"
    )  # fmt: skip
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    ran = document["run"]["steps"]
    # a machine that others share may skip a release; a profile of a few steps would be no profile
    assert ran >= STEPS // 2 and document["primary"] != "can't answer"

    profile = load(trace)
    work = devices_of(profile)[0]
    kernels = profile.kernels["kind"] == KERNEL
    names = [profile.ranges.strings[n] for n in profile.ranges["name"].tolist()]
    assert names.count("policy_step") == names.count("enqueue") == names.count("wait") == ran
    assert profile.kernel_count and profile.kernel_count % ran == 0, "the same kernels in every step"
    assert (profile.kernels["api"][kernels] >= 0).all(), "each kernel knows its launch"
    copies = profile.kernels["kind"] == MEMCPY
    assert sorted(np.unique(profile.kernels["copy"][copies]).tolist()) == [0, 1], "observation up, action down"
    assert (profile.kernels["host_mem"][copies] == 1).all(), "from and to pinned memory"

    calls = profile.apis["kind"][profile.kernels["api"][kernels]]
    if backend == "cuda_graph":
        assert (calls == GRAPH_LAUNCH).all() and int((profile.apis["kind"] == GRAPH_LAUNCH).sum()) == ran
        assert np.bincount(work.call[work.ops["kind"] == KERNEL]).max() == profile.kernel_count // ran
    else:
        assert (calls == LAUNCH).all() and not (profile.apis["kind"] == GRAPH_LAUNCH).any()
    assert matching_per_step(profile, ".").per_step == profile.kernel_count // ran

    exported = tmp_path / "viewer.json"
    code, out, err = robot_perf("diagnose", str(trace), "--rate", "50", "--trace", str(exported), "--json")
    assert code == 0, err
    again = load(exported)
    assert again.kernel_count == profile.kernel_count and json.loads(out)["primary"] == document["primary"]
    events = json.loads(exported.read_text())["traceEvents"]
    assert sum(e.get("cat") == "robot_perf_step" for e in events) == ran


def test_the_ncu_line_asks_for_whole_steps_of_that_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.json.gz"
    common = ("profile", "mlp", "--rate", "50", "--backend", "eager", "--device", "cuda:0")
    code, _, err = robot_perf(*common, "--steps", "20", "-o", str(trace))
    assert code == 0, err
    code, out, err = robot_perf(
        *common, "--ncu", "--kernels", ".", "--trace", str(trace), "--skip-steps", "4", "--profile-steps", "2", "--json"
    )
    assert code == 0, err
    document = json.loads(out)
    per_step = matching_per_step(load(trace), ".").per_step
    assert (document["skip"], document["count"]) == (4 * per_step, 2 * per_step)
