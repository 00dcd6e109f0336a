"""What the policy is fed: seeded random values or a recorded stream, made ready before the loop so that no step allocates."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_perf.errors import PolicyError
from robot_perf.policies.asked import shape_text, shown
from robot_perf.policies.formats import npz
from robot_perf.specs import PolicySpec, TensorSpec

Array = NDArray[Any]

PREPARED_BYTES = 16 * 2**20
PREPARED_MIN = 8
PREPARED_MAX = 1024
LARGEST_BYTES = 512 * 2**20


@dataclass(slots=True)
class Observations:
    """Arrays for `spec.fed`, by step. `steps` distinct observations are cycled; `notes` say what was done to a recording.

    A policy may normalise its observation in place, as published code does. On a robot that costs nothing: the next message brings a
    new array. Here the array comes round again, so `written_to` looks for it and `renew` gives each step an array of its own.
    """

    prepared: tuple[tuple[Array, ...], ...]
    counters: tuple[tuple[int, int], ...]  # (index into the observation, modulus or 0)
    source: str
    notes: tuple[str, ...] = ()
    remake: Callable[[], Observations] | None = None
    own_arrays: bool = False
    seal: int = 0

    def __post_init__(self) -> None:
        self.seal = self._checksum()

    def _checksum(self) -> int:
        found = 0
        for arrays in self.prepared:
            for array in arrays:
                found = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, found)
        return found

    def written_to(self) -> bool:
        """Whether a prepared array no longer holds what it was made with. Reads all of them."""
        return self._checksum() != self.seal

    def renew(self) -> None:
        """Makes the arrays anew, and from now on hands out copies. Readers and hooks made before still share arrays: make them again."""
        assert self.remake is not None
        self.prepared, self.own_arrays = self.remake().prepared, True

    @property
    def steps(self) -> int:
        """How many distinct observations were prepared."""
        return len(self.prepared)

    def reader(self) -> Callable[[int], tuple[Array, ...]]:
        """The cheapest `at` for this policy: without counters there is nothing to advance."""
        if self.counters or self.own_arrays:
            return self.at
        prepared, count = self.prepared, len(self.prepared)
        return lambda k: prepared[k % count]

    def at(self, k: int) -> tuple[Array, ...]:
        """The arrays of step k, counted from the last reset. They stay valid: the policy may keep them.

        Warm-up steps may have a negative k: they take observations from the end of the cycle, and counters rest at 0.
        """
        arrays = self.prepared[k % len(self.prepared)]
        if self.own_arrays:
            arrays = tuple(a.copy() for a in arrays)
        if not self.counters:
            return arrays
        own = list(arrays)
        for index, modulus in self.counters:
            count = k if k > 0 else 0
            own[index] = own[index].copy()
            own[index].fill(count % modulus if modulus else count)
        return tuple(own)


def open_observations(
    spec: PolicySpec, *, seed: int | None = None, path: str | None = None, cast: bool = False
) -> Observations:
    """Observations for a resolved policy: seeded (default: `spec.seed`) or from the .npz recording `path`.

    Random values are uniform in [-1,1], booleans True with probability 0.3, integers 0 to 3; never constant, which would hide
    dead inputs and state that is not carried. A recording has one array per fed input, under `<name>`, `in.<name>` or
    `in.<position>`, with a leading axis of steps. Raises PolicyError for a wrong dtype (unless `cast`), rank, size or name.
    """
    if spec.kind != "builtin" and not spec.inputs:
        raise PolicyError(f"{spec.name}: its inputs are not known", do="Give their sizes: --shape NAME=1,48")
    fed = tuple(spec.inputs[i] for i in spec.fed)
    if path is not None:
        recorded = _recorded(spec, fed, path, cast)
        recorded.remake = lambda: open_observations(spec, path=path, cast=cast)
        return recorded
    rng = np.random.default_rng(spec.seed if seed is None else seed)
    prepared = tuple(tuple(random_array(rng, t) for t in fed) for _ in range(_steps(fed)))
    made = Observations(prepared, _counters(spec, set(spec.counters)), "random")
    made.remake = lambda: open_observations(spec, seed=seed)
    return made


def random_array(rng: np.random.Generator, tensor: TensorSpec) -> Array:
    """One seeded array of the tensor's dtype and shape."""
    dtype = np.dtype(tensor.dtype)
    if dtype == np.bool_:
        return np.asarray(rng.random(size=tensor.shape, dtype=np.float32) < 0.3)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0, 4, size=tensor.shape, dtype=dtype.name))
    drawn = np.asarray(rng.random(size=tensor.shape, dtype=np.float64 if dtype == np.float64 else np.float32))
    return np.asarray(drawn * 2 - 1, dtype=dtype)


def initial_state(spec: PolicySpec) -> list[Array]:
    """The first value of each state pair: the recorded one where the recording has its input, else zeros."""
    path = spec.asked.get("observations")
    known = npz.headers(path) if path else {}
    values = []
    for pair in spec.state:
        tensor = spec.inputs[pair.target]
        key = _key(tensor.name, pair.target, known) if known else None
        if path is None or key is None:
            values.append(np.zeros(tensor.shape, tensor.dtype))
            continue
        array = npz.leading(path, key)
        first = array[0] if array.shape[1:] == tensor.shape and len(array) else array
        if first.shape != tensor.shape or first.dtype != np.dtype(tensor.dtype):
            raise _mismatch(path, tensor, f"{array.dtype} {shape_text(array.shape)}", step=0, castable=False)
        values.append(first)
    return values


