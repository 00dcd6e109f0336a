"""Policies the product brings itself: no download, public dimensions, seeded weights, the same rules as a loaded file.

`null` answers at once (the harness floor), `spin:<µs>` busy-waits a known duration (the harness must report it), `mlp`, `gru`
and `lstm` have the dimensions of published locomotion and quadrotor policies, `act` those of an action-chunking transformer.
Every dimension is an option.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from robot_perf.errors import UsageError, did_you_mean
from robot_perf.policies.asked import Asked, named_counters, position, shown
from robot_perf.policies.builtin import act
from robot_perf.specs import PolicyCost, PolicySpec, StatePair, TensorSpec

# name -> preset -> dimensions; the first preset is the default. Published once, they stay: numbers are compared across versions.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "mlp": {
        "quadruped": {"obs": 48, "hidden": [512, 256, 128], "actions": 12},
        "humanoid": {"obs": 480, "hidden": [512, 256, 128], "actions": 29},
        "tiny": {"obs": 12, "hidden": [32, 32], "actions": 4},
    },
    "lstm": {
        "small": {"obs": 47, "memory": 64, "hidden": [32], "actions": 12},
        "large": {"obs": 96, "memory": 256, "hidden": [256, 256, 128], "actions": 29},
        "tiny": {"obs": 12, "memory": 16, "hidden": [16], "actions": 4},
    },
    "gru": {
        "quadrotor": {"obs": 22, "encoder": 16, "memory": 16, "actions": 4},
        "tiny": {"obs": 12, "encoder": 8, "memory": 8, "actions": 4},
    },
    "act": act.PRESETS,
}
NETWORKS = tuple(PRESETS)
NUMPY_NETWORKS = ("mlp", "lstm", "gru")  # those that have a form in plain numpy
NAMES = ("null", "spin", *NETWORKS)
DOCUMENTED_RATE_HZ = {"mlp": 50, "lstm": 50, "gru": 100, "act": 50}
LONGEST_SPIN_NS = 60 * 10**9
LARGEST_DIMENSION = 1 << 16
LARGEST_PARAMETERS = 2 * 10**8
_SPIN = re.compile(r"^spin:([0-9]+(?:\.[0-9]+)?)$")


def is_builtin(text: str) -> bool:
    """True for a name that belongs to the product, well written or not."""
    return text in NAMES or text.startswith("spin:")


def describe(text: str, asked: Asked) -> PolicySpec:
    """The PolicySpec of a built-in. Raises UsageError for an unknown preset or dimension."""
    if asked.shapes or asked.state:
        raise UsageError(
            f"{text} is built in: --shape and --state belong to files",
            do="Set its dimensions with --option NAME=VALUE.",
        )
    spec = _simple(text, asked) if text == "null" or text.startswith("spin") else _network(text, asked)
    return _as_asked(spec, text, asked)


def _as_asked(spec: PolicySpec, text: str, asked: Asked) -> PolicySpec:
    """The action is known; `--action` may name it. `--counter` may name what is fed. Raises UsageError for any other name."""
    if asked.action is not None:
        at = position(asked.action, spec.outputs, policy=text, option="--action", what="output")
        if at != spec.action:
            raise UsageError(
                f"{text}: --action {shown(asked.action)}: {spec.outputs[at].name} is state, not the action",
                do="Leave it out, or write --action 0.",
            )
    if asked.counters is None:
        return spec
    carried = {pair.target for pair in spec.state}
    return replace(spec, counters=named_counters(asked.counters, spec.inputs, carried, policy=text))


def _simple(text: str, asked: Asked) -> PolicySpec:
    if asked.preset or asked.options:
        raise UsageError(f"{text} has no presets and no options")
    builtin: dict[str, Any] = {"name": "null"}
    if text != "null":
        match = _SPIN.match(text)
        duration_ns = round(float(match[1]) * 1000) if match else 0
        if not 0 < duration_ns <= LONGEST_SPIN_NS:
            raise UsageError(
                f"{shown(text)} is not a duration to spin",
                why="Wanted: spin:<µs>, above 0, at most 60000000.",
                do="For example spin:250",
            )
        builtin = {"name": "spin", "duration_ns": duration_ns}
    return PolicySpec(
        name=text,
        kind="builtin",
        inputs=(TensorSpec("obs", "float32", (1, 48)),),
        outputs=(TensorSpec("actions", "float32", (1, 12)),),
        action=0,
        seed=asked.seed,
        builtin=builtin,
        cost=PolicyCost(parameters=0, bytes_read=0, flop=0),
    )


def _network(name: str, asked: Asked) -> PolicySpec:
    presets = PRESETS[name]
    preset = asked.preset or next(iter(presets))
    if preset not in presets:
        raise UsageError(
            f"{name} has no preset {shown(preset)}",
            why=f"Presets: {', '.join(presets)}.",
            do=did_you_mean(preset, presets),
        )
    dims = _dimensions(name, presets[preset], asked.options)
    inputs, outputs, state = signature(name, dims)
    carried = ", ".join(f"{inputs[p.target].name}<-{outputs[p.source].name}" for p in state)
    count = f"{len(state)} pair{'s' if len(state) > 1 else ''}"
    parameters, flop = _cost(name, dims)
    if parameters > LARGEST_PARAMETERS:
        raise UsageError(
            f"{name} with these dimensions has {parameters:,} parameters", why=f"At most {LARGEST_PARAMETERS:,}."
        )
    if name == "act" and (fault := act.fault(dims)):
        raise UsageError(f"act: {fault}")
    changed = dims != presets[preset]
    return PolicySpec(
        name=f"{name}-{preset}" + ("-changed" if changed else ""),
        kind="builtin",
        inputs=inputs,
        outputs=outputs,
        action=0,
        state=state,
        state_note=f"state: {count} carried ({carried}), reset before measuring" if state else "state: none found",
        seed=asked.seed,
        chunk=int(dims.get("chunk", 1)),
        builtin={"name": name, "preset": preset, **dims},
        cost=PolicyCost(parameters=parameters, bytes_read=4 * parameters, flop=flop),
        metadata={"documented_rate_hz": str(DOCUMENTED_RATE_HZ[name])},
        notes=(f"{name}: dimensions differ from the preset {preset}",) if changed else (),
    )


def signature(
    name: str, dims: Mapping[str, Any]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], tuple[StatePair, ...]]:
    """Inputs, outputs and state pairs of a network."""
    if name == "act":
        taken, answered = ([TensorSpec(n, "float32", s) for n, s in side] for side in act.signature(dims))
        return tuple(taken), tuple(answered), ()
    obs = TensorSpec("obs", "float32", (1, dims["obs"]))
    actions = TensorSpec("actions", "float32", (1, dims["actions"]))
    shape = (1, 1, dims["memory"]) if name == "lstm" else (1, dims.get("memory", 0))
    states = {"mlp": (), "gru": ("h",), "lstm": ("h", "c")}[name]
    inputs = (obs, *(TensorSpec(f"{s}_in", "float32", shape) for s in states))
    outputs = (actions, *(TensorSpec(f"{s}_out", "float32", shape) for s in states))
    return inputs, outputs, tuple(StatePair(target=i + 1, source=i + 1) for i in range(len(states)))


def layers(name: str, dims: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Dense layers of the part after the memory (of the whole network for `mlp`), as (columns, rows)."""
    first = dims["obs"] if name == "mlp" else dims["memory"]
    sizes = [first, *dims.get("hidden", ()), dims["actions"]]
    return list(itertools.pairwise(sizes))


