"""A policy: where it comes from, what goes in and out, what it remembers, what a call costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output. `dtype` is a numpy name (float32, bool, …); `symbols` keeps a file's names of open axes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    symbols: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class StatePair:
    """State through the signature: output position `source` of step n is input position `target` of step n+1."""

    target: int
    source: int


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """What one call needs. Parameters are floats in weights and biases; constants are counted apart. FLOP: 2 per multiply-add."""

    parameters: int
    constants: int = 0
    bytes_read: int | None = None
    flop: int | None = None


@dataclass(frozen=True, slots=True)
class StageInput:
    """Where a stage's input comes from: pieces that are joined on the last axis.

    Each piece is (source, output position, start, stop) with source "" for an input of the pipeline itself (then position
    counts the pipeline's inputs) or an earlier stage's name; start/stop slice the last axis, None = open.
    """

    pieces: tuple[tuple[str, int, int | None, int | None], ...]


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One file of a pipeline and how its inputs (by position) are fed."""

    name: str
    policy: PolicySpec
    feeds: tuple[StageInput, ...]


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Everything the worker needs to load a policy, and the report to name it.

    `inputs` and `outputs` are in the file's own order; they are empty until known (TorchScript keeps no shapes: its loader
    fills them in the worker). Nested TorchScript tuples are flattened in order. `action` is an output position.
    """

    name: str
    kind: str  # onnx | torchscript | torch_export | builtin | factory | pipeline
    path: str | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    action: int | None = None
    state: tuple[StatePair, ...] = ()
    counters: tuple[int, ...] = ()
    state_note: str = "state: none found"
    batch: int = 1
    chunk: int = 1
    seed: int = 0
    builtin: dict[str, Any] = field(default_factory=dict)
    factory: str | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    stages: tuple[StageSpec, ...] = ()
    stage_action: tuple[str, int] | None = None
    cost: PolicyCost | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def fed(self) -> tuple[int, ...]:
        """Input positions that an observation feeds: all but those that carried state fills."""
        carried = {pair.target for pair in self.state}
        return tuple(i for i in range(len(self.inputs)) if i not in carried)