def _steps(fed: tuple[TensorSpec, ...]) -> int:
    step_bytes = max(1, sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in fed))
    steps = min(PREPARED_MAX, max(PREPARED_MIN, PREPARED_BYTES // step_bytes))
    return max(2, min(steps, LARGEST_BYTES // step_bytes))


def _counters(spec: PolicySpec, positions: set[int]) -> tuple[tuple[int, int], ...]:
    found = []
    for index, where in enumerate(spec.fed):
        if where in positions:
            dtype = np.dtype(spec.inputs[where].dtype)
            # A small integer counter wraps as the robot's own would, instead of raising in the loop.
            found.append((index, int(np.iinfo(dtype).max) + 1 if dtype.kind in "iu" else 0))
    return tuple(found)


def _recorded(spec: PolicySpec, fed: tuple[TensorSpec, ...], path: str, cast: bool) -> Observations:
    known = npz.headers(path)
    keys = [_key(t.name, i, known) for t, i in zip(fed, spec.fed, strict=True)]
    notes: list[str] = []
    given = [k for k in known if not k.startswith(("out.", "nocarry.", "replay."))]
    if keys == [None] and len(given) == 1:
        # One input and one array: TorchScript arguments have arbitrary names.
        keys = [given[0]]
        notes.append(f"observations: the only array, {given[0]}, feeds the only input, {fed[0].name}")
    counted = {i for i, key in zip(spec.fed, keys, strict=True) if key is None and i in spec.counters}
    lost = [t.name for t, key, i in zip(fed, keys, spec.fed, strict=True) if key is None and i not in counted]
    if lost:
        raise PolicyError(
            f"observations {path} lack {', '.join(shown(n) for n in lost)}, which {spec.name} is fed",
            why=f"Keys found: {', '.join(shown(k, 40) for k in list(known)[:12])}.",
            do="Save each input under its name, in.<name> or in.<position>, with a leading axis of steps.",
        )
    lengths = {key: known[key][1][0] if known[key][1] else 0 for key in keys if key is not None}
    if len(set(lengths.values())) > 1 or not all(lengths.values()):
        each = ", ".join(f"{shown(k, 40)} {n}" for k, n in lengths.items())
        raise PolicyError(
            f"observations {path}: the inputs differ in their number of steps, or have none", why=f"Steps: {each}."
        )
    total = min(lengths.values(), default=1)
    step_bytes = max(1, sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in fed))
    rows = min(total, max(PREPARED_MIN, LARGEST_BYTES // step_bytes))
    if rows < total:
        notes.append(
            f"observations: the first {rows:,} of {total:,} recorded steps are used, which fill {LARGEST_BYTES >> 20} MiB"
        )
    columns = [_column(path, key, t, rows, cast, notes) for t, key in zip(fed, keys, strict=True)]
    # `[k, ...]` keeps a scalar input an array: a view of the row, never a numpy scalar.
    prepared = tuple(tuple(column[k, ...] for column in columns) for k in range(rows))
    return Observations(prepared, _counters(spec, counted), path, tuple(notes))


def _key(name: str, where: int, known: dict[str, Any]) -> str | None:
    return next((k for k in (f"in.{name}", name, f"in.{where}") if k in known), None)


def _column(path: str, key: str | None, tensor: TensorSpec, rows: int, cast: bool, notes: list[str]) -> Array:
    if key is None:
        return np.zeros((rows, *tensor.shape), tensor.dtype)
    array = npz.leading(path, key, rows)
    got, wanted = array.dtype, np.dtype(tensor.dtype)
    if array.shape[1:] != tensor.shape:
        raise _mismatch(path, tensor, f"{got} {shape_text(array.shape[1:])}", step=0, castable=False)
    if got.newbyteorder("=") != wanted:
        if not cast:
            raise _mismatch(path, tensor, f"{got} {shape_text(array.shape[1:])}", step=0, castable=True)
        notes.append(f"observations: {tensor.name} was cast from {got} to {wanted}, as asked by --cast")
    array = np.ascontiguousarray(array.astype(wanted, copy=False))
    if wanted.kind == "f" and not np.isfinite(array).all():
        step = int(np.argmin(np.isfinite(array.reshape(rows, -1)).all(axis=1)))
        notes.append(f"observations: {tensor.name} is not finite in the recording, first at step {step}")
    return array


def _mismatch(path: str, tensor: TensorSpec, got: str, *, step: int, castable: bool) -> PolicyError:
    wanted = f"{tensor.dtype} {shape_text(tensor.shape)}"
    return PolicyError(
        f"observations {path}: input {shown(tensor.name)} got {got}, wanted {wanted}, from step {step} on",
        why="A silent cast would hide what the robot would really send."
        if castable
        else "The leading axis counts steps.",
        do="Add --cast to convert it, and the report will say so."
        if castable
        else f"Save it with the shape [steps{''.join(f',{n}' for n in tensor.shape)}].",
    )
