"""How the policy node ends: what a signal does to it, from the first moment to the last, and the exit code."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, NoReturn

from robot_perf.errors import ExitCode
from robot_perf.nodes import ros

_SILENT_S = 1.0


class Signals:
    """SIGINT and SIGTERM raise KeyboardInterrupt in the main thread; `why` names the first one.

    Made before rclpy's init, whose handlers shut the context down and call these.
    """

    def __init__(self) -> None:
        self.why = ""
        self._ending: Any = None
        self._hear()

    def _hear(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._told)

    def during_end_of(self, node: Any) -> None:
        """From now on the node ends: another SIGINT cuts that short, another SIGTERM only the wait for a load.

        `ros2 launch` follows its SIGINT with a SIGTERM after 5 s: what is freed and saved by then goes on.
        """
        self._ending = node
        self._hear()  # the polled place had handlers of its own

    def _told(self, number: int, _frame: Any) -> None:
        self.why = self.why or f"interrupted by {signal.Signals(number).name}"
        if number == signal.SIGINT or self._ending is None or _loads(self._ending):
            raise KeyboardInterrupt


def _loads(node: Any) -> bool:
    return node.activity is not None and bool(node.activity.doing)


def end(node: Any, why: str) -> int:
    """Stops, saves, frees, waits for the keeper. The exit code of the worst block; one cut short, or a load, counts only if alone."""
    cut_short = node.activity is not None and node.activity.active
    cut_load = _loads(node)
    if cut_load:
        _end_load(node.activity, why)
    node.stop_and_release(why)
    if node.link is not None:
        if node.link.close(30.0) is None:
            ros.say(f"policy_node: the keeper (process {node.link.pid}) still saves; it ends on its own")
        for event in node.link.events():
            if event["event"] == "block":
                node.statuses.append(event["status"])
                ros.say(f"policy_node: {node.teller.block_line(event)}")
            elif event["event"] == "trouble":
                ros.say(f"policy_node: {event['what']}")
    counted = node.statuses[:-1] if cut_short and len(node.statuses) > 1 else node.statuses
    if cut_load and not counted:
        counted = ["INVALID"]  # it was to measure, and has measured nothing
    worst = next((s for s in ("INVALID", "FAIL", "INCONCLUSIVE") if s in counted), "PASS")
    return int(ExitCode[worst])


def _end_load(activity: Any, why: str) -> None:
    ros.say(f"policy_node: {why} while {activity.doing}")
    said, begin = False, time.monotonic()

    def waiting() -> None:
        nonlocal said
        if not said and time.monotonic() - begin > _SILENT_S:
            said = True
            ros.say(
                "policy_node: waiting for it to return: a call into a library can't be interrupted; a second signal ends the process"
            )

    activity.interrupt(waiting)


def at_once() -> NoReturn:
    """Waits for nothing any more: a thread inside a library may outlast the interpreter, and crash in its end."""
    ros.say("policy_node: a signal ended it while it was ending; the keeper saves what there is")
    os._exit(int(ExitCode.INVALID))
