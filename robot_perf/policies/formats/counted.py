"""Operators with their FLOP and bytes: what every reader of a policy's graph answers with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from robot_perf.specs import PolicySpec


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator. `flop` counts 2 per multiply-add; element-wise operators count 1 per output element ("about").

    `weight_bytes` are parameters, `activation_bytes` its other inputs and its outputs, each moved once.
    """

    name: str
    kind: str
    flop: int
    weight_bytes: int
    activation_bytes: int
    about: bool = False

    @property
    def bytes(self) -> int:
        """All bytes that the operator moves if it runs alone."""
        return self.weight_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """The operators that could be counted, in graph order, and the kinds that could not (unknown shapes).

    `missing` are those of the uncounted ones that carry work (products, convolutions, recurrences, loops, custom operators).
    """

    operators: tuple[Operator, ...]
    uncounted: dict[str, int]
    io_bytes: int  # inputs and outputs of the whole policy
    dtype: str  # precision of the weights: fp32, fp16, bf16, int8
    missing: dict[str, int] = field(default_factory=dict)
    repeated_bytes: int = 0  # of weights that several operators read: the second reading and later ones

    @property
    def flop(self) -> int:
        """FLOP of one call."""
        return sum(o.flop for o in self.operators)

    @property
    def product_flop(self) -> int:
        """FLOP of products, convolutions and recurrences alone: what a policy's own cost counts."""
        return sum(o.flop for o in self.operators if not o.about)

    @property
    def weight_bytes(self) -> int:
        """Weight bytes that the counted operators read, each weight once."""
        return sum(o.weight_bytes for o in self.operators) - self.repeated_bytes

    @property
    def least_bytes(self) -> int:
        """Bytes that must move even if everything were fused: each weight, input and output once."""
        return self.weight_bytes + self.io_bytes


def spec_bytes(spec: PolicySpec) -> int:
    """Bytes of a policy's inputs and outputs of one call."""
    return sum(math.prod(t.shape) * item_bytes(t.dtype) for t in (*spec.inputs, *spec.outputs))


def item_bytes(dtype: str) -> int:
    """Bytes of one element of a numpy dtype name."""
    import numpy as np

    return 2 if dtype == "bfloat16" else int(np.dtype(dtype).itemsize)
