"""The executable `policy_node`: runs a policy on live topics at its control rate and says, block by block, whether it keeps its deadline.

    ros2 run robot_perf policy_node --ros-args -p policy:=mlp -p rate:=50 -p autostart:=true

The node is a worker like that of the command line: `robot_perf.measure.step` makes the step, a step map takes the rows. Its keeper,
a process of its own, computes every figure and saves the Runs.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from robot_perf.errors import ExitCode, RobotPerfError
from robot_perf.measure.node.parameters import PARAMETERS
from robot_perf.measure.node.thread import OnlyThread
from robot_perf.nodes import ros
from robot_perf.nodes.ending import Signals, at_once
from robot_perf.nodes.policy import PolicyNode

__all__ = ["PolicyNode", "main"]


def main(args: list[str] | None = None) -> int:
    """The executable `policy_node`."""
    if ros.asked_for_help("policy_node", PARAMETERS, args):
        return int(ExitCode.PASS)
    try:
        ros.require()
    except RobotPerfError as error:
        ros.say(f"policy_node: {error}")
        return int(ExitCode.USAGE)
    from rclpy.executors import ExternalShutdownException

    signals = Signals()
    node: PolicyNode | None = None
    code = int(ExitCode.USAGE)
    why = "the ROS context was shut down"
    try:
        ros.rclpy.init(args=args)
        node = PolicyNode()
        kind = ros.values_of(node)["executor"]
        executor = ros.make_executor(str(kind))
        executor.add_node(node)
        node.executor_baseline_ns = spin_once_ns(executor)
        if node.get_parameter("autostart").value:
            success = ros.TransitionCallbackReturn.SUCCESS
            if node.trigger_configure() != success or node.trigger_activate() != success:
                ros.say("policy_node: autostart failed; the reason is above")
                why = ""
        else:
            name = node.get_fully_qualified_name()
            node.get_logger().info(
                f"unconfigured: ros2 lifecycle set {name} configure, then activate; -p autostart:=true does both"
            )
        if why:
            _serve(node, executor, str(kind))
    except KeyboardInterrupt:
        why = (node and node.interrupted) or signals.why
        code = int(ExitCode.INVALID)
    except ExternalShutdownException:
        pass
    except RobotPerfError as error:
        ros.say(f"policy_node: {error}")
        why = ""
    finally:
        try:
            if node is not None:
                signals.during_end_of(node)
                ended = node.end(why or "not started")
                code = ended if why else code
                node.destroy_node()
            ros.rclpy.try_shutdown()
        except KeyboardInterrupt:
            at_once()
    return code


def _serve(node: PolicyNode, executor: Any, kind: str) -> None:
    """Until the context ends; a signal raises KeyboardInterrupt."""
    if node.get_parameter("place").value != "polled":
        ros.spin(executor, kind)
        return
    _tell_of_signals(node)
    while ros.rclpy.ok():
        activity = node.activity
        if activity is not None and isinstance(activity.place, OnlyThread) and activity.place.run_pending():
            if node.interrupted:
                raise KeyboardInterrupt
            if ros.rclpy.ok():
                node.settle()
        else:
            executor.spin_once(timeout_sec=0.1)


def _tell_of_signals(node: PolicyNode) -> None:
    """The polled loop runs in the thread that signals interrupt: the first one stops it between two steps. Elsewhere, and again, they raise."""

    def told(number: int, _frame: Any) -> None:
        again = node.interrupted is not None
        node.interrupt(f"interrupted by {signal.Signals(number).name}")
        if again or node.activity is None or not node.activity.active:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, told)
    signal.signal(signal.SIGTERM, told)


def spin_once_ns(executor: Any, repeats: int = 100) -> int:
    """Median cost of an empty look at the executor, ns: what the polled place pays in each step."""
    lengths = []
    for _ in range(repeats):
        begin = time.monotonic_ns()
        executor.spin_once(timeout_sec=0)
        lengths.append(time.monotonic_ns() - begin)
    return sorted(lengths)[repeats // 2]


if __name__ == "__main__":
    sys.exit(main())
