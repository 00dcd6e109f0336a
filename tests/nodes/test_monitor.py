"""The monitor's own edges: a middleware that lacks events, an observer that is held up, messages without a header, an end by itself."""

from __future__ import annotations

import json
import signal
import time
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.ros


@pytest.mark.parametrize(
    ("has", "lacks"),
    [
        ((), "publishers that come and go, lost messages, missed deadlines"),
        (("message_lost", "deadline"), "publishers that come and go"),
        (("deadline",), "publishers that come and go, lost messages"),
    ],
)
def test_a_middleware_without_some_events_gets_one_warning(_rclpy, monkeypatch, tmp_path, has, lacks):
    import rclpy
    from ros_bench import DOMAIN

    from robot_perf.nodes import ros
    from robot_perf.nodes.monitor_node import MonitorNode

    made = []

    def refuse(self, kind, topic, callback, qos, event_callbacks, **more):
        asked = [n for n in ("matched", "message_lost", "deadline") if getattr(event_callbacks, n) is not None]
        if set(asked) - set(has):
            raise ros.unsupported_event_error()("this middleware lacks one")
        made.append((topic, asked, qos.deadline.nanoseconds, event_callbacks.incompatible_qos is not None))

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
    # Without its event the deadline isn't asked for: it could only lose the match.
    assert [(t, e, d == 50_000_000, q) for t, e, d, q in made] == [("/out", list(has), "deadline" in has, True)]
    assert told == [f"/out: no events for {lacks} from this middleware; the monitor's own clock is always on"]


def test_an_rclpy_that_knows_no_such_event_is_a_middleware_without_it(_rclpy, monkeypatch):
    """Humble's container takes no `matched`."""
    from robot_perf.nodes import endpoints, ros

    class Humbles:
        class SubscriptionEventCallbacks:
            def __init__(self, *, deadline=None, incompatible_qos=None, liveliness=None, message_lost=None):
                pass

    monkeypatch.setattr(endpoints, "_events", lambda: Humbles)
    endpoints.subscription_events("/out", print, message_lost=print)
    with pytest.raises(ros.unsupported_event_error(), match="no event matched"):
        endpoints.subscription_events("/out", print, matched=print, message_lost=print)


def _publisher(driver, topic, depth):
    from std_msgs.msg import String

    from robot_perf.nodes import ros

    made = driver.node.create_publisher(String, topic, ros._qos(reliable=True, depth=depth))
    return made, String(data="a command")


def test_what_arrived_before_the_end_counts_though_it_was_not_taken_yet(start, driver):
    """The observer is held up, 300 commands arrive, and it is told to end before it could look at one of them."""
    monitor = start(
        "monitor_node", output_topic="/held", output_type="std_msgs/String", output_file="seen.json", reliable=True
    )
    publisher, message = _publisher(driver, "/held", depth=1000)
    monitor.wait_for("/held: 1 publisher")
    driver.until(lambda: publisher.get_subscription_count() == 1, what="the match")
    monitor.process.send_signal(signal.SIGSTOP)
    # at once: of a reader that was silent for 3 s Fast DDS sends the rest with its next heartbeat, 3 s later
    for _ in range(300):
        publisher.publish(message)
    monitor.process.send_signal(signal.SIGINT)
    monitor.process.send_signal(signal.SIGCONT)
    assert monitor.process.wait(30) == 0
    seen = json.loads((monitor.log_path.parent / "seen.json").read_text())
    assert (seen["output"]["received"], seen["output"]["lost"]) == (300, None)


def test_what_the_middleware_tells_is_kept_by_topic(_rclpy, monkeypatch):
    """Its events, by hand: whether Fast DDS tells a loss depends on which of its messages reaches the reader first."""
    import rclpy
    from ros_bench import DOMAIN

    from robot_perf.nodes.monitor_node import MonitorNode

    callbacks = {}
    monkeypatch.setattr(
        MonitorNode,
        "create_subscription",
        lambda self, kind, topic, callback, qos, event_callbacks, **more: callbacks.update({topic: event_callbacks}),
    )
    context = rclpy.Context()
    words = [
        "output_topic:=/out",
        "output_type:=std_msgs/String",
        "input_topic:=/in",
        "input_type:=std_msgs/String",
        "deadline_qos_ms:=50",
    ]
    rclpy.init(args=["--ros-args", *[w for one in words for w in ("-p", one)]], context=context, domain_id=int(DOMAIN))
    told = []
    monkeypatch.setattr(MonitorNode, "get_logger", lambda _: _Logger([], told))
    node = MonitorNode(context=context, enable_rosout=False)
    callbacks["/out"].message_lost(SimpleNamespace(total_count=7, total_count_change=7))
    callbacks["/out"].matched(SimpleNamespace(current_count=2))
    callbacks["/out"].deadline(SimpleNamespace(total_count=3))
    callbacks["/in"].matched(SimpleNamespace(current_count=1))
    report = node.report()
    node.destroy_node()
    context.try_shutdown()
    assert report["output"] == {"topic": "/out", "received": 0, "publishers": 2, "lost": 7, "deadline_events": 3}
    assert report["input"] == {"topic": "/in", "received": 0, "publishers": 1, "lost": None}
    assert callbacks["/in"].deadline is None
    assert {"/out: 2 publishers", "/in: 1 publisher"} <= set(told)


def test_an_observer_that_was_held_up_never_tells_more_losses_than_there_were(start, driver):
    """A publisher keeps 10, the observer is held up while 2,000 pass. What Fast DDS tells of it differs from time to time."""
    monitor = start(
        "monitor_node", output_topic="/lossy", output_type="std_msgs/String", output_file="seen.json", reliable=True
    )
    publisher, message = _publisher(driver, "/lossy", depth=10)
    monitor.wait_for("/lossy: 1 publisher")
    driver.until(lambda: publisher.get_subscription_count() == 1, what="the match")
    monitor.process.send_signal(signal.SIGSTOP)
    for _ in range(2000):
        publisher.publish(message)
        time.sleep(0.0005)
    monitor.process.send_signal(signal.SIGCONT)
    for _ in range(20):
        publisher.publish(message)
        time.sleep(0.02)
    assert monitor.end() == 0
    seen = json.loads((monitor.log_path.parent / "seen.json").read_text())["output"]
    assert 20 <= seen["received"] <= 2020
    assert (seen["lost"] or 0) <= 2020 - seen["received"]


class _Logger:
    def __init__(self, told, heard=None):
        self.told, self.heard = told, heard

    def warning(self, text):
        self.told.append(text)

    def info(self, text):
        if self.heard is not None:
            self.heard.append(text)


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
