"""A transition's outcome from whatever its work does: rclpy swallows an exception in a transition's callback."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from robot_perf.errors import RobotPerfError
from robot_perf.nodes.ros import TransitionCallbackReturn


def guarded(node: Any, name: str, work: Callable[[], Any], undo: Callable[[], None] | None) -> Any:
    """What `work` returns (None: SUCCESS); FAILURE for a RobotPerfError, ERROR for anything else, logged, and undone."""
    result = TransitionCallbackReturn
    try:
        outcome = work()
        return result.SUCCESS if outcome is None else outcome
    except RobotPerfError as error:
        node.get_logger().error(f"{name} failed: {error.one_line}")
        outcome = result.FAILURE
    except Exception:  # noqa: BLE001 - the transition's caller sees only ERROR: the traceback is logged here
        node.get_logger().error(f"{name} raised:\n{traceback.format_exc()}")
        outcome = result.ERROR
    if undo is not None:
        try:
            undo()
        except Exception:  # noqa: BLE001 - as above
            node.get_logger().error(f"undoing {name} raised:\n{traceback.format_exc()}")
            outcome = result.ERROR
    return outcome
