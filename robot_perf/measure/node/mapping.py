"""From topics to policy inputs, from the action to a command: what a deploy config says, read from YAML and checked.

Everything a person may get wrong ends here, before anything runs: an unknown type or field, an element of an input that
nothing feeds or that two topics feed, a joint that is named twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.specs import PolicySpec

# Fields by message type: name -> number of values, None where the message decides.
OBSERVATION_TYPES: dict[str, dict[str, int | None]] = {
    "std_msgs/Float32MultiArray": {"data": None},
    "std_msgs/Float64MultiArray": {"data": None},
    "sensor_msgs/JointState": {"position": None, "velocity": None, "effort": None},
    "sensor_msgs/Imu": {"orientation": 4, "angular_velocity": 3, "linear_acceleration": 3, "projected_gravity": 3},
    "geometry_msgs/Twist": {"linear": 3, "angular": 3, "planar": 3},
    "geometry_msgs/TwistStamped": {"linear": 3, "angular": 3, "planar": 3},
}
STAMPED = ("sensor_msgs/JointState", "sensor_msgs/Imu", "geometry_msgs/TwistStamped")
COMMAND_TYPES = (
    "std_msgs/Float64MultiArray",
    "std_msgs/Float32MultiArray",
    "trajectory_msgs/JointTrajectory",
    "geometry_msgs/Twist",
)


@dataclass(frozen=True, slots=True)
class FieldMap:
    """`size` values of one message field, as (value - offset) * scale, clipped, into `input[at : at + size]`."""

    field: str
    input: str
    at: int
    size: int
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()
    clip: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class TopicMap:
    """One observation topic. `joints` gives the order by name for JointState. `stale_after_ns` None: the node's own."""

    topic: str
    type: str
    fields: tuple[FieldMap, ...]
    joints: tuple[str, ...] = ()
    stale_after_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """The previous action (before scale and offset) into `input[at : at + size]`."""

    input: str
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class CommandMap:
    """The command: clip(action)[order] * scale + offset, then `limits`, sent as `type` on `topic`."""

    topic: str = "~/action"
    type: str = "std_msgs/Float64MultiArray"
    joints: tuple[str, ...] = ()
    order: tuple[int, ...] = ()
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()
    clip: tuple[float, float] | None = None
    limits: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    time_from_start_ns: int | None = None  # JointTrajectory; None: one period


@dataclass(frozen=True, slots=True)
class NodeMapping:
    """All of it, resolved against a policy."""

    topics: tuple[TopicMap, ...]
    command: CommandMap
    feedback: Feedback | None = None
    constants: tuple[tuple[str, int, tuple[float, ...]], ...] = ()


def read_mapping(path: Path) -> dict[str, Any]:
    """The YAML as plain data. Raises UsageError for an unreadable file or another shape than a mapping."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"mapping {path} can't be read", detail=str(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"mapping {path} is not YAML", detail=str(error)) from None
    if not isinstance(data, dict):
        raise UsageError(f"mapping {path} is not a mapping", why=f"It holds {type(data).__name__}.")
    return data


def find_mapping(text: str) -> Path:
    """A file, or a name in configs/nodes. Raises UsageError."""
    import importlib.resources

    path = Path(text).expanduser()
    if path.is_file():
        return path
    folder = Path(str(importlib.resources.files("robot_perf"))) / "configs" / "nodes"
    if (folder / f"{text}.yaml").is_file():
        return folder / f"{text}.yaml"
    known = sorted(p.stem for p in folder.glob("*.yaml")) if folder.is_dir() else []
    raise UsageError(
        f"mapping: {text} is no file and no name in configs/nodes", why=f"Known: {', '.join(known) or 'none'}."
    )


def default_mapping(spec: PolicySpec) -> NodeMapping:
    """One Float32MultiArray topic per fed input: `~/observation` for a single one, else `~/observation/<name>`."""
    fed = [spec.inputs[i] for i in spec.fed if i not in spec.counters]
    topics = []
    for position, tensor in enumerate(fed):
        name = "~/observation" if len(fed) == 1 else f"~/observation/{_topic_name(tensor.name, position)}"
        size = math.prod(tensor.shape)
        topics.append(TopicMap(name, "std_msgs/Float32MultiArray", (FieldMap("data", tensor.name, 0, size),)))
    return NodeMapping(tuple(topics), CommandMap())


def _topic_name(name: str, position: int) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name).strip("_").lower()
    while "__" in safe:
        safe = safe.replace("__", "_")
    return safe if safe and not safe[0].isdigit() else f"input_{position}"
