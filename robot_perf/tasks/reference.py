"""The truth gate's reference: a policy's answers in float32 on the CPU, for fresh random inputs, as an .npz for the worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robot_perf.backends import default_backend
from robot_perf.backends.gpu.options import on_cuda
from robot_perf.backends.shared.reference import Order
from robot_perf.measure.order import WorkOrder
from robot_perf.policies.builtin import NETWORKS, NUMPY_NETWORKS
from robot_perf.specs import PolicySpec, StageSpec, to_json

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Reference:
    """`path` of the .npz, or None and the reason. `backend` is the CPU backend that answered, `steps` how often.

    `needed`: False where the backend is its own reference, so that nothing is missing.
    """

    path: str | None
    backend: str = ""
    steps: int = 0
    reason: str = ""
    needed: bool = True

    def conditions(self) -> dict[str, Any]:
        """JSON for a Run's conditions."""
        if self.path is None:
            return {"compared": False, "reason": self.reason}
        return {"compared": True, "against": f"{self.backend} in float32 on the CPU", "steps": self.steps}

    def notes(self) -> list[str]:
        """What a reader must know: that outputs which should have been compared were not, and why."""
        if self.path is not None or not self.needed:
            return []
        return [f"outputs not compared with a float32 run on the CPU: {self.reason}"]


def needs_reference(policy: PolicySpec, backend: str, options: Mapping[str, Any]) -> bool:
    """True on a CUDA device: another arithmetic, another queue, copies that may be missed.

    True for code that torch has compiled, in a stage of a pipeline too.
    """
    used = {str(s.policy.asked.get("backend") or backend) for s in policy.stages} or {backend}
    return "compile" in used or on_cuda(options)


def candidates(policy: PolicySpec) -> tuple[str, ...]:
    """CPU backends that can make the reference, in order of trial."""
    if policy.kind == "builtin" and policy.builtin.get("name") in NUMPY_NETWORKS:
        return ("onnxruntime", "eager", "python")
    if policy.kind == "builtin" and policy.builtin.get("name") in NETWORKS:
        return ("onnxruntime", "eager")
    return (default_backend(policy),)


def trials(policy: PolicySpec) -> list[tuple[tuple[str, ...], PolicySpec]]:
    """What is tried in order: CPU backends, and the policy that they answer for.

    Each stage of a pipeline runs on what makes its own reference: on the backend that it states it would be compared with itself.
    """
    if policy.kind != "pipeline":
        return [((backend,), policy) for backend in candidates(policy)]
    own = [candidates(s.policy) for s in policy.stages]
    found = []
    for turn in range(max(map(len, own))):
        chosen = tuple(names[min(turn, len(names) - 1)] for names in own)
        found.append((chosen, replace(policy, stages=tuple(map(_stage_on, policy.stages, chosen)))))
    return found


def _stage_on(stage: StageSpec, backend: str) -> StageSpec:
    return replace(stage, policy=replace(stage.policy, asked={**stage.policy.asked, "backend": backend}))


def make_reference(
    policy: PolicySpec,
    folder: Path,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    python: Mapping[str, str] | None = None,
) -> Reference:
    """The reference of `policy` in `folder`, made in a process of its own.

    100 steps for a policy with state, 20 else (fewer where their inputs would exceed 256 MiB). `seed` is the measurement's:
    the reference takes the next one, so that its inputs are not those of the loop. `options` of the CPU backend (ort_library),
    `python` interpreters by backend. Never raises for a policy: what can't be had is said in `reason`.
    """
    if policy.kind == "builtin" and policy.builtin.get("name") not in NETWORKS:
        return Reference(None, reason=f"{policy.name} computes nothing")
    reasons = []
    for turn, (chosen, tried) in enumerate(trials(policy)):
        order = Order(
            policy=tried,
            backend=chosen[0],
            options=dict(options or {}),
            seed=seed + 1,
            npz=str(folder / f"reference-{turn}.npz"),
            answer=str(folder / f"reference-{turn}.json"),
        )
        names = " and ".join(dict.fromkeys(chosen))
        answer = _answered(order, (python or {}).get(names, sys.executable))  # several share this command's own
        if "steps" in answer:
            return Reference(order.npz, names, int(answer["steps"]))
        reasons.append(f"{names}: {answer['reason']}")
        if not answer["unavailable"]:
            break
    return Reference(None, reason="; ".join(reasons))


def with_reference(
    order: WorkOrder, folder: Path, python: Mapping[str, str] | None = None
) -> tuple[WorkOrder, Reference]:
    """The order with its reference, where its backend needs one; the order as it is where none can be had."""
    if not needs_reference(order.policy, order.backend, order.options):
        return order, Reference(None, reason="a CPU backend is its own reference", needed=False)
    options = {k: v for k, v in order.options.items() if k == "ort_library"}
    made = make_reference(order.policy, folder, seed=order.seed, options=options, python=python)
    return (order if made.path is None else replace(order, reference=made.path)), made


def _answered(order: Order, python: str) -> dict[str, Any]:
    path = Path(order.answer).with_suffix(".order.json")
    path.write_text(json.dumps(to_json(order)), encoding="utf-8")
    parent = str(Path(__file__).resolve().parents[2])
    search = os.pathsep.join(p for p in (parent, os.environ.get("PYTHONPATH", "")) if p)
    # Hidden from the reference: a factory that looks for a device by itself shall answer on the CPU.
    environment = {**os.environ, "PYTHONPATH": search, "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            [python, "-m", "robot_perf.backends.shared.reference", str(path)],
            env=environment, capture_output=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"reason": f"its CPU reference could not be made: {error}"[:300], "unavailable": False}
    if not Path(order.answer).exists():
        tail = done.stderr.decode(errors="replace").strip().splitlines()
        return {
            "reason": f"the reference's process ended with {done.returncode}" + (f": {tail[-1][:200]}" if tail else ""),
            "unavailable": False,
        }
    found: dict[str, Any] = json.loads(Path(order.answer).read_text(encoding="utf-8"))
    return found
