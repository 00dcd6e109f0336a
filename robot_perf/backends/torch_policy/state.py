"""State in buffers (S2) and in objects (S4): found by what a call changes, put back as the file held it.

Zeroing every buffer would be wrong: normaliser means, deviations and counts are buffers too. Only what changes during a call is
state, and it goes back to its loaded value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from robot_perf.backends.shared.own_reset import own_reset
from robot_perf.policies import factory


class Reset:
    """Puts a policy back: by its own method, then by restoring the buffers that the method leaves changed.

    `module` is what has buffers (None: nothing to restore), `target` what has the reset method.
    """

    def __init__(self, module: Any, target: Any, batch: int) -> None:
        self._module, self._target = module, target
        self._saved = {name: tensor.detach().clone() for name, tensor in _buffers(module)}
        self._places = {name: tensor.data_ptr() for name, tensor in _buffers(module)}
        self.name, self._method, self.note = own_reset(target, batch, _all_done)
        self.left: tuple[str, ...] = ()  # what the method left changed in the last reset
        self.other: tuple[str, ...] = ()  # what it set to other values than the loaded ones

    def end(self) -> None:
        """The policy's own close(), where it has one."""
        factory.end(self._target)

    @property
    def how(self) -> str:
        """In words, for the report."""
        return (
            f"{self.name}()"
            if self._method
            else ("restoring the loaded buffer values" if self._saved else "nothing to reset")
        )

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of all buffers."""
        return tuple(self._saved)

    @property
    def has_method(self) -> bool:
        """True when the policy has a reset of its own that can be called."""
        return self._method is not None

    def __call__(self) -> None:
        """Resets."""
        import torch

        with torch.no_grad():
            if self._method is None:
                self.restore(self.changed())
                return
            before = self.snapshot()
            self._method()
            after = self.snapshot()
            differing = self.changed()
            self.left = tuple(n for n in differing if _same(before[n], after[n]))
            self.other = tuple(n for n in differing if n not in self.left)
            self.restore(self.left)

    def drop_method(self, note: str) -> None:
        """Falls back to restoring, and says why."""
        self._method, self.note = None, note

    def changed(self) -> tuple[str, ...]:
        """Buffers that differ from their loaded values."""
        return tuple(n for n, t in _buffers(self._module) if n in self._saved and not _same(t, self._saved[n]))

    def snapshot(self) -> dict[str, Any]:
        """Copies of all buffers now."""
        return {n: t.detach().clone() for n, t in _buffers(self._module)}

    def state(self) -> Mapping[str, Any]:
        """Buffers that are known to change, or have changed."""
        names = set(self.changed())
        return {n: t for n, t in _buffers(self._module) if n in names}

    def restore(self, names: tuple[str, ...]) -> None:
        """Loaded values back into the named buffers."""
        current = dict(_buffers(self._module))
        for name in names:
            tensor = current[name]
            if tensor.data_ptr() == self._places[name] and tensor.shape == self._saved[name].shape:
                tensor.copy_(self._saved[name])
            else:
                # The policy put another tensor there, perhaps one it was fed: writing into it would change the observation.
                assign(self._module, name, self._saved[name].clone())
                self._places[name] = dict(_buffers(self._module))[name].data_ptr()


def examine(reset: Reset, run: Callable[[int], list[Any]], restart: Callable[[], None]) -> dict[str, Any]:
    """What five calls, a reset and five calls again show: JSON with `changed`, `drop_method`, `notes`.

    `run(k)` makes call k from fixed inputs and returns copies of its outputs; `restart` puts carried values to their start.
    """
    notes = [reset.note] if reset.note else []
    first, changed = [], set()
    for k in range(5):
        first.append(run(k))
        changed |= set(reset.changed())
    drop = None
    if reset.has_method:
        try:
            reset()
        except Exception as error:  # noqa: BLE001 - the policy's own code
            drop = f"{reset.name}() fails ({type(error).__name__}): the loaded buffer values are restored instead"
            notes.append(drop)
            reset.drop_method(drop)
        if left := [n for n in reset.left if n in changed]:
            notes.append(f"{reset.name}() leaves {', '.join(left)} changed: the loaded values are restored after it")
        if other := [n for n in reset.other if n in changed]:
            notes.append(f"{reset.name}() sets {', '.join(other)} to other values than the file held")
    reset()
    restart()
    again = [run(k) for k in range(5)]
    if not all(_close(a, b) for x, y in zip(first, again, strict=True) for a, b in zip(x, y, strict=True)):
        notes.append("outputs after a reset differ from those after loading: part of its state is not put back")
    return {"changed": sorted(changed), "drop_method": drop, "notes": notes}


def finding(names: tuple[str, ...], how: str) -> str:
    """The line that every report prints about state in buffers."""
    return f"state: {', '.join(names)} in buffers, reset by {how} before measuring"


def _all_done(batch: int) -> Any:
    import torch

    return torch.ones(batch, dtype=torch.bool)


def _buffers(module: Any) -> Iterator[tuple[str, Any]]:
    if module is not None:
        yield from module.named_buffers()


def assign(module: Any, name: str, tensor: Any) -> None:
    """Puts `tensor` where the buffer `name` (dotted) is."""
    path, _, leaf = name.rpartition(".")
    for part in path.split(".") if path else []:
        module = getattr(module, part)
    setattr(module, leaf, tensor)


def _same(a: Any, b: Any) -> bool:
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(a, b) or (a.is_floating_point() and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)))


def _close(a: Any, b: Any) -> bool:
    import numpy as np

    # The first calls run unoptimised code, later ones fused code: equal up to rounding.
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))
