"""What the nodes share of ROS: the guarded import, QoS, clocks, parameters with ranges, messages by name.

The package must import without rclpy; a node that is started without it says how to get it.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from robot_perf.errors import RobotPerfError, UsageError, install_line
from robot_perf.measure.node.parameters import PARAMETERS, Parameter, checked, help_text, strangers

MISSING: Exception | None = None
try:
    rclpy: Any = importlib.import_module("rclpy")
    _lifecycle = importlib.import_module("rclpy.lifecycle")
    LifecycleNode: Any = _lifecycle.LifecycleNode
    TransitionCallbackReturn: Any = _lifecycle.TransitionCallbackReturn
    Node: Any = importlib.import_module("rclpy.node").Node
except ImportError as _error:  # the edge of the optional dependency: `require` explains it
    rclpy = TransitionCallbackReturn = None
    LifecycleNode = Node = object
    MISSING = _error


def require() -> None:
    """Raises RobotPerfError with the way to get rclpy, for this processor."""
    if MISSING is None:
        return
    apt = "install ros-<distro>-ros-base of Humble, Jazzy or Kilted with apt and source /opt/ros/<distro>/setup.bash"
    if platform.machine() == "x86_64":
        do = f"{install_line('ros')} (x86-64 wheels of Jazzy), or {apt}."
    else:
        do = f"There is no {platform.machine()} wheel on PyPI: {apt}; a virtual environment then needs --system-site-packages."
    raise RobotPerfError("this node needs rclpy, which can't be imported", why=f"{MISSING} ({sys.executable}).", do=do)


def message_type(name: str) -> Any:
    """The class of `package/Name` (or `package/msg/Name`). Raises UsageError."""
    parts = name.replace("/msg/", "/").split("/")
    if len(parts) != 2:
        raise UsageError(f"message type {name!r} is not a name", do="Write it as sensor_msgs/JointState.")
    try:
        module = __import__(f"{parts[0]}.msg", fromlist=[parts[1]])
        return getattr(module, parts[1])
    except (ImportError, AttributeError) as error:
        raise UsageError(f"message type {name} is not installed", detail=str(error)) from None


def steady_timer(node: Any, period_s: float, callback: Callable[[], None]) -> Any:
    """A timer on the steady clock: the default one follows the system clock and stalls when that is set."""
    from rclpy.clock import Clock, ClockType

    return node.create_timer(period_s, callback, clock=Clock(clock_type=ClockType.STEADY_TIME))


def newest_only() -> Any:
    """Observations: best effort, depth 1. A policy must not work through stale frames."""
    return _qos(reliable=False, depth=1)


def robot() -> Any:
    """A stand-in's observations: reliable, so that an observer may count them all; the policy takes them best effort."""
    return _qos(reliable=True, depth=100)


def commands() -> Any:
    """Commands: reliable, depth 1."""
    return _qos(reliable=True, depth=1)


def slow(depth: int = 10) -> Any:
    """/diagnostics and /statistics: reliable, volatile."""
    return _qos(reliable=True, depth=depth)


def observer(*, reliable: bool, depth: int) -> Any:
    """A monitor's subscription: deep, since it must count every message."""
    return _qos(reliable=reliable, depth=depth)


def unsupported_event_error() -> Any:
    """What creating an event callback raises where the middleware has none."""
    try:
        from rclpy.event_handler import UnsupportedEventTypeError
    except ImportError:  # Humble's name
        from rclpy.qos_event import UnsupportedEventTypeError
    return UnsupportedEventTypeError


def _qos(*, reliable: bool, depth: int) -> Any:
    from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.VOLATILE,
    )


def latched() -> Any:
    """Results: reliable, transient local, depth 1."""
    from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=1,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
    )


def overridable() -> Any:
    """Lets a parameter file change history, depth, reliability and deadline of an endpoint."""
    from rclpy.qos import QoSPolicyKind
    from rclpy.qos_overriding_options import QoSOverridingOptions

    kinds = (QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY, QoSPolicyKind.DEADLINE)
    return QoSOverridingOptions(policy_kinds=kinds)


