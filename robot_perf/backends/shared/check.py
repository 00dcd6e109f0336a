"""Whether a loaded policy answers rightly: against expected outputs, for finite values, and for a state that moves.

Run before the measurement, from a reset state, and followed by a reset. A policy that fails here makes the measurement INVALID
whatever its latency.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robot_perf.backends.protocol import Array, Runner
from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shown
from robot_perf.policies.formats import npz
from robot_perf.policies.observations import Observations
from robot_perf.specs import PolicySpec

ABSOLUTE = 1e-6
# Relative to max|want| of each output, by the arithmetic: rounding each product's operands moves real policies by 2e-4 to 9e-4
# in float16, by 2e-7 in float32 against float64.
RELATIVE = {"stateless": 1e-5, "recurrent": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
FINITE_STEPS = 20


def expected_outputs(path: str, spec: PolicySpec) -> dict[int, Array]:
    """Recorded outputs by position, [steps, ...], from the keys `out.<position>` or `out.<name>` of an .npz.

    Raises PolicyError for a key that fits no output, or a name that several outputs have.
    """
    found: dict[int, Array] = {}
    for key in npz.headers(path):
        if not key.startswith("out."):
            continue
        word = key.removeprefix("out.")
        where = [i for i, t in enumerate(spec.outputs) if t.name == word]
        if word.isdigit() and int(word) < len(spec.outputs):
            where = [int(word)]
        if len(where) != 1:
            raise PolicyError(
                f"expected outputs {path}: {shown(key)} fits {len(where)} outputs of {spec.name}",
                why=f"Outputs: {', '.join(f'{i} {shown(t.name, 30)}' for i, t in enumerate(spec.outputs))}.",
                do="Name them by position: out.0, out.1, …",
            )
        found[where[0]] = npz.leading(path, key)
    return found


def check_outputs(
    runner: Runner,
    observations: Observations,
    expected: Mapping[int, Array] | None = None,
    *,
    relative: float | None = None,
    each: Callable[[], Any] | None = None,
) -> str | None:
    """None when the outputs are finite and equal the expected ones, else the reason in one sentence.

    Resets, feeds the first steps (all expected ones, at least `FINITE_STEPS`), compares by position with
    max|got - want| <= 1e-6 + r * max|want| per output, and resets again. `relative` overrides r (for a device that computes in
    TF32 or float16); `each` is called after each step. Output buffers of a device runner are poisoned before each step: one
    that writes nothing would else answer with what the step before left there.
    """
    expected = expected or {}
    runner.reset()
    steps = max([FINITE_STEPS, *(len(a) for a in expected.values())])
    collected: dict[int, list[Array]] = {i: [] for i in expected}
    reason = None
    poison: Callable[[], None] = getattr(runner, "poison", lambda: None)
    for k in range(steps):
        poison()
        outputs = runner.step(observations.at(k))
        reason = reason or _not_finite(outputs, k)
        for i, kept in collected.items():
            if len(kept) < len(expected[i]):
                kept.append(np.array(outputs[i]))
        if each is not None:
            each()
    runner.reset()
    r = RELATIVE["recurrent" if remembers(runner.spec) else "stateless"] if relative is None else relative
    differences = (compare(i, collected[i], expected[i], r) for i in sorted(expected))
    return next((d for d in differences if d is not None), reason)


def compare(position: int, got: list[Array], want: Array, relative: float) -> str | None:
    """None when one output agrees with its recording over its steps, else the reason with both numbers."""
    stacked = np.stack(got)
    if stacked.shape != want.shape:
        return (
            f"output {position} has the shape {list(stacked.shape[1:])} per step, the recording {list(want.shape[1:])}"
        )
    low = {"float16": "float16", "bfloat16": "bfloat16"}.get(stacked.dtype.name)
    r = max(relative, RELATIVE[low]) if low else relative
    if not want.size:
        return None
    a, b = stacked.astype(np.float64), want.astype(np.float64)
    scale = float(np.max(np.abs(b)))
    line = ABSOLUTE + r * scale
    error = np.abs(a - b)
    worst = float(np.max(error)) if np.isfinite(a).all() else float("inf")
    if worst <= line:
        return None
    late = np.where(np.isfinite(error), error, np.inf).reshape(len(a), -1).max(axis=1) > line
    return (
        f"output {position} differs from its recording by {worst:.3g} (allowed {line:.3g}, largest value {scale:.3g}), "
        f"first at step {int(np.argmax(late))}"
    )


def state_findings(runner: Runner, observations: Observations, steps: int = FINITE_STEPS) -> list[str]:
    """What is odd about the state over varied steps from a reset: it never changes, turns NaN, or grows without bound."""
    read = getattr(runner, "state", None)
    if not callable(read):
        return []
    runner.reset()
    history = [{k: np.array(v, dtype=np.float64) for k, v in read().items()}]
    for k in range(steps):
        runner.step(observations.at(k))
        history.append({k: np.array(v, dtype=np.float64) for k, v in read().items()})
    runner.reset()
    findings = []
    for name in history[-1]:
        values = [h[name] for h in history if name in h]
        sizes = [float(np.max(np.abs(v), initial=0.0)) for v in values]
        if not all(np.isfinite(v).all() for v in values):
            findings.append(f"state {name} is not finite within {steps} steps")
        elif all(np.array_equal(v, values[0]) for v in values):
            findings.append(f"state {name} never changes over {steps} varied steps")
        elif _grows(sizes):
            findings.append(
                f"state {name} grows without bound: {sizes[1]:.3g} after 1 step, {sizes[-1]:.3g} after {steps}"
            )
    return findings


def _grows(sizes: list[float]) -> bool:
    # Geometric growth to the end: an LSTM's cell or a counter grows steadily but not by a factor in every step.
    late = sizes[len(sizes) // 2 :]
    return len(late) > 3 and min(late) > 0 and all(b > 1.2 * a for a, b in itertools.pairwise(late))


def _not_finite(outputs: Any, step: int) -> str | None:
    for i, array in enumerate(outputs):
        if np.asarray(array).dtype.kind in "fc" and not np.isfinite(array).all():
            return f"output {i} is not finite (NaN or infinite) at step {step}"
    return None


def remembers(spec: PolicySpec) -> bool:
    """True for a policy with state, as far as its loader found."""
    return any(not part.endswith("none found") for part in spec.state_note.split("; "))
