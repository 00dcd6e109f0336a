"""Every test here runs nodes on a real rclpy; without one it is skipped with the reason."""

from __future__ import annotations

import signal
import warnings

import pytest


def pytest_collection_modifyitems(config, items):
    """The longer variants run when asked for: `pytest tests/nodes -m slow`, or `-m "slow or not slow"` for all."""
    if "slow" in (config.getoption("-m") or ""):
        return
    for item in items:
        if item.path.parent.name == "nodes" and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="longer variant: run with -m slow"))


@pytest.fixture(scope="session")
def _rclpy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ROS's own parser imports sre_parse, which Python deprecated
        pytest.importorskip(
            "rosidl_generator_py",
            reason="rclpy is not installed: pip install 'robot_perf[ros]' (x86-64), or a ROS 2 distribution",
        )
    return pytest.importorskip(
        "rclpy", reason="rclpy is not installed: pip install 'robot_perf[ros]' (x86-64), or a ROS 2 distribution"
    )


@pytest.fixture
def start(_rclpy, tmp_path):
    """`start(module, **parameters)` runs a node; all of them end with the test."""
    from ros_bench import Process

    begun = []

    def run(module, name="", remap=(), **parameters):
        process = Process(tmp_path, module, {k.replace("__", "."): v for k, v in parameters.items()}, name, remap)
        begun.append(process)
        return process

    yield run
    for process in begun:
        if process.process.poll() is None:
            process.process.send_signal(signal.SIGKILL)
            process.process.wait(10)


@pytest.fixture
def driver(_rclpy):
    from ros_bench import Driver

    made = Driver()
    yield made
    made.close()
