"""A stand-in robot's data: recorded or seeded inputs, written into messages the way the mapping reads them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.errors import UsageError
from robot_perf.measure.node.mapping import FieldMap, TopicMap
from robot_perf.policies.formats import npz

Array = NDArray[Any]
_PREPARED = 512


class Source:
    """`at(k)` gives one flat array per input, cycled."""

    def __init__(self, inputs: dict[str, tuple[int, ...]], *, recording: str | None = None, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._columns: dict[str, Array] = {}
        known = npz.headers(recording) if recording else {}
        for position, (name, shape) in enumerate(inputs.items()):
            size = math.prod(shape)
            if recording is None:
                self._columns[name] = rng.uniform(-1, 1, size=(_PREPARED, size))
                continue
            key = next((k for k in (f"in.{name}", name, f"in.{position}") if k in known), None)
            if key is None:
                raise UsageError(
                    f"recording {recording} lacks {name}", why=f"Keys found: {', '.join(list(known)[:12])}."
                )
            array = np.asarray(npz.leading(recording, key), dtype=np.float64)
            if array.ndim < 1 or math.prod(array.shape[1:]) != size:
                raise UsageError(
                    f"recording {recording}: {key} has {list(array.shape[1:])} values per step, wanted {list(shape)}"
                )
            self._columns[name] = array.reshape(len(array), size)
        self.text = "seeded random values" if recording is None else f"recorded in {recording}"

    def at(self, k: int) -> dict[str, Array]:
        """Flat values of each input at step k."""
        return {name: column[k % len(column)] for name, column in self._columns.items()}


def fill_message(
    message: Any, topic: TopicMap, inputs: dict[str, Array], stamp: Any, *, nan: bool = False, wrong_size: bool = False
) -> None:
    """Writes a topic's fields with the mapping undone, so that the policy is fed the source's values; `stamp` where there is a header."""
    if hasattr(message, "header"):
        message.header.stamp = stamp
    for field in topic.fields:
        values = _raw(field, inputs[field.input])
        if nan:
            values[0] = math.nan
        if topic.type.endswith("MultiArray"):
            message.data = [float(v) for v in values] + ([0.0] if wrong_size else [])
        elif topic.type == "sensor_msgs/JointState":
            names = list(topic.joints) or [f"joint_{i}" for i in range(field.size)]
            message.name = names
            setattr(message, field.field, [float(v) for v in values] + ([0.0] if wrong_size else []))
        elif topic.type == "sensor_msgs/Imu":
            _imu(message, field.field, values)
        else:
            _twist(message.twist if topic.type.endswith("Stamped") else message, field.field, values)


def _raw(field: FieldMap, values: Array) -> Array:
    raw = np.array(values[field.at : field.at + field.size], dtype=np.float64)
    if field.scale:
        raw /= np.array(field.scale)
    if field.offset:
        raw += np.array(field.offset)
    return raw


def _imu(message: Any, name: str, values: Array) -> None:
    if name == "projected_gravity":
        # The rotation that turns (0, 0, -1) into the given direction: an equivalent orientation without its yaw.
        x, y, z = values / (np.linalg.norm(values) or 1.0)
        w = math.sqrt(max(0.0, (1 - z) / 2))
        q = message.orientation
        q.w, q.x, q.y, q.z = (w, -y / (2 * w), x / (2 * w), 0.0) if w > 1e-9 else (0.0, 1.0, 0.0, 0.0)
        return
    target = getattr(message, name)
    for axis, value in zip("xyzw", values, strict=False):
        setattr(target, axis, float(value))


def _twist(twist: Any, name: str, values: Array) -> None:
    if name == "planar":
        twist.linear.x, twist.linear.y, twist.angular.z = (float(v) for v in values)
        return
    target = getattr(twist, name)
    target.x, target.y, target.z = (float(v) for v in values)
