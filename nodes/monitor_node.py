"""The executable `monitor_node`: watches a pair of topics of a running robot from outside, whoever publishes them.

    ros2 run robot_perf monitor_node --ros-args -p output_topic:=/joint_trajectory -p input_topic:=/joint_states -p rate:=50

Messages stay serialised: only their arrival is stamped and, for `match:=stamp`, their header's first eight bytes are read. An observer
in Python distorts what it sees: its own cost per message is part of every report.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf.errors import ExitCode, RobotPerfError, UsageError
from robot_perf.measure.node.bench_parameters import MONITOR_PARAMETERS
from robot_perf.nodes import reporting, ros
from robot_perf.nodes.endpoints import subscription_events
from robot_perf.nodes.ros import Node
from robot_perf.specs import to_json

TABLE = MONITOR_PARAMETERS
_STAMPS = (struct.Struct(">iI"), struct.Struct("<iI"))


class Watched:
    """Arrivals of one topic: monotonic stamps at callback entry and, where asked for, header stamps."""

    def __init__(self, topic: str, keep: int, *, stamps: bool) -> None:
        self.topic = topic
        self.received = 0
        self.arrivals: deque[int] = deque(maxlen=keep)
        self.stamps: deque[int] = deque(maxlen=keep)
        self.own_ns = 0
        self.deadline_events = 0
        self._read_stamp = stamps

    def arrived(self, data: bytes) -> None:
        """One serialised message."""
        entry = time.monotonic_ns()
        self.received += 1
        self.arrivals.append(entry)
        if self._read_stamp:
            self.stamps.append(header_stamp_ns(data))
        self.own_ns += time.monotonic_ns() - entry


def header_stamp_ns(data: bytes) -> int:
    """The stamp of a serialised message that begins with a Header: CDR, 4 bytes of encapsulation, then seconds and nanoseconds."""
    seconds, nanoseconds = _STAMPS[data[1] & 1].unpack_from(data, 4)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


class MonitorNode(Node):  # type: ignore[misc]
    """Subscribes once the types are known, publishes diagnostics at 1 Hz, answers `~/report`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("monitor_node", **kwargs)
        problems = ros.declare(self, TABLE)
        values = self.values = ros.values_of(self, TABLE)
        if not values["output_topic"]:
            problems.append("parameter output_topic is required and not set.")
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
        deadline: Callable[[Any], None] | None = None
        if watched is self.output and self.values["deadline_qos_ms"]:
            from rclpy.duration import Duration

            qos.deadline = Duration(nanoseconds=round(self.values["deadline_qos_ms"] * 1e6))

            def deadline(info: Any) -> None:
                watched.deadline_events = info.total_count

        try:
            events = subscription_events(watched.topic, self._trouble, deadline)
            self.create_subscription(kind, watched.topic, watched.arrived, qos, event_callbacks=events, raw=True)
        except ros.unsupported_event_error():
            self.get_logger().warning(
                f"{watched.topic}: this middleware has no deadline events; the monitor's own clock is always on"
            )
            qos.deadline = type(qos)(depth=1).deadline
            self.create_subscription(kind, watched.topic, watched.arrived, qos, raw=True)

    def _trouble(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self.get_logger().warning(text)

    def report(self) -> dict[str, Any]:
        """Everything seen so far as JSON; the statistics are computed here, when asked, not in the callbacks."""
        from robot_perf.analyze import arrivals

        v = self.values
        outputs = np.array(self.output.arrivals, dtype=np.int64)
        period = round(1e9 / v["rate"]) if v["rate"] else None
        seen = arrivals.view(
            outputs,
            period_ns=period,
            releases=v["releases"] or None,
            miss_rate=v["miss_rate"],
            confidence=v["confidence"],
        )
        document: dict[str, Any] = {
            "schema": "robot-perf/monitor-1",
            "output": {
                "topic": self.output.topic,
                "received": self.output.received,
                "deadline_events": self.output.deadline_events,
            },
            "input": None if self.input is None else {"topic": self.input.topic, "received": self.input.received},
            "view": None if seen is None else to_json(seen),
            "age_since_last_output_ns": time.monotonic_ns() - int(outputs[-1]) if len(outputs) else None,
            "latency": self._latency(outputs),
            "own": self._own(),
        }
        return document

    def _latency(self, outputs: Any) -> dict[str, Any] | None:
        if self.input is None or not len(outputs) or not self.input.arrivals:
            return None
        from robot_perf.analyze import arrivals
        from robot_perf.analyze.distribution import distribution

        inputs = np.array(self.input.arrivals, dtype=np.int64)
        if self.values["match"] == "order":
            values, text = (
                arrivals.latency_by_order(inputs, outputs),
                "newest input before each output, at the observer",
            )
        else:
            arrived = dict(zip(self.input.stamps, self.input.arrivals, strict=True))
            pairs = zip(self.output.stamps, self.output.arrivals, strict=True)
            matched = [out - arrived[stamp] for stamp, out in pairs if stamp in arrived]
            values, text = np.array(matched, dtype=np.int64), "equal header stamps, at the observer"
        found: dict[str, Any] = to_json(distribution("input-to-output latency", text, values, np.arange(len(values))))
        return found

    def _own(self) -> dict[str, Any]:
        elapsed = time.monotonic_ns() - self.begun_ns
        messages = self.output.received + (self.input.received if self.input else 0)
        stamping = self.output.own_ns + (self.input.own_ns if self.input else 0)
        cpu = time.process_time_ns() - self._cpu_ns
        return {
            "messages": messages,
            "stamping_ns_per_message": stamping / messages if messages else None,
            "cpu_ns_per_message": cpu / messages if messages else None,
            "cpu_share": cpu / elapsed,
        }

    def _answer(self, _request: Any, response: Any) -> Any:
        response.success, response.message = True, json.dumps(self.report())
        return response

    def _diagnose(self) -> None:
        from diagnostic_msgs.msg import DiagnosticArray

        recent = np.array(
            list(self.output.arrivals)[-1000:]
            if len(self.output.arrivals) < 5000
            else [self.output.arrivals[i] for i in range(-1000, 0)],
            dtype=np.int64,
        )
        period = (
            1e9 / self.values["rate"]
            if self.values["rate"]
            else (float(np.median(np.diff(recent))) if len(recent) > 2 else None)
        )
        now = time.monotonic_ns()
        age = now - int(recent[-1]) if len(recent) else None
        gap = max(int(np.diff(recent).max(initial=0)), age or 0) if len(recent) else None
        own = self._own()
        values = {
            "messages": str(self.output.received),
            "period mean, last 1000 (ms)": f"{np.diff(recent).mean() / 1e6:.4f}" if len(recent) > 1 else "",
            "max gap, last 1000 (ms)": "" if gap is None else f"{gap / 1e6:.4f}",
            "age (ms)": "" if age is None else f"{age / 1e6:.4f}",
            "inputs": str(self.input.received) if self.input else "",
            "deadline events": str(self.output.deadline_events),
            "own cost per message (us)": ""
            if own["cpu_ns_per_message"] is None
            else f"{own['cpu_ns_per_message'] / 1e3:.2f}",
            "own processor share": f"{own['cpu_share']:.4f}",
        }
        if age is None:
            level, text = 3, f"nothing received on {self.output.topic}"
        elif period and gap is not None and gap > 10 * period:
            level, text = 2, f"gap of {gap / 1e6:.1f} ms at a period of {period / 1e6:.3g} ms"
        elif period and gap is not None and gap > 2.5 * period:
            level, text = 1, f"gap of {gap / 1e6:.1f} ms at a period of {period / 1e6:.3g} ms"
        else:
            level, text = 0, "arrives in time" if period else "arrives"
        array = DiagnosticArray()
        array.header.stamp = self.get_clock().now().to_msg()
        array.status = [
            reporting.status(level, f"{self.get_name()}: {self.output.topic}", text, values, self._hardware)
        ]
        self._diagnostics.publish(array)

    def end(self) -> None:
        """Writes the report where asked and prints the verdict with the monitor's own cost."""
        document = self.report()
        if path := self.values["output_file"]:
            Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        seen, own = document["view"], document["own"]
        if seen is None:
            ros.say(f"monitor_node: {self.output.received} messages on {self.output.topic}: too few to say anything")
            return
        ros.say(
            f"monitor_node: {self.output.topic}: {seen['received']} messages on {seen['releases']} releases, misses {seen['misses_low']} to "
            f"{seen['misses_high']}: {seen['status']} (seen from outside); largest gap {seen['max_gap_ns'] / 1e6:.2f} ms; own cost "
            f"{own['cpu_ns_per_message'] / 1e3:.1f} us a message, {own['cpu_share']:.1%} of a processor"
        )


def main(args: list[str] | None = None) -> int:
    """The executable."""
    try:
        ros.require()
    except RobotPerfError as error:
        ros.say(f"monitor_node: {error}")
        return int(ExitCode.USAGE)
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

    ros.rclpy.init(args=args)
    node = None
    try:
        node = MonitorNode()
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        limit = node.values["duration_s"]
        until = time.monotonic() + limit if limit else float("inf")
        while ros.rclpy.ok() and time.monotonic() < until:
            executor.spin_once(timeout_sec=min(0.5, max(0.0, until - time.monotonic())))
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except RobotPerfError as error:
        ros.say(f"monitor_node: {error}")
        return int(ExitCode.USAGE)
    finally:
        if node is not None:
            node.end()
        ros.rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
