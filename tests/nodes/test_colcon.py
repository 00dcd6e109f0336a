"""colcon build in a workspace of its own, with and without --symlink-install: everything lies where ROS looks for it."""

from __future__ import annotations

import importlib.util
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


@pytest.mark.parametrize("how", [[], ["--symlink-install"]], ids=["copied", "linked"])
def test_the_installed_tree(tmp_path, how):
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "src" / "robot_perf")], check=True)
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "COLCON_IGNORE").touch()
    (tmp_path / "venv" / "setup.py").write_text("raise SystemExit('colcon must not look in here')")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    built = subprocess.run(
        [sys.executable, "-m", "colcon", "build", *how],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
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
    shell = f". {tmp_path}/install/setup.sh && export PATH={Path(sys.executable).parent}:$PATH && {prefix}/lib/robot_perf/robot-perf --help"
    helped = subprocess.run(
        ["sh", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert helped.returncode == 0, helped.stderr
    assert "deadline" in helped.stdout