def declare(node: Any, table: tuple[Parameter, ...] = PARAMETERS) -> list[str]:
    """Declares the table; returns one sentence for each value that is not accepted (its default then stands).

    `dynamic_typing` accepts 50 for a double; ranges and types are checked here, since rclpy then checks only doubles.
    """
    from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
    from rclpy.exceptions import InvalidParameterValueException
    from rclpy.parameter import Parameter as RosParameter

    found = []
    for p in table:
        descriptor = ParameterDescriptor(
            description=f"{p.description} Allowed: {p.allowed}.", read_only=not p.dynamic, dynamic_typing=True
        )
        if p.minimum is not None and p.maximum is not None:
            if p.kind == "double":
                descriptor.floating_point_range = [FloatingPointRange(from_value=p.minimum, to_value=p.maximum)]
            else:
                descriptor.integer_range = [IntegerRange(from_value=int(p.minimum), to_value=int(p.maximum), step=1)]
        override = getattr(node, "_parameter_overrides", {}).get(p.name)
        given = None if override is None else override.value
        try:
            if override is not None and override.type_ != RosParameter.Type.NOT_SET:
                checked(p, given)
            node.declare_parameter(p.name, p.default, descriptor)
        except (UsageError, InvalidParameterValueException) as error:
            found.append(
                f"{error.one_line}."
                if isinstance(error, UsageError)
                else f"parameter {p.name}: got {given!r}. Allowed: {p.allowed}."
            )
            if not node.has_parameter(p.name):
                node.declare_parameter(p.name, p.default, descriptor, ignore_override=True)
    # Said, not refused: a parameter file for all nodes (/**) holds other nodes' names too.
    given = [name for name in getattr(node, "_parameter_overrides", {}) if not node.has_parameter(name)]
    for words in strangers(table, given):
        node.get_logger().warning(words)
    return found


def asked_for_help(executable: str, table: tuple[Parameter, ...], args: list[str] | None) -> bool:
    """Prints the parameters where `--help` stands before ROS's own arguments, and says whether it did. Needs no rclpy."""
    words = sys.argv[1:] if args is None else args
    own = words[: words.index("--ros-args")] if "--ros-args" in words else words
    if "--help" not in own and "-h" not in own:
        return False
    sys.stdout.write(help_text(executable, table) + "\n")
    return True


def values_of(node: Any, table: tuple[Parameter, ...] = PARAMETERS) -> dict[str, Any]:
    """The declared values in the table's types; None where a required one is not set."""
    found = {}
    for p in table:
        value = node.get_parameter(p.name).value
        found[p.name] = None if value is None else checked(p, value)
    return found


def distribution() -> dict[str, Any]:
    """ROS distribution, rclpy's version and the middleware. The wheels set no ROS_DISTRO: the version comes from metadata."""
    version = None
    for name in ("ros-rclpy", "rclpy"):
        try:
            version = metadata.version(name)
            break
        except metadata.PackageNotFoundError:
            continue
    known = {"3": "humble", "7": "jazzy", "9": "kilted"}
    distro = os.environ.get("ROS_DISTRO") or known.get((version or "").split(".")[0])
    return {"distro": distro, "rclpy": version, "rmw": rclpy.get_rmw_implementation_identifier()}


def make_executor(kind: str) -> Any:
    """The executor by the parameter's word. Raises UsageError where the distribution lacks it."""
    from rclpy import executors

    if kind == "single":
        return executors.SingleThreadedExecutor()
    if kind == "multi":
        return executors.MultiThreadedExecutor()
    try:
        from rclpy.experimental import EventsExecutor
    except ImportError:
        raise UsageError("parameter executor: this rclpy has no events executor", do="Use single or multi.") from None
    return EventsExecutor()


def spin(executor: Any, kind: str) -> None:
    """Spins until shutdown. The events executor's own spin() was seen to dispatch no timer: it is driven by spin_once."""
    if kind == "events":
        while rclpy.ok():
            executor.spin_once(timeout_sec=0.5)
    else:
        executor.spin()


def say(text: str) -> None:
    """A line on standard error: after a signal the context is down and rosout is silent."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
