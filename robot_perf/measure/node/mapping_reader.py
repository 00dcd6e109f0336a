"""Reads a node's mapping against a policy: every key, size and value is checked before anything runs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping as MappingType
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.measure.node.mapping import (
    COMMAND_TYPES,
    OBSERVATION_TYPES,
    CommandMap,
    Feedback,
    FieldMap,
    NodeMapping,
    TopicMap,
)
from robot_perf.specs import PolicySpec, TensorSpec


def resolve_mapping(data: MappingType[str, Any], spec: PolicySpec, *, source: str = "mapping") -> NodeMapping:
    """The mapping for a policy whose inputs and outputs are known. Raises UsageError that names the key and what is allowed."""
    reader = _Reader(source, spec)
    reader.only(data, ("observations", "previous_action", "constants", "command"), "top level")
    topics = tuple(reader.topic(t, i) for i, t in enumerate(reader.items(data.get("observations"), "observations")))
    feedback = reader.feedback(data.get("previous_action"))
    constants = tuple(reader.constant(c, i) for i, c in enumerate(reader.items(data.get("constants", []), "constants")))
    command = reader.command(data.get("command", {}))
    mapping = NodeMapping(topics, command, feedback, constants)
    _check_coverage(mapping, spec, source)
    names = [t.topic for t in topics]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise UsageError(f"{source}: topic {twice} is listed twice", do="Put all its fields under one entry.")
    return mapping


class _Reader:
    def __init__(self, source: str, spec: PolicySpec) -> None:
        self.source, self.spec = source, spec
        self.inputs = {spec.inputs[i].name: spec.inputs[i] for i in spec.fed}

    def fail(self, what: str, why: str = "", do: str = "") -> UsageError:
        return UsageError(f"{self.source}: {what}", why=why, do=do)

    def only(self, data: Any, keys: tuple[str, ...], where: str) -> None:
        if not isinstance(data, MappingType):
            raise self.fail(f"{where} is {type(data).__name__}, wanted keys and values")
        for key in data:
            if key not in keys:
                close = difflib.get_close_matches(str(key), keys, n=1)
                hint = f"Did you mean {close[0]}?" if close else ""
                raise self.fail(f"{where}: unknown key {key!r}", f"Known: {', '.join(keys)}.", hint)

    def items(self, data: Any, where: str) -> list[Any]:
        if not isinstance(data, list):
            raise self.fail(f"{where} is {type(data).__name__}, wanted a list")
        return data

    def topic(self, data: Any, index: int) -> TopicMap:
        where = f"observations[{index}]"
        self.only(data, ("topic", "type", "fields", "joints", "stale_after_ms"), where)
        name = self.text(data, "topic", where)
        kind = self.choice(data, "type", tuple(OBSERVATION_TYPES), where)
        joints = self.names(data.get("joints", []), f"{where}.joints")
        if joints and kind != "sensor_msgs/JointState":
            raise self.fail(f"{where}: joints belong to sensor_msgs/JointState, not to {kind}")
        fields = tuple(
            self.field(f, kind, joints, f"{where}.fields[{i}]")
            for i, f in enumerate(self.items(data.get("fields"), f"{where}.fields"))
        )
        if not fields:
            raise self.fail(f"{where}: topic {name} feeds nothing", do="List at least one field.")
        stale = data.get("stale_after_ms")
        return TopicMap(
            name,
            kind,
            fields,
            joints,
            None if stale is None else round(self.number(stale, f"{where}.stale_after_ms", 0) * 1e6),
        )

    def field(self, data: Any, kind: str, joints: tuple[str, ...], where: str) -> FieldMap:
        self.only(data, ("field", "input", "at", "size", "scale", "offset", "clip"), where)
        name = self.choice(data, "field", tuple(OBSERVATION_TYPES[kind]), where)
        tensor = self.tensor(data, where)
        at = self.whole(data.get("at", 0), f"{where}.at")
        natural = OBSERVATION_TYPES[kind][name] or len(joints) or None
        size = data.get("size", natural if natural is not None else math.prod(tensor.shape) - at)
        size = self.whole(size, f"{where}.size", 1)
        if natural is not None and size != natural:
            raise self.fail(f"{where}: {name} has {natural} values, size says {size}")
        self.fits(tensor, at, size, where)
        return FieldMap(
            name, tensor.name, at, size, self.values(data.get("scale"), size, f"{where}.scale"),
            self.values(data.get("offset"), size, f"{where}.offset"), self.clip(data.get("clip"), f"{where}.clip"),
        )  # fmt: skip

    def feedback(self, data: Any) -> Feedback | None:
        if data is None:
            return None
        self.only(data, ("input", "at"), "previous_action")
        if self.spec.action is None:
            raise self.fail("previous_action: which output is the action is not known")
        tensor, at = self.tensor(data, "previous_action"), self.whole(data.get("at", 0), "previous_action.at")
        size = math.prod(self.spec.outputs[self.spec.action].shape)
        self.fits(tensor, at, size, "previous_action")
        return Feedback(tensor.name, at, size)

    def constant(self, data: Any, index: int) -> tuple[str, int, tuple[float, ...]]:
        where = f"constants[{index}]"
        self.only(data, ("input", "at", "values"), where)
        tensor, at = self.tensor(data, where), self.whole(data.get("at", 0), f"{where}.at")
        values = self.items(data.get("values"), f"{where}.values")
        numbers = tuple(self.number(v, f"{where}.values") for v in values)
        self.fits(tensor, at, len(numbers), where)
        return tensor.name, at, numbers

    def command(self, data: Any) -> CommandMap:
        keys = ("topic", "type", "joints", "order", "scale", "offset", "clip", "limits", "time_from_start_ms")
        self.only(data, keys, "command")
        kind = self.choice(data, "type", COMMAND_TYPES, "command") if "type" in data else COMMAND_TYPES[0]
        if self.spec.action is None:
            raise self.fail("which output is the action is not known")
        have = math.prod(self.spec.outputs[self.spec.action].shape)
        order = tuple(self.whole(v, "command.order") for v in self.items(data.get("order", []), "command.order"))
        if any(i >= have for i in order) or len(set(order)) != len(order):
            raise self.fail(
                f"command.order {list(order)} does not choose from an action of {have} values", "Each index once."
            )
        size = len(order) or have
        joints = self.names(data.get("joints", []), "command.joints")
        if kind == "trajectory_msgs/JointTrajectory" and len(joints) != size:
            raise self.fail(f"command.joints names {len(joints)} joints for {size} values")
        if kind == "geometry_msgs/Twist" and size not in (2, 3, 6):
            raise self.fail(
                f"command: a Twist from {size} values",
                "2: linear.x, angular.z; 3: linear.x, linear.y, angular.z; 6: all.",
                "Choose them with order.",
            )
        limits = data.get("limits")
        pair = None
        if limits is not None:
            low, high = (self.values(v, size, "command.limits") for v in self.pair(limits, "command.limits"))
            if any(a > b for a, b in zip(low, high, strict=True)):
                raise self.fail("command.limits: a lower limit lies above its upper one")
            pair = (low, high)
        ahead = data.get("time_from_start_ms")
        return CommandMap(
            self.text(data, "topic", "command") if "topic" in data else "~/action", kind, joints, order,
            self.values(data.get("scale"), size, "command.scale"), self.values(data.get("offset"), size, "command.offset"),
            self.clip(data.get("clip"), "command.clip"), pair,
            None if ahead is None else round(self.number(ahead, "command.time_from_start_ms", 0) * 1e6),
        )  # fmt: skip

    def text(self, data: Any, key: str, where: str) -> str:
        value = data.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.fail(f"{where}.{key} is {value!r}, wanted a name")
        return value

    def choice(self, data: Any, key: str, allowed: tuple[str, ...], where: str) -> str:
        value = self.text(data, key, where).replace("/msg/", "/")
        if value not in allowed:
            raise self.fail(f"{where}.{key} {value!r} is unknown", f"Allowed: {', '.join(allowed)}.")
        return value

    def tensor(self, data: Any, where: str) -> TensorSpec:
        name = data.get("input")
        if name is None and len(self.inputs) == 1:
            return next(iter(self.inputs.values()))
        if name not in self.inputs:
            raise self.fail(
                f"{where}: input {name!r} is not one that the policy is fed", f"Fed: {', '.join(self.inputs)}."
            )
        return self.inputs[name]

    def fits(self, tensor: TensorSpec, at: int, size: int, where: str) -> None:
        have = math.prod(tensor.shape)
        if at + size > have:
            raise self.fail(f"{where}: values {at} to {at + size - 1} don't fit {tensor.name}, which has {have}")

    def whole(self, value: Any, where: str, least: int = 0) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fail(f"{where} is {value!r}, wanted a whole number from {least}")
        return value

    def number(self, value: Any, where: str, least: float | None = None) -> float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not good or (least is not None and value < least):
            raise self.fail(
                f"{where} is {value!r}, wanted a finite number{'' if least is None else f' from {least:g}'}"
            )
        return float(value)

    def values(self, value: Any, size: int, where: str) -> tuple[float, ...]:
        """One number for all, or one each; empty where nothing is asked."""
        if value is None:
            return ()
        if not isinstance(value, list):
            return (self.number(value, where),) * size
        if len(value) != size:
            raise self.fail(f"{where} has {len(value)} values for {size}")
        return tuple(self.number(v, where) for v in value)

    def pair(self, value: Any, where: str) -> tuple[Any, Any]:
        if not isinstance(value, list) or len(value) != 2:
            raise self.fail(f"{where} is {value!r}, wanted [low, high]")
        return value[0], value[1]

    def clip(self, value: Any, where: str) -> tuple[float, float] | None:
        if value is None:
            return None
        low, high = (self.number(v, where) for v in self.pair(value, where))
        if low > high:
            raise self.fail(f"{where}: {low} lies above {high}")
        return low, high

    def names(self, value: Any, where: str) -> tuple[str, ...]:
        found = tuple(str(v) for v in self.items(value, where))
        if len(set(found)) != len(found):
            raise self.fail(f"{where} names a joint twice")
        return found


def _check_coverage(mapping: NodeMapping, spec: PolicySpec, source: str) -> None:
    """Every value of every fed input has exactly one source."""
    for position in spec.fed:
        tensor = spec.inputs[position]
        count = [0] * math.prod(tensor.shape)
        pieces = [(f.input, f.at, f.size) for t in mapping.topics for f in t.fields]
        pieces += [(name, at, len(values)) for name, at, values in mapping.constants]
        if mapping.feedback is not None:
            pieces.append((mapping.feedback.input, mapping.feedback.at, mapping.feedback.size))
        for name, at, size in pieces:
            if name == tensor.name:
                for i in range(at, at + size):
                    count[i] += 1
        if position in spec.counters and not any(count):
            continue
        if empty := [i for i, n in enumerate(count) if n == 0]:
            raise UsageError(
                f"{source}: nothing feeds {tensor.name}[{_ranges(empty)}]",
                do="Add a topic's field, previous_action or constants.",
            )
        if double := [i for i, n in enumerate(count) if n > 1]:
            raise UsageError(f"{source}: {tensor.name}[{_ranges(double)}] is fed twice")


def _ranges(indexes: list[int]) -> str:
    parts: list[str] = []
    start = previous = indexes[0]
    for i in [*indexes[1:], -2]:
        if i != previous + 1:
            parts.append(str(start) if start == previous else f"{start}:{previous + 1}")
            start = i
        previous = i
    return ", ".join(parts[:8]) + (", …" if len(parts) > 8 else "")
