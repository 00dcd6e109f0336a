"""How the two nodes of a test bench begin and end: the same for the monitor and the stand-in robot."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from robot_perf.errors import ExitCode, RobotPerfError
from robot_perf.measure.node.parameters import Parameter
from robot_perf.nodes import ros

_LOOK_S = 0.2


def serve(name: str, make: Callable[[], Any], table: tuple[Parameter, ...], args: list[str] | None) -> int:
    """Makes a node and spins it until a signal, or until `node.over(now_s)`; then `node.end()`. The exit code of the executable.

    Without rclpy, or with a parameter that is refused, it says so on standard error: exit code 2.
    """
    if ros.asked_for_help(name, table, args):
        return int(ExitCode.PASS)
    node = None
    try:
        ros.require()
        from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
        from rclpy.signals import SignalHandlerOptions
    except RobotPerfError as error:
        ros.say(f"{name}: {error}")
        return int(ExitCode.USAGE)
    # rclpy's own handlers shut the context down at once: what had arrived and was not taken yet could not be taken any more.
    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: stop.append(got))
    ros.rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = make()
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        while ros.rclpy.ok() and not stop and not node.over(time.monotonic()):
            executor.spin_once(timeout_sec=_LOOK_S)
    except ExternalShutdownException:
        pass
    except RobotPerfError as error:
        ros.say(f"{name}: {error}")
        return int(ExitCode.USAGE)
    finally:
        if node is not None:
            node.end()
        ros.rclpy.try_shutdown()
    return int(ExitCode.PASS)
