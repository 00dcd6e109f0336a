"""Whether a policy keeps its input after a step (`self.last = obs`): where all steps' inputs lie at one place, it may not."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any


def call_on_copies(
    call: Callable[[list[Any]], list[Any]],
    inputs: Mapping[str, Any],
    module: Any,
    before_look: Callable[[], None] | None = None,
) -> tuple[list[Any], str]:
    """One call on copies of `inputs`: its results, and in words which of the copies somebody still holds after it ("" for none).

    `before_look` is called after the call. Attributes, lists, closures, views and what TorchScript keeps are all seen, for the
    memory itself is watched; `module` is only searched for the name of what holds it.
    """
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    copies = [t.clone() for t in inputs.values()]
    places = [t.untyped_storage().data_ptr() for t in copies]
    watched = [StorageWeakRef(t.untyped_storage()) for t in copies]
    # A result may be an input, or a part of one: that is no keeping.
    results = [
        r.clone() if isinstance(r, torch.Tensor) and r.untyped_storage().data_ptr() in places else r
        for r in call(copies)
    ]
    del copies
    if before_look is not None:
        before_look()
    if not all(w.expired() for w in watched):
        gc.collect()  # nobody reads what only a cycle of dropped objects holds
    held = [(name, p) for name, p, w in zip(inputs, places, watched, strict=True) if not w.expired()]
    return results, ", ".join(name + _holder(module, place) for name, place in held)


def _holder(module: Any, place: int) -> str:
    """` (in NAME)` for the attribute of `module` that holds a tensor whose memory begins at `place`; "" where none is found."""
    import torch

    def holds(value: Any, depth: int = 3) -> bool:
        if isinstance(value, torch.Tensor):
            return bool(value.layout == torch.strided and value.untyped_storage().data_ptr() == place)
        parts = value.values() if isinstance(value, Mapping) else value
        known = isinstance(value, (Mapping, list, tuple, deque, set))  # iterating over anything else might use it up
        return known and depth > 0 and any(holds(p, depth - 1) for p in parts)

    for path, part in module.named_modules() if module is not None else ():
        own = {k: v for k, v in vars(part).items() if k not in ("_buffers", "_parameters", "_modules")}
        for name, value in {**own, **dict(part.named_buffers(recurse=False))}.items():
            if holds(value):
                return f" (in {path}{'.' if path else ''}{name})"
    return ""
