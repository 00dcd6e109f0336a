"""What is asked for: policy, loop, budget, device. Frozen standard-library dataclasses.

They carry no validation of their own, so that the measured worker needs no pydantic: the conductor validates what people
wrote with `robot_perf.specs.validate`, and the worker rebuilds the same objects from plain JSON with `from_json`.
"""

from __future__ import annotations

from robot_perf.specs.budget import Budget
from robot_perf.specs.codec import from_json, to_json
from robot_perf.specs.device import DeviceSpec
from robot_perf.specs.loop import LoopSpec, RealTime
from robot_perf.specs.policy import PolicyCost, PolicySpec, StageInput, StageSpec, StatePair, TensorSpec

__all__ = [
    "Budget",
    "DeviceSpec",
    "LoopSpec",
    "PolicyCost",
    "PolicySpec",
    "RealTime",
    "StageInput",
    "StageSpec",
    "StatePair",
    "TensorSpec",
    "from_json",
    "to_json",
]
