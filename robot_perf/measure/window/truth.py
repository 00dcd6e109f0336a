"""The truth gate: outputs against a recording or a reference, before anything is timed."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from robot_perf.backends.gpu.options import TOLERANCE, tolerance
from robot_perf.backends.protocol import Runner
from robot_perf.backends.shared.check import check_outputs, expected_outputs
from robot_perf.measure.order import WorkOrder
from robot_perf.policies.observations import Observations, open_observations


@dataclass
class Truth:
    """What the gate found: `invalid` reasons, and how many steps of each output were checked."""

    invalid: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    relative: float | None = None


# A reference of a large policy takes seconds to read and to answer: it is asked once of each loaded runner, not in every block.
# By the runner itself, not its id: a node loads one after the other, and the next one may lie where the last one lay.
_asked: WeakKeyDictionary[Runner, dict[str, Truth]] = WeakKeyDictionary()


def truth(order: WorkOrder, runner: Runner, observations: Observations) -> Truth:
    """Compares the runner with `order.observations` where they hold outputs, and with `order.reference`. Resets the state."""
    found = Truth()
    if order.observations is not None:
        expected = expected_outputs(order.observations, runner.spec)
        if expected:
            found.relative = tolerance(order.options)
            reason = check_outputs(runner, observations, expected, relative=found.relative)
            found.checked = {str(i): len(values) for i, values in expected.items()}
            found.invalid += [reason] if reason else []
    if order.reference is not None:
        known = _asked.setdefault(runner, {})
        if order.reference not in known:
            known[order.reference] = _against(order.reference, order, runner)
        reference = known[order.reference]
        found.invalid += reference.invalid
        found.checked |= reference.checked
        found.relative = reference.relative
    return found


def _against(path: str, order: WorkOrder, runner: Runner) -> Truth:
    relative = tolerance(order.options) or TOLERANCE["fp32"]  # another CPU runtime orders its sums in another way, too
    expected = expected_outputs(path, runner.spec)
    reason = check_outputs(runner, open_observations(runner.spec, path=path), expected, relative=relative)
    invalid = [f"against its float32 CPU reference: {reason}"] if reason else []
    return Truth(invalid, {str(i): len(v) for i, v in expected.items()}, relative)
