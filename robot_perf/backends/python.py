"""The `python` backend: `null`, `spin:<µs>`, the built-in networks in numpy, and Python factories that compute with numpy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from robot_perf.backends.protocol import Arrays, Runner, empty_outputs
from robot_perf.backends.shared import cpu_options
from robot_perf.backends.shared.formats import taken_by
from robot_perf.backends.shared.versions import versions
from robot_perf.policies.builtin import NETWORKS, NUMPY_NETWORKS
from robot_perf.policies.observations import initial_state
from robot_perf.specs import PolicySpec


def unavailable() -> str | None:
    """Always None: numpy is a core requirement."""
    return None


def takes(policy: PolicySpec) -> str | None:
    """Why this backend can't take the policy's format; None when it can."""
    if policy.kind == "builtin" and policy.builtin["name"] in set(NETWORKS) - set(NUMPY_NETWORKS):
        return f"{policy.builtin['name']} has no form in plain numpy; it runs on onnxruntime or eager."
    if policy.kind in ("builtin", "factory"):
        return None
    return f"It runs null, spin, the built-in networks and Python factories; {taken_by(policy)}."


def load(policy: PolicySpec, options: Mapping[str, Any]) -> Runner:
    """A runner for a built-in or a factory. Raises PolicyError when the factory fails."""
    cpu_options.check(options, "python", ())
    if policy.kind == "factory":
        from robot_perf.backends.shared.factory import load_numpy

        return load_numpy(policy, options)
    if policy.builtin["name"] in NETWORKS:
        return NetworkRunner(policy)
    return SpinRunner(policy, int(policy.builtin.get("duration_ns", 0)))


class SpinRunner:
    """Answers with prepared outputs, at once or after a busy-wait of `duration_ns` on CLOCK_MONOTONIC.

    Reading the clock here is the policy's own work, as a real policy's arithmetic would be; it times nothing.
    """

    def __init__(self, policy: PolicySpec, duration_ns: int) -> None:
        self.spec = policy
        self._duration_ns = duration_ns
        self._outputs = empty_outputs(policy)

    def step(self, observation: Arrays) -> Arrays:
        """The prepared outputs after the busy-wait."""
        if self._duration_ns:
            now = time.monotonic_ns
            until = now() + self._duration_ns
            while now() < until:
                pass
        return self._outputs

    def reset(self) -> None:
        """Nothing to put back."""

    def counters(self) -> Mapping[str, int]:
        """No event can spoil the window."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Versions, and the duration asked for."""
        return {**versions(), "spin_ns": self._duration_ns}

    def close(self) -> None:
        """Nothing is held."""


class NetworkRunner:
    """A built-in network in plain numpy: the reference that the other backends are compared with."""

    def __init__(self, policy: PolicySpec) -> None:
        from robot_perf.policies.builtin.networks import numpy_forward, weights

        self.spec = policy
        self._forward = numpy_forward(policy.builtin, weights(policy.builtin, policy.seed))
        self._initial = initial_state(policy)
        self._state = list(self._initial)

    def step(self, observation: Arrays) -> Arrays:
        """All outputs; state pairs follow the observation, as `builtin.signature` orders them."""
        outputs = self._forward(*observation, *self._state)
        self._state = [outputs[p.source] for p in self.spec.state]
        return outputs

    def rehearse_on(self, observation: Arrays) -> None:
        """The same work for keep-warm: the outputs are thrown away, the state stays as it is."""
        self._forward(*observation, *self._state)

    def reset(self) -> None:
        """The state as after loading."""
        self._state = list(self._initial)

    def counters(self) -> Mapping[str, int]:
        """No event can spoil the window."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Versions."""
        return versions()

    def close(self) -> None:
        """Nothing is held."""
