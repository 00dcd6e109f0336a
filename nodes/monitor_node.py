"""The executable `monitor_node`: watches a pair of topics of a running robot from outside, whoever publishes them.

    ros2 run robot_perf monitor_node --ros-args -p output_topic:=/joint_trajectory -p input_topic:=/joint_states -p rate:=50

Messages stay serialised: only their arrival is stamped and, for `match:=stamp`, their header's first eight bytes are read. An observer
in Python distorts what it sees: its own cost per message is part of every report.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.measure.node.bench_parameters import MONITOR_PARAMETERS
from robot_perf.measure.node.parameters import missing
from robot_perf.measure.node.watching import OwnCost, Watched, own_cost
from robot_perf.nodes import reporting, ros
from robot_perf.nodes.endpoints import subscription_events
from robot_perf.nodes.ros import Node
from robot_perf.nodes.serving import serve
from robot_perf.tasks.node import monitoring  # here, not when asked: an import of a second would stand between arrivals

TABLE = MONITOR_PARAMETERS
# The middleware's own threads hand over what waited, on a busy machine late; a look may find a timer instead of a message.
_DRAIN_S, _LOOK_S, _IDLE_LOOKS = 2.0, 0.02, 25
_EVENTS = {"matched": "publishers that come and go", "message_lost": "lost messages", "deadline": "missed deadlines"}


class MonitorNode(Node):  # type: ignore[misc]
    """Subscribes once the types are known, publishes diagnostics at 1 Hz, answers `~/report`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("monitor_node", **kwargs)
        problems = ros.declare(self, TABLE)
        values = self.values = ros.values_of(self, TABLE)
        problems += missing(TABLE, values, problems)
        if values["match"] == "stamp" and not values["input_topic"]:
            problems.append("parameter match: stamp needs an input_topic.")
        if problems:
            self.destroy_node()
            raise UsageError(" ".join(problems))
        from diagnostic_msgs.msg import DiagnosticArray
        from std_srvs.srv import Trigger

        keep, by_stamp = values["keep"], values["match"] == "stamp"
        self.output = Watched(values["output_topic"], keep, stamps=by_stamp)
        self.input = Watched(values["input_topic"], keep, stamps=by_stamp) if values["input_topic"] else None
        self._waiting: list[tuple[Watched, str]] = [(self.output, values["output_type"])]
        if self.input is not None:
            self._waiting.append((self.input, values["input_type"]))
        self._hardware = reporting.hardware_id()
        self._health = monitoring.Health()
        self._warned = False
        self.begun_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", ros.slow())
        self.create_service(Trigger, "~/report", self._answer)
        ros.steady_timer(self, 0.2, self._subscribe)
        ros.steady_timer(self, 1.0, self._diagnose)
        self._subscribe()

    def _subscribe(self) -> None:
        for watched, type_name in list(self._waiting):
            name = type_name or self._type_of(watched.topic)
            if name is None:
                continue
            self._make(watched, name)
            self._waiting.remove((watched, type_name))
            self.get_logger().info(f"watching {watched.topic} [{name}]")

    def _type_of(self, topic: str) -> str | None:
        full = self.resolve_topic_name(topic)
        found: list[str] = next((types for name, types in self.get_topic_names_and_types() if name == full), [])
        if len(found) > 1:
            raise UsageError(f"{full} has several types: {', '.join(found)}", do="Set output_type or input_type.")
        return found[0] if found else None

    def _make(self, watched: Watched, type_name: str) -> None:
        qos = ros.observer(reliable=self.values["reliable"], depth=self.values["depth"])
        kind = ros.message_type(type_name)
        if self.values["match"] == "stamp" and "header" not in kind.get_fields_and_field_types():
            raise UsageError(
                f"parameter match: stamp, but {watched.topic} [{type_name}] has no header", do="Set match to order."
            )
        wanted = self._events_of(watched)
        if "deadline" in wanted:
            from rclpy.duration import Duration

            qos.deadline = Duration(nanoseconds=round(self.values["deadline_qos_ms"] * 1e6))
        refused = []
        while True:
            try:
                events = subscription_events(watched.topic, self._trouble, **wanted)
                self.create_subscription(kind, watched.topic, watched.arrived, qos, event_callbacks=events, raw=True)
                break
            except ros.unsupported_event_error():  # doesn't say which one: the least needed goes first
                if not wanted:
                    raise
                refused.append(_EVENTS[name := next(iter(wanted))])
                del wanted[name]
                if name == "deadline":
                    qos.deadline = type(qos)(depth=1).deadline
        if refused:
            self.get_logger().warning(
                f"{watched.topic}: no events for {', '.join(refused)} from this middleware; the monitor's own clock is always on"
            )

    def _events_of(self, watched: Watched) -> dict[str, Callable[[Any], None]]:
        """What the middleware is asked to tell of a topic, the least needed first."""

        def matched(info: Any) -> None:
            watched.publishers = info.current_count
            plural = "" if info.current_count == 1 else "s"
            self.get_logger().info(f"{watched.topic}: {info.current_count} publisher{plural}")

        def lost(info: Any) -> None:
            watched.lost = info.total_count

        def deadline(info: Any) -> None:
            watched.deadline_events = info.total_count

        found: dict[str, Callable[[Any], None]] = {"matched": matched, "message_lost": lost}
        if watched is self.output and self.values["deadline_qos_ms"]:
            found["deadline"] = deadline
        return found

    def _trouble(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self.get_logger().warning(text)

    def report(self) -> dict[str, Any]:
        """Everything seen so far as JSON; the statistics are computed here, when asked, not in the callbacks."""
        return monitoring.report(self.output, self.input, self.values, self._own(), time.monotonic_ns())

    def _own(self) -> OwnCost:
        topics = [self.output] if self.input is None else [self.output, self.input]
        return own_cost(topics, time.monotonic_ns() - self.begun_ns, time.process_time_ns() - self._cpu_ns)

    def _answer(self, _request: Any, response: Any) -> Any:
        response.success, response.message = True, json.dumps(self.report())
        return response

    def _diagnose(self) -> None:
        from diagnostic_msgs.msg import DiagnosticArray

        level, text, values = self._health.look(
            self.output, self.input, self.values["rate"], self._own(), time.monotonic_ns()
        )
        name = f"{self.get_name()}: {self.output.topic}"
        array = DiagnosticArray()
        array.header.stamp = self.get_clock().now().to_msg()
        array.status = [reporting.status(level, name, text, values, self._hardware)]
        self._diagnostics.publish(array)

    def over(self, now_s: float) -> bool:
        """Whether `duration_s` has passed."""
        limit_s = self.values["duration_s"]
        return bool(limit_s) and now_s >= self.begun_ns / 1e9 + limit_s

    def _take_what_waits(self) -> None:
        """What arrived before the end still counts; a robot that publishes on doesn't keep its observer."""
        topics = [t for t in (self.output, self.input) if t is not None]
        until, idle = time.monotonic() + _DRAIN_S, 0
        while ros.rclpy.ok() and idle < _IDLE_LOOKS and time.monotonic() < until:
            before = sum(t.received for t in topics)
            self.executor.spin_once(timeout_sec=_LOOK_S)
            idle = 0 if sum(t.received for t in topics) > before else idle + 1

    def end(self) -> None:
        """Writes the report where asked and prints the verdict with the monitor's own cost."""
        self._take_what_waits()
        document = self.report()
        if path := self.values["output_file"]:
            Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        ros.say(f"monitor_node: {monitoring.last_words(document)}")


def main(args: list[str] | None = None) -> int:
    """The executable."""
    return serve("monitor_node", MonitorNode, TABLE, args)


if __name__ == "__main__":
    sys.exit(main())
