"""Several files as one control step: each stage has its own runner, and feeds the next without a copy where it can."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from robot_perf.backends.protocol import Array, Arrays, Runner
from robot_perf.errors import RobotPerfError
from robot_perf.policies import wiring
from robot_perf.specs import PolicySpec, StageSpec, TensorSpec

Load = Callable[
    [str, PolicySpec, Mapping[str, Any]], Runner
]  # `robot_perf.backends.load`, which loads pipelines through here


def load(name: str, policy: PolicySpec, options: Mapping[str, Any], load_stage: Load) -> PipelineRunner:
    """Loads every stage by `load_stage`, on backend `name` or on the one the stage states. Errors name the stage."""
    with contextlib.ExitStack() as loaded:
        runner = _load(name, policy, options, load_stage, loaded)
        loaded.pop_all()
    return runner


def _load(
    name: str, policy: PolicySpec, options: Mapping[str, Any], load_stage: Load, loaded: contextlib.ExitStack
) -> PipelineRunner:
    runners: list[Runner] = []
    stages: list[StageSpec] = []
    for stage in policy.stages:
        chosen = str(stage.policy.asked.get("backend") or name)
        try:
            runner = load_stage(chosen, stage.policy, options)
        except RobotPerfError as error:
            error.what = f"{policy.name}: stage {stage.name}: {error.what}"
            raise
        loaded.callback(runner.close)
        runners.append(runner)
        stages.append(dataclasses.replace(stage, policy=runner.spec))
    wiring.check(policy.name, policy.inputs, tuple(stages))
    resolved = dataclasses.replace(
        policy,
        stages=tuple(stages),
        state_note="; ".join(f"{s.name}: {s.policy.state_note}" for s in stages),
        notes=policy.notes
        + tuple(n for n in (f"{s.name}: {n}" for s in stages for n in s.policy.notes) if n not in policy.notes),
    )
    at = policy.stage_action
    word = None if at is None else f"{at[0]}.{at[1]}"
    return PipelineRunner(wiring.with_action(resolved, word), runners)


class PipelineRunner:
    """Runs the stages in order. `spec.outputs` are all stages' outputs in order; `spec.action` is one of them."""

    def __init__(self, policy: PolicySpec, runners: Sequence[Runner]) -> None:
        self.spec = policy
        self.stage_names = tuple(s.name for s in policy.stages)
        self._runners = list(runners)
        self._feeds = [_Feed(policy.inputs, stage) for stage in policy.stages]
        self._results: dict[str, Arrays] = {}
        self._poisons = [r.poison for r in self._runners if hasattr(r, "poison")]
        self._busy = [r.pending for r in self._runners if hasattr(r, "pending")]

    def step(self, observation: Arrays) -> Arrays:
        """All stages in order; all outputs."""
        for index in range(len(self._runners)):
            self.run_stage(index, observation)
        return self.outputs()

    def run_stage(self, index: int, observation: Arrays) -> None:
        """Runs one stage on the host; pieces of the observation and of earlier stages feed it."""
        name = self.stage_names[index]
        self._results[name] = self._runners[index].step(self._feeds[index].gather(observation, self._results))

    def outputs(self) -> Arrays:
        """Outputs of all stages run so far, by position of `spec.outputs`."""
        return [array for name in self.stage_names for array in self._results.get(name, ())]

    def reset(self) -> None:
        """Every stage's reset."""
        for runner in self._runners:
            runner.reset()

    def state(self) -> Mapping[str, Array]:
        """The carried values of all stages, by `stage.input`."""
        found: dict[str, Array] = {}
        for name, runner in zip(self.stage_names, self._runners, strict=True):
            own: Mapping[str, Array] = getattr(runner, "state", dict)()
            found.update({f"{name}.{k}": v for k, v in own.items()})
        return found

    def counters(self) -> Mapping[str, int]:
        """The stages' events, by `stage.event`."""
        pairs = zip(self.stage_names, self._runners, strict=True)
        return {f"{name}.{k}": v for name, runner in pairs for k, v in runner.counters().items()}

    def facts(self) -> Mapping[str, Any]:
        """The stages' facts by stage, and of the whole what they make together."""
        return _together({n: dict(r.facts()) for n, r in zip(self.stage_names, self._runners, strict=True)})

    def poison(self) -> None:
        """Overwrites the answers of every stage that has places of its own for them."""
        for poison in self._poisons:
            poison()

    def pending(self) -> bool:
        """True while device work of any stage is unfinished; False where no stage has any."""
        return any(busy() for busy in self._busy)

    def reasons(self) -> Mapping[str, str]:
        """Why a stage's event happened, by `stage.event`."""
        pairs = zip(self.stage_names, self._runners, strict=True)
        return {f"{name}.{k}": v for name, r in pairs for k, v in getattr(r, "reasons", dict)().items()}

    def examine(self) -> Mapping[str, Any]:
        """The facts again, with what the stages look up once nothing is measured any more."""
        pairs = zip(self.stage_names, self._runners, strict=True)
        return _together({n: {**r.facts(), **getattr(r, "examine", dict)()} for n, r in pairs})

    def close(self) -> None:
        """Closes every stage."""
        for runner in self._runners:
            runner.close()


