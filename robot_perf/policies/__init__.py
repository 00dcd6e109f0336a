"""Policies: what a file is, what goes in and out, what it remembers. Nothing is executed to find out.

The conductor calls `describe`; the measured worker imports `policies.observations` and, for its own kinds, `policies.builtin`
and `policies.factory`. None of these imports more than numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robot_perf.specs import PolicySpec

__all__ = ["describe"]


def describe(
    text: str,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    state: Sequence[tuple[str, str]] = (),
    action: str | None = None,
    preset: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    observations: str | None = None,
    counters: Sequence[str] | None = None,
    ort_library: str | None = None,
) -> PolicySpec:
    """The PolicySpec of what a person wrote as POLICY.

    Tried in this order: a built-in (`null`, `spin:<µs>`, `mlp`, `gru`, `lstm`, `act`), an existing file (a policy, or the YAML of a
    pipeline), `module:callable`, a name in configs/policies. `shapes` are sizes by input or symbol (`--shape`), `state` pairs
    of input and output, each a name or a position (an empty output: not carried), `action` an output's name or position,
    `options` the dimensions of a built-in or the arguments of a factory, `observations` a recording whose sizes may serve for
    open axes, `counters` the inputs that count steps (None: found by name, `none`: no input does), `ort_library` a custom operator library.

    Raises PolicyError for what can't be loaded and UsageError for what can't be asked, both with exit code 2.
    """
    from robot_perf.policies.asked import Asked
    from robot_perf.policies.resolve import resolve

    asked = Asked(
        shapes={k: tuple(int(n) for n in v) for k, v in (shapes or {}).items()},
        state=tuple((str(i), str(o)) for i, o in state),
        action=action,
        preset=preset,
        seed=seed,
        options=dict(options or {}),
        observations=observations,
        counters=None if counters is None else tuple(counters),
        ort_library=ort_library,
    )
    return resolve(text, asked)
