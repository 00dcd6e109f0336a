"""colcon build in a workspace of its own, with and without --symlink-install: everything lies where ROS looks for it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("colcon_ros") is None,
        reason="colcon is not installed: pip install colcon-core colcon-ros colcon-python-setup-py",
    ),
]


def build(workspace, how):
    """A clone in a workspace of its own; a virtual environment beside it must be left alone."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(workspace / "src" / "robot_perf")], check=True)
    (workspace / "venv").mkdir()
    (workspace / "venv" / "COLCON_IGNORE").touch()
    (workspace / "venv" / "setup.py").write_text("raise SystemExit('colcon must not look in here')")
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    words = [sys.executable, "-m", "colcon", "build", *how]
    built = subprocess.run(words, cwd=workspace, env=kept, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]


@pytest.mark.parametrize("how", [[], ["--symlink-install"]], ids=["copied", "linked"])
def test_the_installed_tree(tmp_path, how):
    build(tmp_path, how)
    prefix = tmp_path / "install" / "robot_perf"
    share = prefix / "share" / "robot_perf"
    assert (prefix / "share" / "ament_index" / "resource_index" / "packages" / "robot_perf").is_file()
    assert (share / "package.xml").is_file()
    for name in ("launch", "configs/nodes", "configs/devices", "configs/policies"):
        expected = {p.name for p in (ROOT / name).iterdir() if p.suffix in (".py", ".yaml")}
        assert expected == {p.name for p in (share / name).iterdir()}, name
    for name in ("policy_node", "monitor_node", "observation_node", "robot-perf"):
        script = prefix / "lib" / "robot_perf" / name
        assert os.access(script, os.X_OK)
        if not how:
            assert script.read_text().startswith("#!/usr/bin/env python3\n")
    helped = sourced(tmp_path, f"{prefix}/lib/robot_perf/robot-perf --help")
    assert helped.returncode == 0, helped.stderr
    assert "deadline" in helped.stdout


_INDEX = """
import json, sys
from ament_index_python import get_package_prefix, get_package_share_directory
import robot_perf
print(json.dumps([get_package_prefix("robot_perf"), get_package_share_directory("robot_perf"), robot_perf.__file__]))
"""


def sourced(workspace, command):
    """A command in a shell that sourced the workspace, with the environment that ran colcon first on its path."""
    shell = f". {workspace}/install/setup.sh && export PATH={Path(sys.executable).parent}:$PATH && {command}"
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(["sh", "-c", shell], cwd=workspace, env=kept, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("how", [[], ["--symlink-install"]], ids=["copied", "linked"])
def test_ros_finds_it_and_the_installed_nodes_run_by_name(tmp_path, how):
    pytest.importorskip(
        "ament_index_python", reason="ament_index_python is not installed: pip install 'robot_perf[ros]'"
    )
    build(tmp_path, how)
    found = sourced(tmp_path, f"{sys.executable} -c '{_INDEX}'")
    assert found.returncode == 0, found.stderr
    prefix, share, module = map(Path, json.loads(found.stdout))
    assert prefix == tmp_path / "install" / "robot_perf"
    assert (share / "launch" / "policy.launch.py").is_file()
    assert tmp_path in module.parents  # not the checkout that the test runs from
    # What `ros2 run robot_perf NODE` starts is PREFIX/lib/robot_perf/NODE.
    words = "--ros-args -p policy:=null -p rate:=200 -p steps:=200 -p observations:=random -p autostart:=true -p output_dir:=runs"
    ran = sourced(
        tmp_path,
        f"ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST timeout -s INT 15 {prefix}/lib/robot_perf/policy_node {words}",
    )
    assert "block 0: " in ran.stderr + ran.stdout, ran.stderr[-2000:]
    assert list((tmp_path / "runs").glob("*b0000.parquet"))
    for name in ("monitor_node", "observation_node"):
        refused = sourced(tmp_path, f"{prefix}/lib/robot_perf/{name}")
        assert refused.returncode == 2
        assert "is required and not set" in refused.stderr
