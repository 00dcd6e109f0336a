"""Starts the policy node. Every knob is an argument: ros2 launch robot_perf policy.launch.py --show-args

    ros2 launch robot_perf policy.launch.py policy:=mlp rate:=200.0 observations:=random
    ros2 launch robot_perf policy.launch.py policy:=mlp rate:=50.0 profile:=nsys

The arguments come from the node's own parameter table. An edited launch or config file is copied at build: rebuild after an edit.
"""

from __future__ import annotations

from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import LifecycleNode
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from launch import LaunchDescription
from robot_perf.measure.node.launching import (
    EXTRA_ARGUMENTS,
    argument_name,
    launch_arguments,
    profiler,
    remappings,
    ros_type,
)

NO_FILE = "none"


def generate_launch_description() -> LaunchDescription:
    """Arguments, then the node; required arguments have no default, so launch itself asks for them."""
    declared = []
    for name, default, text in launch_arguments():
        declared.append(
            DeclareLaunchArgument(name, description=text, **({} if default is None else {"default_value": default}))
        )
    return LaunchDescription([*declared, OpaqueFunction(function=_node)])


def _node(context):
    from robot_perf.measure.node.parameters import PARAMETERS

    def value(name):
        return LaunchConfiguration(name).perform(context)

    params_file = value("params_file")
    given = {}
    for parameter in PARAMETERS:
        argument = argument_name(parameter)
        # With a params file, only arguments that were given win over it: a default is the file's to decide.
        default = "" if parameter.default is None else str(parameter.default)
        if params_file == NO_FILE or value(argument).lower() != default.lower():
            given[parameter.name] = ParameterValue(LaunchConfiguration(argument), value_type=ros_type(parameter))
    parameters = [given]
    if params_file != NO_FILE:
        path = (
            params_file
            if "/" in params_file
            else PathJoinSubstitution([FindPackageShare("robot_perf"), "configs", "nodes", params_file])
        )
        parameters.insert(0, path)
    return [
        LifecycleNode(
            package="robot_perf",
            executable="policy_node",
            name=value("name"),
            namespace=value("namespace"),
            output="screen",
            prefix=profiler(value("profile")),
            parameters=parameters,
            remappings=remappings(value("remappings")),
            arguments=["--ros-args", "--log-level", value("log_level")],
        )
    ]


__all__ = ["EXTRA_ARGUMENTS", "generate_launch_description"]
