"""The node's library part without ROS: parameters, mapping, mailbox, command, levels, launch arguments."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.errors import UsageError
from robot_perf.measure.node import launching
from robot_perf.measure.node.command import Command
from robot_perf.measure.node.levels import ERROR, OK, WARN, Level, Warnings
from robot_perf.measure.node.mailbox import STALE, STARVED, LiveObservations
from robot_perf.measure.node.mapping import CommandMap, default_mapping, find_mapping, read_mapping
from robot_perf.measure.node.mapping_reader import resolve_mapping
from robot_perf.measure.node.parameters import BY_NAME, PARAMETERS, checked, from_text, missing, problems
from robot_perf.measure.node.standin import Source, fill_message
from robot_perf.specs import PolicySpec, StatePair, TensorSpec


def spec(size=6, actions=2, **more):
    inputs = (TensorSpec("obs", "float32", (1, size)), TensorSpec("h", "float32", (1, 3)))
    outputs = (TensorSpec("act", "float32", (1, actions)), TensorSpec("h2", "float32", (1, 3)))
    return PolicySpec(name="p", kind="onnx", inputs=inputs, outputs=outputs, action=0, state=(StatePair(1, 1),), **more)


# Parameters


@given(st.floats(0.01, 1e5) | st.integers(1, 100_000))
def test_a_double_takes_integers(value):
    got = checked(BY_NAME["rate"], value)
    assert isinstance(got, float)
    assert got == value


@pytest.mark.parametrize("value", [True, "50", 0, -1, math.nan, math.inf, 100_000.1, None, [50.0]])
def test_a_refused_value_is_named_with_what_is_allowed(value):
    with pytest.raises(UsageError, match=r"parameter rate: got .*\n?.*0\.01 to 100000 Hz"):
        checked(BY_NAME["rate"], value)


def test_every_default_is_allowed_and_described():
    for p in PARAMETERS:
        assert p.description.endswith((".", ")"))
        if p.default is not None:
            assert checked(p, p.default) == p.default


def test_missing_and_contradicting_parameters():
    values = {p.name: p.default for p in PARAMETERS}
    assert [f.split()[1] for f in missing(PARAMETERS, values)] == ["rate", "policy"]
    refused = ["parameter rate: got 0 (int). Allowed: a number from 0.01 to 100000 Hz."]
    assert [f.split()[1] for f in missing(PARAMETERS, values, refused)] == ["policy"]  # wrong is not forgotten
    fine = {**values, "rate": 50.0, "policy": "mlp"}
    assert problems(fine) == []
    assert "starve" in problems({**fine, "fifo": 50, "wait": "spin"})[0]
    assert "spin_margin_us" in problems({**fine, "fifo": 50, "wait": "hybrid", "spin_margin_us": 1000.0})[0]
    assert "above its .error" in problems({**fine, "diagnostics.threshold.gap_periods.warn": 11.0})[0]


@pytest.mark.parametrize("p", PARAMETERS, ids=lambda p: p.name)
def test_launch_arguments_say_what_the_parameters_say(p):
    argument = {name: (default, text) for name, default, text in launching.launch_arguments()}[
        launching.argument_name(p)
    ]
    default, text = argument
    assert p.description in text
    if p.default is None:
        assert default is None
    elif p.name != "autostart":
        assert from_text(p, default) == p.default


# Mapping


def test_default_mapping_leaves_state_and_counters_out():
    mapping = default_mapping(spec())
    assert [(t.topic, t.fields[0].size) for t in mapping.topics] == [("~/observation", 6)]


def full():
    return {
        "observations": [
            {"topic": "imu", "type": "sensor_msgs/Imu", "fields": [{"field": "angular_velocity", "scale": 0.5}]},
            {
                "topic": "cmd",
                "type": "geometry_msgs/msg/Twist",
                "fields": [{"field": "planar", "at": 3, "clip": [-1, 1]}],
            },
        ],
        "command": {"order": [1, 0], "scale": 2.0, "offset": [1, -1], "clip": [-1, 1]},
    }


def test_a_mapping_in_full():
    mapping = resolve_mapping(full(), spec())
    assert mapping.topics[0].fields[0].scale == (0.5, 0.5, 0.5)
    assert mapping.topics[1].type == "geometry_msgs/Twist"
    assert mapping.command.offset == (1.0, -1.0)


def change(path, value):
    data = full()
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("observation",), [], "Did you mean observations"),
        (("observations", 0, "type"), "sensor_msgs/Image", "Allowed: std_msgs/Float32MultiArray"),
        (("observations", 0, "fields", 0, "field"), "gyro", "angular_velocity"),
        (("observations", 0, "fields", 0, "size"), 4, "has 3 values"),
        (("observations", 0, "fields", 0, "scale"), [1, 2], "2 values for 3"),
        (("observations", 0, "fields", 0, "scale"), float("nan"), "finite"),
        (("observations", 1, "fields", 0, "at"), 4, "don't fit obs, which has 6"),
        (("observations", 1, "fields", 0, "at"), 2, r"obs\[2\] is fed twice|nothing feeds obs\[5\]"),
        (("observations", 1, "fields", 0, "clip"), [1, -1], "lies above"),
        (("observations", 1, "topic"), "imu", "listed twice"),
        (("observations", 1, "fields"), [], "feeds nothing"),
        (("observations", 0, "fields", 0, "input"), "h", "Fed: obs"),
        (("command", "order"), [0, 0], "Each index once"),
        (("command", "order"), [2], "action of 2 values"),
        (("command", "type"), "trajectory_msgs/JointTrajectory", "0 joints for 2"),
        (("command", "limits"), [[1, 1], [0, 2]], "above its upper"),
        (("command", "offset"), True, "finite number"),
    ],
)
def test_a_wrong_mapping_says_which_key_and_what_is_allowed(path, value, words):
    with pytest.raises(UsageError, match=words):
        resolve_mapping(change(path, value), spec())


def test_the_shipped_mapping_fits_the_shipped_policy():
    from robot_perf import policies

    mapping = resolve_mapping(read_mapping(find_mapping("quadruped")), policies.describe("quadruped-mlp"))
    assert len(mapping.command.joints) == 12
    assert mapping.feedback is not None


# Mailbox


def vector(x, y, z):
    return SimpleNamespace(x=x, y=y, z=z)


def test_messages_are_converted_where_they_arrive():
    live = LiveObservations(spec(), resolve_mapping(full(), spec()), 1000)
    at = live.reader()
    assert live.missing == ["imu", "cmd"]
    assert live.inboxes[0].put(SimpleNamespace(angular_velocity=vector(2.0, 4.0, 6.0)), 10, 7, 3)
    assert live.inboxes[1].put(SimpleNamespace(linear=vector(0.5, 9.0, 0.0), angular=vector(0, 0, -0.25)), 20)
    (obs,) = at(0)
    assert obs.tolist() == [[1.0, 2.0, 3.0, 0.5, 1.0, -0.25]]
    assert (live.oldest_ns, live.stamp_ns, live.header_age_ns) == (10, 7, 3)
    assert live.look(30) == STARVED
    assert live.look(2000) == STARVED | STALE
    live.inboxes[0].put(SimpleNamespace(angular_velocity=vector(0.0, 0.0, 0.0)), 1990)
    assert live.look(2000) == STALE  # the command is still old
    live.forget()
    assert live.missing == ["imu", "cmd"]


def test_bad_messages_never_reach_a_slot():
    live = LiveObservations(spec(), default_mapping(spec()), 1000)
    box = live.inboxes[0]
    assert not box.put(SimpleNamespace(data=[1.0] * 7), 1)
    assert not box.put(SimpleNamespace(data=[1.0] * 5 + [math.nan]), 2)
    assert not box.put(SimpleNamespace(data=[1e39] * 6), 3)  # infinite in float32
    assert box.slot is None
    assert (box.received, box.malformed, box.nonfinite) == (3, 1, 2)
    assert box.put(SimpleNamespace(data=[1.0] * 6), 4)


def test_joints_are_taken_by_name():
    data = {"observations": [{"topic": "j", "type": "sensor_msgs/JointState", "joints": ["b", "a"], "fields": [
        {"field": "position", "offset": [10, 20]}, {"field": "velocity", "at": 2}]}], "constants": [{"at": 4, "values": [7, 8]}]}  # fmt: skip
    live = LiveObservations(spec(), resolve_mapping(data, spec()), 1000)
    box, at = live.inboxes[0], live.reader()
    assert box.put(SimpleNamespace(name=["a", "c", "b"], position=[1.0, 2.0, 3.0], velocity=[4.0, 5.0, 6.0]), 1)
    assert at(0)[0].tolist() == [[-7.0, -19.0, 6.0, 4.0, 7.0, 8.0]]
    assert not box.put(SimpleNamespace(name=["a"], position=[1.0], velocity=[4.0]), 2)
    assert "lacks b" in box.problem
    assert not box.put(SimpleNamespace(name=["a", "b"], position=[1.0], velocity=[4.0, 5.0]), 3)


def test_previous_action_is_fed_back():
    data = {
        "observations": [
            {"topic": "x", "type": "std_msgs/Float32MultiArray", "fields": [{"field": "data", "size": 4}]}
        ],
        "previous_action": {"at": 4},
    }
    live = LiveObservations(spec(), resolve_mapping(data, spec()), 1000)
    live.inboxes[0].put(SimpleNamespace(data=[1, 2, 3, 4]), 1)
    at = live.reader()
    assert at(0)[0].tolist() == [[1, 2, 3, 4, 0, 0]]
    live.remember(np.array([[5, 6]], np.float32))
    assert at(1)[0].tolist() == [[1, 2, 3, 4, 5, 6]]


def test_projected_gravity_agrees_with_a_rotation():
    from scipy.spatial.transform import Rotation

    data = {
        "observations": [{"topic": "i", "type": "sensor_msgs/Imu", "fields": [{"field": "projected_gravity"}]}],
        "constants": [{"at": 3, "values": [0, 0, 0]}],
    }
    live = LiveObservations(spec(), resolve_mapping(data, spec()), 1000)
    rotation = Rotation.from_euler("xyz", [0.3, -0.7, 1.1])
    q = SimpleNamespace(**dict(zip("xyzw", rotation.as_quat(), strict=True)))
    live.inboxes[0].put(SimpleNamespace(orientation=q), 1)
    assert live.reader()(0)[0][0, :3] == pytest.approx(rotation.inv().apply([0, 0, -1]), abs=1e-6)


def test_the_stand_in_sends_what_the_mapping_reads():
    policy = spec()
    mapping = resolve_mapping(full(), policy)
    source = Source({"obs": (1, 6)}, seed=3)
    live = LiveObservations(policy, mapping, 1000)
    imu = SimpleNamespace(header=SimpleNamespace(stamp=None), angular_velocity=vector(0, 0, 0))
    twist = SimpleNamespace(linear=vector(0, 0, 0), angular=vector(0, 0, 0))
    for inbox, message in zip(live.inboxes, (imu, twist), strict=True):
        fill_message(message, inbox.map, source.at(5), "stamp")
        assert inbox.put(message, 1)
    assert live.reader()(0)[0][0] == pytest.approx(source.at(5)["obs"], abs=1e-6)


# Command


def test_command_clips_orders_scales_and_limits():
    command = CommandMap(
        order=(1, 0), scale=(2.0, 3.0), offset=(1.0, -1.0), clip=(-1.0, 1.0), limits=((-9.0, -2.0), (9.0, 9.0))
    )
    made = Command(command, spec())
    view = memoryview(made.values)
    made.fill(np.array([[-5.0, 0.5]], np.float32))
    assert list(made.values) == [2.0, -2.0]  # 0.5*2+1; -1*3-1 limited
    assert list(view) == [2.0, -2.0]  # in place: the message keeps the buffer


# Levels


def test_a_level_rises_at_once_and_falls_slowly():
    level = Level()
    assert level.look(0.5, 0.1, 0.4) == ERROR
    assert [level.look(0.3, 0.1, 0.4) for _ in range(3)] == [ERROR, ERROR, WARN]
    assert level.look(0.09, 0.1, 0.4) == WARN  # below the line, not below 80 % of it
    assert [level.look(0.0, 0.1, 0.4) for _ in range(3)] == [WARN, WARN, OK]
    assert level.look(None, 0.1, 0.4) == OK


def test_a_figure_that_hovers_at_the_line_does_not_flap():
    level = Level()
    seen = [level.look(v, 0.1, 0.4) for v in (0.11, 0.09, 0.11, 0.09, 0.11, 0.09)]
    assert seen == [WARN] * 6


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50))
def test_warnings_tell_every_event_once_and_at_most_once_a_second(counts):
    warnings, total, told, last = Warnings(), 0, 0, None
    for i, new in enumerate(counts):
        total += new
        now = i * 300_000_000
        fresh = warnings.due("x", total, now)
        if fresh:
            assert last is None or now - last >= 1_000_000_000
            last = now
        told += fresh
    told += warnings.due("x", total, len(counts) * 300_000_000 + 1_000_000_000)
    assert told == total
