"""The float32 CPU reference of a policy, made in a process of its own: `python -m robot_perf.backends.shared.reference ORDER.json`.

It writes inputs and outputs of its first steps as an .npz (`in.<position>`, `out.<position>`, a leading axis of steps) and what
happened as JSON. The measured process and the conductor import no second runtime for it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf import backends
from robot_perf.backends.protocol import Array, Runner
from robot_perf.backends.shared.check import remembers
from robot_perf.errors import RobotPerfError
from robot_perf.policies.observations import Observations, open_observations
from robot_perf.specs import PolicySpec, from_json, to_json

STATELESS_STEPS, STATEFUL_STEPS = 20, 100
LARGEST_INPUT_BYTES = 256 * 2**20
FEWEST_STEPS = 5
# Two runs of one CPU backend differ only by the order of sums between threads; more than this is a policy that draws numbers.
REPEATABLE = 1e-5


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """What to make: `policy` on the CPU `backend`, inputs from `seed`, written to `npz`; `answer` is the JSON's path."""

    policy: PolicySpec
    backend: str
    options: dict[str, Any]
    seed: int
    npz: str
    answer: str


def main(order_path: str) -> int:
    """Makes the reference, or says in the answer why there is none: `{"steps", "spec"}` or `{"reason", "unavailable"}`."""
    order = from_json(Order, json.loads(Path(order_path).read_text(encoding="utf-8")))
    try:
        answer = _make(order)
    except RobotPerfError as error:
        answer = {
            "reason": " ".join(str(error).split()),
            "unavailable": type(error).__name__ == "BackendUnavailableError",
        }
    except Exception as error:  # noqa: BLE001 - whatever the policy raises on the CPU is the reason
        answer = {"reason": f"the policy raised {type(error).__name__}: {error}"[:500], "unavailable": False}
    Path(order.answer).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _make(order: Order) -> dict[str, Any]:
    runner = backends.load(order.backend, order.policy, order.options)
    try:
        observations = open_observations(runner.spec, seed=order.seed)
        steps = _steps(runner.spec, observations)
        inputs, outputs = _run(runner, observations, steps)
        again = _run(runner, observations, steps)[1]
        if any(not _same(a, b) for x, y in zip(outputs, again, strict=True) for a, b in zip(x, y, strict=True)):
            return {
                "reason": "its answers differ from run to run on the CPU after a reset: it draws random numbers, or keeps state "
                "that its reset leaves",
                "unavailable": False,
            }
        arrays = {f"in.{where}": np.stack([row[i] for row in inputs]) for i, where in enumerate(runner.spec.fed)}
        arrays |= {f"out.{i}": np.stack([row[i] for row in outputs]) for i in range(len(runner.spec.outputs))}
        with Path(order.npz).open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
        return {
            "steps": steps,
            "spec": to_json(runner.spec),
            "facts": json.loads(json.dumps(dict(runner.facts()), default=str)),
        }
    finally:
        runner.close()


def _steps(spec: PolicySpec, observations: Observations) -> int:
    wanted = STATEFUL_STEPS if remembers(spec) else STATELESS_STEPS
    size = max(1, sum(a.nbytes for a in observations.at(0)))
    return max(FEWEST_STEPS, min(wanted, LARGEST_INPUT_BYTES // size))


def _run(runner: Runner, observations: Observations, steps: int) -> tuple[list[list[Array]], list[list[Array]]]:
    runner.reset()
    inputs, outputs = [], []
    for k in range(steps):
        inputs.append([np.array(a) for a in observations.at(k)])
        # A policy may write into what it is given; what is kept, and fed again, is what it was given.
        outputs.append([np.array(a) for a in runner.step([a.copy() for a in inputs[-1]])])
    return inputs, outputs


def _same(a: Array, b: Array) -> bool:
    scale = float(np.max(np.abs(a.astype(np.float64)), initial=0.0))
    return a.shape == b.shape and bool(
        np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=0, atol=1e-7 + REPEATABLE * scale, equal_nan=True)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
