"""Launch files against the nodes' parameter tables, with stand-ins for launch and launch_ros (no wheel exists for either)."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path

import pytest

from robot_perf.errors import UsageError
from robot_perf.measure.node.bench_parameters import MONITOR_PARAMETERS, OBSERVATION_PARAMETERS
from robot_perf.measure.node.launching import demo_arguments, launch_arguments, standin_parameters
from robot_perf.measure.node.parameters import PARAMETERS

LAUNCH = Path(__file__).resolve().parents[2] / "launch"


class Recorded:
    def __init__(self, *positional, **named):
        self.positional, self.named = positional, named


class Configuration:
    def __init__(self, name):
        self.name = name

    def perform(self, context):
        return context[self.name]


@pytest.fixture
def launched(monkeypatch):
    classes = {}
    layout = {
        "launch": ["LaunchDescription"],
        "launch.actions": ["DeclareLaunchArgument", "IncludeLaunchDescription", "OpaqueFunction"],
        "launch.launch_description_sources": ["PythonLaunchDescriptionSource"],
        "launch.substitutions": ["PathJoinSubstitution"],
        "launch_ros": [],
        "launch_ros.actions": ["LifecycleNode", "Node"],
        "launch_ros.parameter_descriptions": ["ParameterValue"],
        "launch_ros.substitutions": ["FindPackageShare"],
    }
    for module, names in layout.items():
        made = types.ModuleType(module)
        for name in names:
            classes[name] = type(name, (Recorded,), {})
            setattr(made, name, classes[name])
        if module == "launch.substitutions":
            made.LaunchConfiguration = Configuration
        monkeypatch.setitem(sys.modules, module, made)

    def run(name):
        description = runpy.run_path(str(LAUNCH / name))["generate_launch_description"]()
        actions = description.positional[0]
        declared = {a.positional[0]: a.named for a in actions if isinstance(a, classes["DeclareLaunchArgument"])}
        rest = [a for a in actions if not isinstance(a, classes["DeclareLaunchArgument"])]
        return declared, rest

    return run


def test_both_files_compile():
    for path in LAUNCH.glob("*.launch.py"):
        compile(path.read_text(encoding="utf-8"), str(path), "exec")
    assert len(list(LAUNCH.glob("*.launch.py"))) == 2


def context_of(declared, **given):
    known = {name: named.get("default_value", "") for name, named in declared.items()}
    assert set(given) <= set(known)
    return {**known, **given}


def node_of(rest, context):
    (function,) = rest
    (node,) = function.named["function"](context)
    return node.named


def test_every_parameter_is_an_argument_with_help_and_its_type(launched):
    declared, rest = launched("policy.launch.py")
    for p in PARAMETERS:
        named = declared[p.name.replace(".", "_")]
        assert p.description in named["description"]
        assert ("default_value" in named) == (p.default is not None)
    assert set(declared) == {name for name, _, _ in launch_arguments()}
    node = node_of(rest, context_of(declared, rate="200.0", policy="mlp"))
    (given,) = node["parameters"]
    assert set(given) == {p.name for p in PARAMETERS}
    types_of = {"double": float, "integer": int, "bool": bool, "string": str}
    assert all(given[p.name].named["value_type"] is types_of[p.kind] for p in PARAMETERS)
    assert given["rate"].positional[0].name == "rate"
    assert (node["package"], node["executable"], node["output"]) == ("robot_perf", "policy_node", "screen")
    assert declared["autostart"]["default_value"] == "true"


def test_a_given_argument_wins_over_a_params_file_and_a_default_does_not(launched):
    declared, rest = launched("policy.launch.py")
    node = node_of(
        rest, context_of(declared, rate="50.0", policy="mlp", params_file="policy_node.yaml", on_stale="stop")
    )
    file, given = node["parameters"]
    assert file.positional[0][1:] == ["configs", "nodes", "policy_node.yaml"]
    assert set(given) == {"rate", "policy", "on_stale", "autostart"}
    assert (
        node_of(rest, context_of(declared, rate="50.0", policy="mlp", params_file="/etc/my.yaml"))["parameters"][0]
        == "/etc/my.yaml"
    )


def test_namespace_remappings_log_level_and_profile(launched):
    declared, rest = launched("policy.launch.py")
    context = context_of(
        declared,
        rate="50.0",
        policy="mlp",
        namespace="dog",
        remappings="~/action:=/cmd, ~/observation:=/obs",
        log_level="debug",
        profile="nsys",
    )
    node = node_of(rest, context)
    assert node["namespace"] == "dog"
    assert node["remappings"] == [("~/action", "/cmd"), ("~/observation", "/obs")]
    assert node["arguments"][-1] == "debug"
    assert node["prefix"].startswith("nsys profile")
    assert node_of(rest, context_of(declared, rate="50.0", policy="mlp"))["prefix"] is None


@pytest.mark.parametrize(
    ("given", "words"), [({"profile": "perf"}, "none, nsys"), ({"remappings": "/a:=/b, ~/action"}, "FROM:=TO")]
)
def test_a_wrong_launch_argument_is_named_with_what_is_allowed(launched, given, words):
    declared, rest = launched("policy.launch.py")
    (name,) = given
    with pytest.raises(UsageError, match=f"argument {name}") as told:
        node_of(rest, context_of(declared, rate="50.0", policy="mlp", **given))
    assert words in str(told.value)


def test_the_demo_passes_everything_on(launched):
    declared, (policy, robot, monitor) = launched("demo.launch.py")
    assert set(declared) == {name for name, _, _ in demo_arguments()}
    assert {name for name, _ in policy.named["launch_arguments"]} == {name for name, _, _ in launch_arguments()}
    assert (robot.named["executable"], monitor.named["executable"]) == ("observation_node", "monitor_node")
    (given,) = robot.named["parameters"]
    assert set(given) == {p.name for p in OBSERVATION_PARAMETERS}
    assert all(p.name in declared for p in standin_parameters())
    assert set(monitor.named["parameters"][0]) <= {p.name for p in MONITOR_PARAMETERS}
