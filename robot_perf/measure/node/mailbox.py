"""What the node is fed: one slot a topic, replaced whole by the executor, read by the loop without a lock.

A message is checked and converted where it arrives, in the executor's thread: a wrong size, an unknown joint or a value that is
not finite never reaches a slot, and is counted. The loop copies what is new into arrays that exist from the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robot_perf.measure.node.mapping import FieldMap, NodeMapping, TopicMap
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.specs import PolicySpec

Array = NDArray[Any]

STARVED, STALE, WITHHELD = 1, 2, 4  # bits of the column `flags`
NODE_COLUMNS = ("observation_ns", "published_ns", "header_age_ns", "flags")


class Arrival(NamedTuple):
    """One converted message. `arrived_ns` is CLOCK_MONOTONIC at callback entry; the header's age is -1 without a stamp."""

    pieces: tuple[Array, ...]
    arrived_ns: int
    stamp_ns: int
    header_age_ns: int


class Inbox:
    """One topic's slot and its counts."""

    def __init__(self, topic: TopicMap, dtypes: dict[str, str], stale_after_ns: int) -> None:
        self.map = topic
        self.stale_after_ns = topic.stale_after_ns or stale_after_ns
        self.slot: Arrival | None = None
        self.received = self.malformed = self.nonfinite = 0
        self.problem = ""
        self._convert = [_converter(f, dtypes[f.input]) for f in topic.fields]
        self._names: Sequence[str] = ()
        self._order: Array | None = None

    def put(
        self, message: Any, arrived_ns: int, stamp_ns: int = NOT_MEASURED, header_age_ns: int = NOT_MEASURED
    ) -> bool:
        """Converts and replaces the slot; False when the message was refused (`problem` then says why)."""
        self.received += 1
        pieces = []
        for field, convert in zip(self.map.fields, self._convert, strict=True):
            values = self._values(message, field)
            if values is None or len(values) != field.size:
                self.malformed += 1
                if values is not None:
                    self.problem = f"{field.field} has {len(values)} values, wanted {field.size}"
                return False
            piece = convert(values)
            if not np.isfinite(piece).all():
                self.nonfinite += 1
                self.problem = f"{field.field} holds NaN or infinity"
                return False
            pieces.append(piece)
        self.slot = Arrival(tuple(pieces), arrived_ns, stamp_ns, header_age_ns)
        return True

    def _values(self, message: Any, field: FieldMap) -> Sequence[float] | None:
        kind, name = self.map.type, field.field
        if kind.endswith("MultiArray"):
            return message.data  # type: ignore[no-any-return]
        if kind == "sensor_msgs/JointState":
            return self._joints(message, name)
        if kind == "sensor_msgs/Imu":
            return _imu(message, name)
        twist = message.twist if kind == "geometry_msgs/TwistStamped" else message
        if name == "planar":
            return (twist.linear.x, twist.linear.y, twist.angular.z)
        vector = getattr(twist, name)
        return (vector.x, vector.y, vector.z)

    def _joints(self, message: Any, name: str) -> Sequence[float] | None:
        values = getattr(message, name)
        if not self.map.joints:
            return values  # type: ignore[no-any-return]
        if self._order is None or message.name != self._names:
            where = {joint: i for i, joint in enumerate(message.name)}
            if lost := [j for j in self.map.joints if j not in where]:
                self.problem = f"JointState lacks {', '.join(lost[:4])}"
                return None
            self._names, self._order = list(message.name), np.array([where[j] for j in self.map.joints])
        if len(values) != len(self._names):
            self.problem = f"{name} has {len(values)} values for {len(self._names)} names"
            return None
        return np.asarray(values)[self._order]  # type: ignore[return-value]


def _imu(message: Any, name: str) -> Sequence[float]:
    if name in ("orientation", "projected_gravity"):
        q = message.orientation
        if name == "orientation":
            return (q.x, q.y, q.z, q.w)
        # Gravity's unit vector (0, 0, -1) in the body frame: the negated third row of the rotation matrix.
        return (
            -2 * (q.x * q.z - q.w * q.y),
            -2 * (q.y * q.z + q.w * q.x),
            -(1 - 2 * (q.x * q.x + q.y * q.y)),
        )
    vector = getattr(message, name)
    return (vector.x, vector.y, vector.z)


def _converter(field: FieldMap, dtype: str) -> Callable[[Sequence[float]], Array]:
    scale = np.array(field.scale) if field.scale else None
    offset = np.array(field.offset) if field.offset else None

    def convert(values: Sequence[float]) -> Array:
        array = np.array(values, dtype=np.float64)
        if offset is not None:
            array -= offset
        if scale is not None:
            array *= scale
        if field.clip is not None:
            np.clip(array, *field.clip, out=array)
        with np.errstate(over="ignore"):
            return array.astype(dtype)  # what float32 can't hold becomes infinite and is refused

    return convert


