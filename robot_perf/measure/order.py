"""What the conductor asks of a worker: one JSON file. The worker reads it with the standard library alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_perf.specs import LoopSpec, PolicySpec


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """One measurement. `spawned_ns` is CLOCK_MONOTONIC just before the process was started.

    `reference` is an .npz of inputs and of the outputs that a float32 CPU run gave for them: the truth gate's.
    `hold`: once loaded, wait for the conductor's GO in the step map (several policies begin together). `phases`: the window is followed by
    the pass that marks the phases of a step.
    """

    map_path: str
    policy: PolicySpec
    backend: str
    loop: LoopSpec
    options: dict[str, Any] = field(default_factory=dict)
    observations: str | None = None
    cast: bool = False
    seed: int = 0
    conductor_pid: int = 0
    spawned_ns: int = 0
    hold: bool = False
    reference: str | None = None
    phases: bool = True


def write_order(document: Any, prefix: str = "robot-perf-") -> Path:
    """An order as a JSON file in the folder for temporary files. Who reads it removes it; so does who wrote it, at the end."""
    import tempfile  # on use: the measured process imports this module too

    with tempfile.NamedTemporaryFile("w", suffix=".json", prefix=prefix, delete=False, encoding="utf-8") as file:
        json.dump(document, file)
    return Path(file.name)


def take_order(path: str | Path) -> Any:
    """The order's document. The file is removed: nobody else would if whoever wrote it is killed from now on."""
    text = Path(path).read_text(encoding="utf-8")
    Path(path).unlink(missing_ok=True)
    return json.loads(text)
