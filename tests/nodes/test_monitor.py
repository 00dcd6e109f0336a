"""The monitor's own edges: a middleware without deadline events, messages without a header, an end by itself."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ros


def test_without_deadline_events_one_warning_and_it_watches_on(_rclpy, monkeypatch, tmp_path):
    import rclpy
    from ros_bench import DOMAIN

    from robot_perf.nodes import ros
    from robot_perf.nodes.monitor_node import MonitorNode

    asked = []

    def refuse(self, kind, topic, callback, qos, **more):
        asked.append((topic, "event_callbacks" in more, qos.deadline.nanoseconds))
        if "event_callbacks" in more:
            raise ros.unsupported_event_error()("this middleware has none")

    context = rclpy.Context()
    words = ["-p", "output_topic:=/out", "-p", "output_type:=std_msgs/String", "-p", "deadline_qos_ms:=50"]
    rclpy.init(args=["--ros-args", *words], context=context, domain_id=int(DOMAIN))
    monkeypatch.setattr(MonitorNode, "create_subscription", refuse)
    told = []
    monkeypatch.setattr(MonitorNode, "get_logger", lambda _: _Logger(told))
    node = MonitorNode(context=context, enable_rosout=False)
    node._subscribe()  # a second look finds nothing left to do
    node.destroy_node()
    context.try_shutdown()
    assert [(topic, events) for topic, events, _ in asked] == [("/out", True), ("/out", False)]
    assert asked[1][2] != 50_000_000  # without events the deadline isn't asked for: it could only lose the match
    assert len(told) == 1
    assert "no deadline events" in told[0]


class _Logger:
    def __init__(self, told):
        self.told = told

    def warning(self, text):
        self.told.append(text)

    def info(self, text):
        pass


def test_stamps_of_messages_without_a_header_are_refused(start):
    topics = {"output_topic": "/out", "input_topic": "/in", "output_type": "std_msgs/String", "input_type": "std_msgs/String"}  # fmt: skip
    monitor = start("monitor_node", match="stamp", **topics)
    assert monitor.process.wait(30) == 2
    assert "parameter match: stamp, but /out [std_msgs/String] has no header" in monitor.log
    assert "Traceback" not in monitor.log


def test_it_ends_by_itself_and_says_what_it_saw(start, driver):
    monitor = start("monitor_node", output_topic="/nothing", output_type="std_msgs/String", duration_s=1.0)
    assert monitor.process.wait(30) == 0
    assert "0 messages on /nothing: too few to say anything" in monitor.log