class LiveObservations:
    """The arrays of `spec.fed`, kept up to date from the inboxes. `reader()` is what `make_step` takes.

    After each read: `oldest_ns`, the arrival of the oldest message in use; `header_age_ns` and `stamp_ns` of the oldest that has a
    header; `flags`.
    """

    def __init__(self, spec: PolicySpec, mapping: NodeMapping, stale_after_ns: int) -> None:
        dtypes = {spec.inputs[i].name: spec.inputs[i].dtype for i in spec.fed}
        self.arrays = tuple(np.zeros(spec.inputs[i].shape, spec.inputs[i].dtype) for i in spec.fed)
        flat = {spec.inputs[i].name: a.reshape(-1) for i, a in zip(spec.fed, self.arrays, strict=True)}
        self.inboxes = [Inbox(t, dtypes, stale_after_ns) for t in mapping.topics]
        self._targets = [tuple(flat[f.input][f.at : f.at + f.size] for f in t.fields) for t in mapping.topics]
        self._counters = [
            a
            for i, a in zip(spec.fed, self.arrays, strict=True)
            if i in spec.counters and not _is_fed(spec.inputs[i].name, mapping)
        ]
        self._seen: list[Arrival | None] = [None] * len(self.inboxes)
        for name, at, values in mapping.constants:
            flat[name][at : at + len(values)] = values
        f = mapping.feedback
        self._feedback = None if f is None else flat[f.input][f.at : f.at + f.size]
        self.oldest_ns = self.header_age_ns = self.stamp_ns = NOT_MEASURED
        self.flags = 0

    @property
    def missing(self) -> list[str]:
        """Topics that have brought nothing usable yet."""
        return [b.map.topic for b in self.inboxes if b.slot is None]

    def forget(self) -> None:
        """Empties every slot: an activation never acts on what came before it."""
        for i, inbox in enumerate(self.inboxes):
            inbox.slot = None
            self._seen[i] = None
        if self._feedback is not None:
            self._feedback[...] = 0
        self.oldest_ns = self.header_age_ns = self.stamp_ns = NOT_MEASURED

    def look(self, now_ns: int) -> int:
        """STARVED when no topic brought anything since the last read, STALE when one is older than its limit."""
        flags = STARVED
        for inbox, seen in zip(self.inboxes, self._seen):  # noqa: B905 - equal by construction, and this is the loop
            slot = inbox.slot
            if slot is not seen:
                flags &= ~STARVED
            if slot is None or now_ns - slot.arrived_ns > inbox.stale_after_ns:
                flags |= STALE
        self.flags = flags
        return flags

    def reader(self) -> Callable[[int], tuple[Array, ...]]:
        """Copies what is new since the last step. Each step gets small arrays of its own, which the policy may keep."""
        inboxes, targets, seen, arrays = self.inboxes, self._targets, self._seen, self.arrays
        indexes, counters = range(len(self.inboxes)), self._counters

        def at(k: int) -> tuple[Array, ...]:
            oldest: Arrival | None = None
            stamped: Arrival | None = None
            for i in indexes:
                slot = inboxes[i].slot
                if slot is None:
                    continue
                if slot is not seen[i]:
                    seen[i] = slot
                    for target, piece in zip(targets[i], slot.pieces):  # noqa: B905 - as above
                        target[...] = piece
                if oldest is None or slot.arrived_ns < oldest.arrived_ns:
                    oldest = slot
                if slot.stamp_ns > 0 and (stamped is None or slot.arrived_ns < stamped.arrived_ns):
                    stamped = slot
            if stamped is not None:
                self.header_age_ns, self.stamp_ns = stamped.header_age_ns, stamped.stamp_ns
            if oldest is not None:
                self.oldest_ns = oldest.arrived_ns
            for array in counters:
                array.fill(k if k > 0 else 0)
            return tuple([a.copy() for a in arrays])

        return at

    def remember(self, action: Array) -> None:
        """The action becomes the next step's `previous_action`."""
        if self._feedback is not None:
            self._feedback[...] = action.reshape(-1)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Per topic: received, refused for size, refused for NaN, and the last reason."""
        return {
            b.map.topic: {
                "received": b.received,
                "malformed": b.malformed,
                "nonfinite": b.nonfinite,
                "problem": b.problem,
            }
            for b in self.inboxes
        }


def _is_fed(name: str, mapping: NodeMapping) -> bool:
    return any(f.input == name for t in mapping.topics for f in t.fields)


def input_sizes(spec: PolicySpec) -> dict[str, int]:
    """Number of values of each fed input, by name."""
    return {spec.inputs[i].name: math.prod(spec.inputs[i].shape) for i in spec.fed}
