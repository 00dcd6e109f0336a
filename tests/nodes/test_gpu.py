"""The policy node with a captured CUDA graph: cleanup gives the device's memory back, cycle after cycle."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from gpu_here import need_torch
from ros_bench import environment

_CYCLES = """
import json, time
import rclpy, torch
from rclpy.executors import SingleThreadedExecutor
from robot_perf.nodes.policy_node import PolicyNode
rclpy.init(args=["--ros-args", "-p", "policy:=mlp", "-p", "backend:=cuda_graph", "-p", "device:=cuda:0", "-p", "rate:=200",
                 "-p", "observations:=random", "-p", "steps:=400", "-p", "warmup_max:=60"])
node = PolicyNode()
executor = SingleThreadedExecutor()
executor.add_node(node)
def device():
    free, total = torch.cuda.mem_get_info(0)
    return {"allocated": torch.cuda.memory_allocated(0), "reserved": torch.cuda.memory_reserved(0), "used": total - free}
seen = []
for cycle in range(6):
    row = {}
    for step in ("configure", "activate", "deactivate", "cleanup"):
        outcome = getattr(node, "trigger_" + step)()
        assert outcome.name == "SUCCESS", (cycle, step, outcome)
        until = time.monotonic() + (0.5 if step == "activate" else 0.02)
        while time.monotonic() < until:
            executor.spin_once(timeout_sec=0.01)
        row[step] = device()
    seen.append(row)
node.end("done")
node.destroy_node()
rclpy.try_shutdown()
print(json.dumps(seen))
"""


@pytest.mark.gpu
@pytest.mark.ros
@need_torch
def test_cleanup_frees_device_memory(_rclpy, tmp_path):
    words = [sys.executable, "-c", _CYCLES]
    done = subprocess.run(
        words, check=False, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps([{step: row[step] for step in ("configure", "cleanup")} for row in seen]))
    # cuBLAS keeps its workspace and CUDA its context: what the first cleanup leaves is the floor of the others.
    floor = seen[0]["cleanup"]
    for row in seen[1:]:
        assert row["cleanup"]["allocated"] <= floor["allocated"], seen
        assert row["cleanup"]["reserved"] <= floor["reserved"], seen
        # What the whole device has in use: tests beside this one would be counted in.
        if "PYTEST_XDIST_WORKER" not in os.environ:
            assert row["cleanup"]["used"] <= floor["used"] + 4 * 2**20, seen
    assert all(row["cleanup"]["reserved"] < row["activate"]["reserved"] for row in seen), seen
