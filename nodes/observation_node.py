"""The executable `observation_node`: a stand-in robot that publishes recorded or synthetic observations, with faults on demand.

ros2 run robot_perf observation_node --ros-args -p rate:=50 -p policy:=mlp -p drop_ratio:=0.01
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.errors import ExitCode, RobotPerfError, UsageError
from robot_perf.measure.clock import MonotonicClock
from robot_perf.measure.node import parameters
from robot_perf.measure.node.bench_parameters import OBSERVATION_PARAMETERS
from robot_perf.measure.node.mapping import FieldMap, NodeMapping, TopicMap, default_mapping, find_mapping, read_mapping
from robot_perf.measure.node.mapping_reader import resolve_mapping
from robot_perf.measure.node.standin import Source, fill_message
from robot_perf.nodes import ros
from robot_perf.nodes.ros import Node
from robot_perf.specs import PolicySpec

TABLE = OBSERVATION_PARAMETERS


class ObservationNode(Node):  # type: ignore[misc]
    """Publishes on its own absolute grid. `counts` says what was sent, dropped, spoiled and stalled."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("observation_node", **kwargs)
        problems = ros.declare(self, TABLE)
        values = ros.values_of(self, TABLE)
        if values["rate"] is None:
            problems.append(f"parameter rate is required and not set. Allowed: {TABLE[0].allowed}.")
        if problems:
            self.destroy_node()
            raise UsageError(" ".join(problems))
        self.values = values
        self.add_on_set_parameters_callback(self._change)
        self.counts = {"sent": 0, "dropped": 0, "nan": 0, "wrong_size": 0, "stalls": 0}
        mapping, inputs = self._what(values)
        self.source = Source(inputs, recording=values["recording"] or None, seed=values["seed"])
        self._topics = []
        for topic in mapping.topics:
            kind = ros.message_type(topic.type)
            name = topic.topic.replace("~", values["target"], 1)
            self._topics.append(
                (
                    topic,
                    kind(),
                    self.create_publisher(kind, name, ros.robot(), qos_overriding_options=ros.overridable()),
                )
            )
        from std_srvs.srv import Trigger

        self.create_service(Trigger, "~/report", self._report)
        self.stop = [False]
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="observations", daemon=True)
        self.get_logger().info(
            f"{values['rate']:g} Hz on {', '.join(p.topic_name for _, _, p in self._topics)}: {self.source.text}"
        )
        self._thread.start()

    def _what(self, values: dict[str, Any]) -> tuple[NodeMapping, dict[str, tuple[int, ...]]]:
        if not values["policy"]:
            if values["mapping"]:
                raise UsageError("parameter policy is needed for a mapping: it has the inputs' sizes")
            name = values["topic"] or "~/observation"
            size = values["size"]
            one = TopicMap(name, "std_msgs/Float32MultiArray", (FieldMap("data", "observation", 0, size),))
            from robot_perf.measure.node.mapping import CommandMap

            return NodeMapping((one,), CommandMap()), {"observation": (size,)}
        from robot_perf import policies

        spec: PolicySpec = policies.describe(values["policy"])
        mapping = default_mapping(spec)
        if values["mapping"]:
            mapping = resolve_mapping(
                read_mapping(find_mapping(values["mapping"])), spec, source=f"mapping {values['mapping']}"
            )
        return mapping, {spec.inputs[i].name: spec.inputs[i].shape for i in spec.fed}

    def _change(self, changes: Any) -> Any:
        from rcl_interfaces.msg import SetParametersResult

        table = {p.name: p for p in TABLE}
        try:
            new = {c.name: parameters.checked(table[c.name], c.value) for c in changes if c.name in table}
        except UsageError as error:
            return SetParametersResult(successful=False, reason=" ".join(str(error).split()))
        self.values = {**self.values, **new}
        return SetParametersResult(successful=True)

    def _publish(self) -> None:
        clock = MonotonicClock("sleep", stop=self.stop)
        rng = np.random.default_rng(self.values["seed"])
        period = round(1e9 / self.values["rate"])
        while not self.stop[0] and any(
            p.get_subscription_count() < self.values["wait_for"] for _, _, p in self._topics
        ):
            clock.wait(clock.now() + 20_000_000)
        if self.values["wait_for"]:
            clock.wait(clock.now() + 500_000_000)  # a reader may know of this writer a moment after the writer of it
        origin = clock.now() + period
        k = 0
        stalled_until = 0
        next_stall = clock.now()
        while not self.stop[0] and (not self.values["count"] or k < self.values["count"]):
            v = self.values
            late = v["late_ms"] * 1e6 + rng.uniform(0, v["jitter_ms"] * 1e6 or 1e-9)
            clock.wait(origin + k * period + int(late))
            now = clock.now()
            if v["stall_every_s"] and now >= next_stall + v["stall_every_s"] * 1e9:
                stalled_until, next_stall = now + round(v["stall_s"] * 1e9), now
                self.counts["stalls"] += 1
            if now < stalled_until or rng.random() < v["drop_ratio"]:
                self.counts["dropped"] += 1
            elif not self._send(self.source.at(k), rng.random() < v["nan_ratio"], rng.random() < v["wrong_size_ratio"]):
                break
            k = max(k + 1, (now - origin) // period if late < period else k + 1)
        self.done.set()

    def _send(self, inputs: dict[str, NDArray[Any]], nan: bool, wrong: bool) -> bool:
        stamp = self.get_clock().now().to_msg()
        for topic, message, publisher in self._topics:
            fill_message(message, topic, inputs, stamp, nan=nan, wrong_size=wrong)
            try:
                publisher.publish(message)
            except Exception:
                if ros.rclpy.ok():
                    raise
                return False
        self.counts["sent"] += 1
        self.counts["nan"] += nan
        self.counts["wrong_size"] += wrong
        return True

    def _report(self, _request: Any, response: Any) -> Any:
        response.success, response.message = True, json.dumps(self.counts)
        return response

    def end(self) -> None:
        """Stops publishing and says what was sent, on standard output as one JSON line."""
        self.stop[0] = True
        self._thread.join(2.0 + (0 if math.isinf(self.values["rate"]) else 1 / self.values["rate"]))
        sys.stdout.write(json.dumps(self.counts) + "\n")
        sys.stdout.flush()


def main(args: list[str] | None = None) -> int:
    """The executable."""
    try:
        ros.require()
    except RobotPerfError as error:
        ros.say(f"observation_node: {error}")
        return int(ExitCode.USAGE)
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

    ros.rclpy.init(args=args)
    node = None
    try:
        node = ObservationNode()
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        ended_s = math.inf
        while ros.rclpy.ok() and time.monotonic() < ended_s:
            executor.spin_once(timeout_sec=0.5)
            if node.done.is_set() and ended_s == math.inf:
                ended_s = time.monotonic() + 1.0  # `~/report` still answers for a moment, and the last message leaves
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except RobotPerfError as error:
        ros.say(f"observation_node: {error}")
        return int(ExitCode.USAGE)
    finally:
        if node is not None:
            node.end()
        ros.rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
