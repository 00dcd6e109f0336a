"""The action as a command: clip, order, scale, offset and limits into one buffer that the message keeps."""

from __future__ import annotations

import array
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.measure.node.mapping import CommandMap
from robot_perf.specs import PolicySpec


class Command:
    """`fill(action)` writes the command into `values`, the array that the message holds. Nothing is allocated."""

    def __init__(self, command: CommandMap, spec: PolicySpec) -> None:
        assert spec.action is not None
        tensor = spec.outputs[spec.action]
        have = math.prod(tensor.shape)
        self.map = command
        self.size = len(command.order) or have
        self.values = array.array("f" if command.type.endswith("Float32MultiArray") else "d", bytes(0))
        self.values.extend([0.0] * self.size)
        self._view = np.frombuffer(self.values, dtype="f4" if self.values.typecode == "f" else "f8")
        self._all = np.zeros(have)
        self._some = np.zeros(self.size)
        self._order = np.array(command.order, dtype=np.intp) if command.order else None
        self._scale = np.array(command.scale) if command.scale else None
        self._offset = np.array(command.offset) if command.offset else None
        self._limits = None if command.limits is None else (np.array(command.limits[0]), np.array(command.limits[1]))

    def fill(self, action: NDArray[Any]) -> None:
        """clip(action)[order] * scale + offset, then the limits."""
        whole, some = self._all, self._some
        whole[...] = action.reshape(-1)
        if self.map.clip is not None:
            np.clip(whole, self.map.clip[0], self.map.clip[1], out=whole)
        if self._order is not None:
            np.take(whole, self._order, out=some)
        else:
            some[...] = whole
        if self._scale is not None:
            np.multiply(some, self._scale, out=some)
        if self._offset is not None:
            np.add(some, self._offset, out=some)
        if self._limits is not None:
            np.clip(some, self._limits[0], self._limits[1], out=some)
        self._view[...] = some
