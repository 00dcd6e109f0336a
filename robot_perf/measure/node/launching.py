"""Launch arguments out of the nodes' parameter tables, so that neither can have a knob that the other lacks. Imports no launch."""

from __future__ import annotations

from robot_perf.errors import UsageError
from robot_perf.measure.node.bench_parameters import OBSERVATION_PARAMETERS
from robot_perf.measure.node.parameters import PARAMETERS, Parameter

Argument = tuple[str, str | None, str]  # name, default as text (None: required), help

PROFILERS: dict[str, str | None] = {
    "none": None,
    # The node's own process alone, CPU samples off: they would be in the steps. Ends with the node.
    "nsys": "nsys profile --trace=cuda,nvtx,osrt --sample=none --cpuctxsw=none --output=policy_node_%p --force-overwrite=true",
}

EXTRA_ARGUMENTS: tuple[Argument, ...] = (
    ("name", "policy_node", "Name of the node; unique in its namespace."),
    ("namespace", "", "Namespace of the node."),
    ("params_file", "none", "Parameter file: a path, a name in share/robot_perf/configs/nodes, or none."),
    ("remappings", "", "Remappings such as ~/observation:=/obs, separated by commas."),
    ("log_level", "info", "Log level: debug, info, warn, error or fatal."),
    (
        "profile",
        "none",
        f"Trace the live node: {' or '.join(PROFILERS)}. A traced run's latencies are not the robot's.",
    ),
)

_TYPES: dict[str, type] = {"double": float, "integer": int, "bool": bool, "string": str}


def profiler(name: str) -> str | None:
    """The prefix that traces the node, or None. Raises UsageError."""
    if name not in PROFILERS:
        raise UsageError(f"argument profile: got {name!r}", why=f"Allowed: one of {', '.join(PROFILERS)}.")
    return PROFILERS[name]


def remappings(text: str) -> list[tuple[str, str]]:
    """`~/action:=/cmd, ~/observation:=/obs` as pairs. Raises UsageError for a part that is none."""
    pairs = [tuple(part.strip() for part in each.split(":=")) for each in text.split(",") if each.strip()]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise UsageError(
                f"argument remappings: {':='.join(pair)!r} is none", why="Allowed: FROM:=TO, separated by commas."
            )
    return [(pair[0], pair[1]) for pair in pairs]


def ros_type(parameter: Parameter) -> type:
    """The `value_type` of launch_ros' ParameterValue."""
    return _TYPES[parameter.kind]


def argument_name(parameter: Parameter) -> str:
    """The launch argument of a parameter: dots are not allowed in every shell's completion, so groups join with underscores."""
    return parameter.name.replace(".", "_")


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _argument(parameter: Parameter, default: object) -> Argument:
    unit = f" [{parameter.unit}]" if parameter.unit else ""
    return argument_name(parameter), _text(default), f"{parameter.description}{unit} Allowed: {parameter.allowed}."


def launch_arguments() -> list[Argument]:
    """Arguments of policy.launch.py: every parameter of the policy node, then where and how it runs. A launched node starts by itself."""
    table = [_argument(p, True if p.name == "autostart" else p.default) for p in PARAMETERS]
    return [*table, *EXTRA_ARGUMENTS]


def standin_parameters() -> list[Parameter]:
    """Parameters of the observation node that the demo offers: those of the policy node keep its meaning."""
    own = {"target", "wait_for"}
    return [p for p in OBSERVATION_PARAMETERS if p.name not in own]


def demo_arguments() -> list[Argument]:
    """Arguments of demo.launch.py: those of the policy node, the stand-in's faults, what the monitor watches."""
    known = {name for name, _, _ in launch_arguments()}
    more = [_argument(p, p.default) for p in standin_parameters() if argument_name(p) not in known]
    watch: list[Argument] = [
        ("watch_output", "policy_node/action", "Topic that the monitor takes for the output."),
        ("watch_input", "policy_node/observation", "Topic that the monitor takes for the input."),
    ]
    return [*launch_arguments(), *more, *watch]
