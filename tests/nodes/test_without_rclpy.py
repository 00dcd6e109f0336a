"""Without rclpy the executables say how to get it, for the processor they run on; nothing else needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = """
import sys, platform
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "rclpy":
            raise ModuleNotFoundError("No module named 'rclpy'", name=name)
sys.meta_path.insert(0, Block())
platform.machine = lambda: sys.argv[2]
import importlib
sys.exit(importlib.import_module("robot_perf.nodes." + sys.argv[1]).main([]))
"""


@pytest.mark.parametrize("node", ["policy_node", "monitor_node", "observation_node"])
def test_help_lists_the_parameters_without_rclpy(node):
    """It began the node, and printed nothing."""
    code = _BLOCK.replace("main([])", "main(['--help'])")
    done = subprocess.run(
        [sys.executable, "-c", code, node, "x86_64"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{node} --ros-args -p NAME:=VALUE")
    assert "\n  rate\n" in done.stdout


@pytest.mark.parametrize("node", ["policy_node", "monitor_node", "observation_node"])
@pytest.mark.parametrize(
    ("machine", "words", "never"),
    [("x86_64", "robot_perf[ros]", "no x86_64 wheel"), ("aarch64", "There is no aarch64 wheel", "pip install")],
)
def test_the_message_fits_the_processor(node, machine, words, never):
    done = subprocess.run(
        [sys.executable, "-c", _BLOCK, node, machine],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"{node}: this node needs rclpy")
    assert words in done.stderr
    assert never not in done.stderr
    assert "apt" in done.stderr
    assert "Traceback" not in done.stderr
