"""A stand-in robot, the policy node and the monitor: ros2 launch robot_perf demo.launch.py policy:=mlp rate:=50.0

Faults of the stand-in are arguments too: drop_ratio:=0.01 stall_every_s:=5.0
"""

from __future__ import annotations

from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from launch import LaunchDescription
from robot_perf.measure.node.launching import demo_arguments, launch_arguments, ros_type, standin_parameters


def generate_launch_description() -> LaunchDescription:
    """The policy node's own launch file with all its arguments, and the two nodes around it."""
    declared = []
    for name, default, text in demo_arguments():
        declared.append(
            DeclareLaunchArgument(name, description=text, **({} if default is None else {"default_value": default}))
        )
    policy = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(
            PathJoinSubstitution([FindPackageShare("robot_perf"), "launch", "policy.launch.py"])
        ),
        launch_arguments=[(name, LaunchConfiguration(name)) for name, _, _ in launch_arguments()],
    )
    robot = Node(
        package="robot_perf",
        executable="observation_node",
        namespace=LaunchConfiguration("namespace"),
        output="screen",
        parameters=[
            {p.name: ParameterValue(LaunchConfiguration(p.name), value_type=ros_type(p)) for p in standin_parameters()}
            | {"wait_for": 1, "target": LaunchConfiguration("name")}
        ],
    )
    monitor = Node(
        package="robot_perf",
        executable="monitor_node",
        namespace=LaunchConfiguration("namespace"),
        output="screen",
        parameters=[
            {
                "output_topic": LaunchConfiguration("watch_output"),
                "input_topic": LaunchConfiguration("watch_input"),
                "rate": ParameterValue(LaunchConfiguration("rate"), value_type=float),
            }
        ],
    )
    return LaunchDescription([*declared, policy, robot, monitor])
