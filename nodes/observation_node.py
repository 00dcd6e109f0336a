"""The executable `observation_node`: a stand-in robot that publishes recorded or synthetic observations, with faults on demand.

ros2 run robot_perf observation_node --ros-args -p rate:=50 -p policy:=mlp -p drop_ratio:=0.01
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from numpy.typing import NDArray

from robot_perf.errors import UsageError
from robot_perf.measure.clock import MonotonicClock
from robot_perf.measure.node import parameters
from robot_perf.measure.node.bench_parameters import OBSERVATION_PARAMETERS
from robot_perf.measure.node.faults import Fate, Faults, following
from robot_perf.measure.node.mapping import FieldMap, NodeMapping, TopicMap, default_mapping, find_mapping, read_mapping
from robot_perf.measure.node.mapping_reader import resolve_mapping
from robot_perf.measure.node.standin import Source, fill_message
from robot_perf.nodes import ros
from robot_perf.nodes.ros import Node
from robot_perf.nodes.serving import serve
from robot_perf.specs import PolicySpec

TABLE = OBSERVATION_PARAMETERS


class ObservationNode(Node):  # type: ignore[misc]
    """Publishes on its own absolute grid. `faults.counts` says what was sent, dropped, spoiled and stalled."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("observation_node", **kwargs)
        problems = ros.declare(self, TABLE)
        values = ros.values_of(self, TABLE)
        problems += parameters.missing(TABLE, values, problems)
        if problems:
            self.destroy_node()
            raise UsageError(" ".join(problems))
        self.values = values
        self.add_on_set_parameters_callback(self._change)
        self.faults = Faults(values["seed"], time.monotonic_ns())
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
        self._ends_s: float | None = None
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
            return SetParametersResult(successful=False, reason=error.one_line)
        self.values = {**self.values, **new}
        return SetParametersResult(successful=True)

    def _publish(self) -> None:
        clock = MonotonicClock("sleep", stop=self.stop)
        period = round(1e9 / self.values["rate"])
        while not self.stop[0] and any(
            p.get_subscription_count() < self.values["wait_for"] for _, _, p in self._topics
        ):
            clock.wait(clock.now() + 20_000_000)
        if self.values["wait_for"]:
            clock.wait(clock.now() + 500_000_000)  # a reader may know of this writer a moment after the writer of it
        origin = clock.now() + period
        k = 0
        while not self.stop[0] and (not self.values["count"] or k < self.values["count"]):
            values = self.values
            late = self.faults.late_ns(values)
            clock.wait(origin + k * period + late)
            now = clock.now()
            fate = self.faults.fate(values, now)
            if fate.send and not self._send(self.source.at(k), fate):
                break
            k = following(k, late, period, now - origin)
        self.done.set()

    def _send(self, inputs: dict[str, NDArray[Any]], fate: Fate) -> bool:
        stamp = self.get_clock().now().to_msg()
        for topic, message, publisher in self._topics:
            fill_message(message, topic, inputs, stamp, nan=fate.nan, wrong_size=fate.wrong_size)
            try:
                publisher.publish(message)
            except Exception:
                if ros.rclpy.ok():
                    raise
                return False
        self.faults.sent(fate)
        return True

    def _report(self, _request: Any, response: Any) -> Any:
        response.success, response.message = True, json.dumps(self.faults.counts)
        return response

    def over(self, now_s: float) -> bool:
        """Whether all was sent, a second ago: `~/report` still answers for a moment, and the last message leaves."""
        if self._ends_s is None and self.done.is_set():
            self._ends_s = now_s + 1.0
        return self._ends_s is not None and now_s >= self._ends_s

    def end(self) -> None:
        """Stops publishing and says what was sent, on standard output as one JSON line."""
        self.stop[0] = True
        self._thread.join(2.0 + 1 / self.values["rate"])
        sys.stdout.write(json.dumps(self.faults.counts) + "\n")
        sys.stdout.flush()


def main(args: list[str] | None = None) -> int:
    """The executable."""
    return serve("observation_node", ObservationNode, TABLE, args)


if __name__ == "__main__":
    sys.exit(main())