def _cost(name: str, dims: Mapping[str, Any]) -> tuple[int, int]:
    if name == "act":
        return act.cost(dims)
    dense = layers(name, dims)
    gates = {"mlp": 0, "gru": 3, "lstm": 4}[name]
    encoder = [(dims["obs"], dims["encoder"])] if name == "gru" else []
    taken, memory = (dims["encoder"] if encoder else dims["obs"]), dims.get("memory", 0)
    products = sum(a * b for a, b in (*encoder, *dense)) + gates * memory * (taken + memory)
    biases = sum(b for _, b in (*encoder, *dense)) + 2 * gates * memory
    return products + biases, 2 * products


def _dimensions(name: str, preset: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    dims = dict(preset)
    for key, value in options.items():
        if key not in preset:
            raise UsageError(
                f"{name} has no option {shown(key)}",
                why=f"It has: {', '.join(preset)}.",
                do=did_you_mean(key, preset),
            )
        sizes = _sizes(value)
        many = isinstance(preset[key], list)
        if sizes is None or not sizes or (len(sizes) != 1 and not many):
            raise UsageError(
                f"{name}: {key}={shown(value)} is not {'a list of sizes' if many else 'a size'}",
                why=f"Sizes are whole numbers from 1 to {LARGEST_DIMENSION}.",
                do=f"For example {key}={','.join(map(str, preset[key])) if many else preset[key]}",
            )
        dims[key] = sizes if many else sizes[0]
    return dims


def _sizes(value: Any) -> list[int] | None:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    sizes = []
    for part in parts:
        if isinstance(part, bool) or (isinstance(part, float) and not (math.isfinite(part) and part.is_integer())):
            return None
        try:
            sizes.append(int(part))
        except (TypeError, ValueError):
            return None
    return sizes if all(1 <= n <= LARGEST_DIMENSION for n in sizes) and len(sizes) <= 64 else None
