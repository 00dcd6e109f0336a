"""Topics of the policy node: subscriptions that fill the mailbox, and the command that the loop publishes."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

from robot_perf.measure.node.command import Command
from robot_perf.measure.node.mailbox import Inbox
from robot_perf.measure.node.mapping import STAMPED, CommandMap
from robot_perf.nodes import ros
from robot_perf.run.columns import NOT_MEASURED

Warn = Callable[[str, int, str], None]


def subscribe(node: Any, inbox: Inbox, *, shared_clock: bool, trouble: Callable[[str], None]) -> Any:
    """A subscription that stamps at callback entry, converts, and replaces the topic's slot."""
    now, clock, put = time.monotonic_ns, node.get_clock(), inbox.put
    stamped = inbox.map.type in STAMPED

    def arrived(message: Any) -> None:
        entry = now()
        stamp = age = NOT_MEASURED
        if stamped:
            header = message.header.stamp
            stamp = header.sec * 1_000_000_000 + header.nanosec
            if shared_clock and stamp > 0:
                # Both ends on this host's ROS clock; a stamp from the future is shown as it is not: as no age.
                age = max(NOT_MEASURED, clock.now().nanoseconds - stamp)
        put(message, entry, stamp, age)

    return create_subscription(node, inbox.map.type, inbox.map.topic, arrived, trouble)


def create_subscription(
    node: Any, type_name: str, topic: str, callback: Callable[[Any], None], trouble: Callable[[str], None]
) -> Any:
    """Best effort, depth 1, overridable; an incompatible QoS is reported by topic and policy."""
    return node.create_subscription(
        ros.message_type(type_name),
        topic,
        callback,
        ros.newest_only(),
        event_callbacks=subscription_events(topic, trouble),
        qos_overriding_options=ros.overridable(),
    )


def _events() -> Any:
    try:
        from rclpy import event_handler as events
    except ImportError:  # Humble's name
        from rclpy import qos_event as events
    return events


def _incompatible(topic: str, trouble: Callable[[str], None]) -> Callable[[Any], None]:
    def told(info: Any) -> None:
        from rclpy.qos import qos_policy_name_from_kind

        policy = qos_policy_name_from_kind(info.last_policy_kind)
        trouble(f"{topic}: a peer offers or asks an incompatible QoS, {policy}; no messages pass between the two")

    return told


def subscription_events(topic: str, trouble: Callable[[str], None], **more: Callable[[Any], None]) -> Any:
    """Callbacks that report an incompatible publisher, and those of `more` (deadline, message_lost, matched) that are asked for.

    Raises what `ros.unsupported_event_error` names where this rclpy doesn't know one of them (Humble has no `matched`); a middleware
    that lacks one raises the same when the subscription is made.
    """
    kind = _events().SubscriptionEventCallbacks
    if unknown := set(more) - set(inspect.signature(kind).parameters):
        raise ros.unsupported_event_error()(f"this rclpy has no event {', '.join(sorted(unknown))}")
    return kind(incompatible_qos=_incompatible(topic, trouble), **more)


def publisher_events(topic: str, trouble: Callable[[str], None]) -> Any:
    """Callbacks that report an incompatible subscriber."""
    return _events().PublisherEventCallbacks(incompatible_qos=_incompatible(topic, trouble))


class CommandPort:
    """The command's lifecycle publisher, with one message that is filled anew each step."""

    def __init__(
        self,
        node: Any,
        command: CommandMap,
        fill: Command,
        *,
        period_ns: int,
        stamp: str,
        trouble: Callable[[str], None],
    ) -> None:
        self._fill, self._node = fill, node
        kind = ros.message_type(command.type)
        self.message = kind()
        self.publisher = node.create_lifecycle_publisher(
            kind,
            command.topic,
            ros.commands(),
            event_callbacks=publisher_events(command.topic, trouble),
            qos_overriding_options=ros.overridable(),
        )
        self._finish: Callable[[int], None] = lambda _stamp: None
        if command.type == "trajectory_msgs/JointTrajectory":
            self._trajectory(command, period_ns, stamp)
        elif command.type == "geometry_msgs/Twist":
            self._finish = self._twist
        else:
            self.message.data = fill.values

    def _trajectory(self, command: CommandMap, period_ns: int, stamp: str) -> None:
        from trajectory_msgs.msg import JointTrajectoryPoint

        point = JointTrajectoryPoint()
        point.positions = self._fill.values
        ahead = period_ns if command.time_from_start_ns is None else command.time_from_start_ns
        point.time_from_start.sec, point.time_from_start.nanosec = divmod(ahead, 1_000_000_000)
        self.message.joint_names = list(command.joints)
        self.message.points = [point]
        header, clock = self.message.header, self._node.get_clock()

        def finish(observed: int) -> None:
            moment = observed if stamp == "observation" and observed > 0 else clock.now().nanoseconds
            header.stamp.sec, header.stamp.nanosec = divmod(moment, 1_000_000_000)

        self._finish = finish

    def _twist(self, _stamp: int) -> None:
        values, linear, angular = self._fill.values, self.message.linear, self.message.angular
        if len(values) == 2:
            linear.x, angular.z = values
        elif len(values) == 3:
            linear.x, linear.y, angular.z = values
        else:
            linear.x, linear.y, linear.z, angular.x, angular.y, angular.z = values

    def publisher_of(self, stop: list[bool]) -> Callable[[Any, int], bool]:
        """What the loop calls. After a signal the context goes down under it: the loop then ends, and that step says unpublished."""
        fill, finish, message, publish = self._fill.fill, self._finish, self.message, self.publisher.publish

        def send(action: Any, stamp_ns: int) -> bool:
            fill(action)
            finish(stamp_ns)
            try:
                publish(message)
            except Exception:
                if ros.rclpy.ok():
                    raise
                stop[0] = True
                return False
            return True

        return send