# Facts of a device that are the pipeline's own where every stage on a device says the same.
_ALIKE = (
    *("device", "device_name", "compute_capability", "integrated", "precision", "sync", "cuda_graph", "buffers"),
    *("stream_priority", "captured"),
)
_COUNTED = ("launches_per_step", "kernels_per_step")


def _together(stages: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """`stages` and what they make together: counts and build times added up, memory once, all of the stages on a device."""
    found: dict[str, Any] = {"stages": stages} | _same(list(stages.values()), "backend")
    on = {name: facts for name, facts in stages.items() if str(facts.get("device", "cpu")).startswith("cuda")}
    if not on:
        return found
    every = list(on.values())
    for key in _ALIKE:
        found |= _same(every, key)
    for key in _COUNTED:
        lacking = [name for name, facts in on.items() if facts.get(key) is None]
        found[key] = None if lacking else sum(facts[key] for facts in every)
        # before `examine` nobody has counted, and there is no reason yet
        reasons = [f"stage {name}: {on[name][f'{key}_reason']}" for name in lacking if f"{key}_reason" in on[name]]
        found |= {f"{key}_reason": reasons[0]} if reasons else {}
    built = [facts["build_ns"] for facts in every if facts.get("build_ns") is not None]
    return found | {"build_ns": sum(built) if built else None} | _memory(every)


def _same(every: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    """The fact that all say alike; nothing where they differ or lack it."""
    value = every[0].get(key)
    return {} if value is None or any(facts.get(key) != value for facts in every) else {key: value}


def _memory(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each stage reads what the whole process holds, or what has gone since it was loaded: the largest holds the others."""
    words = {facts.get("device_memory_is") for facts in every}
    read = [facts.get("device_memory_bytes") for facts in every]
    if len(words) > 1 or None in read:
        return {"device_memory_bytes": None, "device_memory_is": "not known: the stages read it in different ways"}
    return {"device_memory_bytes": max(n for n in read if n is not None), "device_memory_is": words.pop()}


class _Feed:
    """Gathers a stage's inputs: whole arrays are passed on, joined pieces are copied into one new array.

    New in each step: a stage may keep what it was fed.
    """

    def __init__(self, inputs: Sequence[TensorSpec], stage: StageSpec) -> None:
        self._parts: list[tuple[TensorSpec | None, list[tuple[str, int, slice, slice]]]] = []
        for where, feed in zip(stage.policy.fed, stage.feeds, strict=True):
            tensor = stage.policy.inputs[where]
            if len(feed.pieces) == 1 and feed.pieces[0][2:] == (None, None):
                source, position = feed.pieces[0][:2]
                self._parts.append((None, [(source, position, slice(None), slice(None))]))
                continue
            self._parts.append((tensor, [(s, p, slice(a, b), slice(None)) for s, p, a, b in feed.pieces]))
        self._placed = False

    def gather(self, observation: Arrays, results: Mapping[str, Arrays]) -> Arrays:
        """The stage's observation for this step."""
        if not self._placed:
            self._place(observation, results)
        gathered = []
        for tensor, pieces in self._parts:
            if tensor is None:
                source, position, _, _ = pieces[0]
                gathered.append(results[source][position] if source else observation[position])
                continue
            target = np.zeros(tensor.shape, tensor.dtype)
            for source, position, taken, put in pieces:
                array = results[source][position] if source else observation[position]
                target[..., put] = array[..., taken]
            gathered.append(target)
        return gathered

    def _place(self, observation: Arrays, results: Mapping[str, Arrays]) -> None:
        """Works out once where each piece goes on the last axis."""
        for _, pieces in self._parts:
            at = 0
            for i, (source, position, taken, _) in enumerate(pieces):
                array = results[source][position] if source else observation[position]
                width = len(range(*taken.indices(array.shape[-1]))) if array.ndim else 0
                pieces[i] = (source, position, taken, slice(at, at + width))
                at += width
        self._placed = True
