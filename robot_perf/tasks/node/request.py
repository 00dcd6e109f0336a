"""From a node's parameters to the command line's request: the same defaults, the same checks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.specs import RealTime
from robot_perf.specs.place import parse_device
from robot_perf.tasks.deadline import DeadlineRequest


def request_of(asked: dict[str, Any]) -> DeadlineRequest:
    """The command line's request from the node's parameters: the same defaults, the same checks."""
    options: dict[str, Any] = {"device": parse_device(asked["device"], option="parameter device")}
    if asked["threads"]:
        options["threads"] = asked["threads"]
    return DeadlineRequest(
        policy=asked["policy"], rate_hz=repr(asked["rate"]), deadline_ns=round(asked["deadline_ms"] * 1e6) or None,
        steps=asked["steps"] or None, miss_rate=asked["miss_rate"], confidence=asked["confidence"],
        assumed_burst=asked["assume_burst"] or None, backend=asked["backend"] or None, backend_options=options,
        wait=asked["wait"], spin_margin_ns=round(asked["spin_margin_us"] * 1000), gc=asked["gc"],
        real_time=RealTime(
            fifo_priority=asked["fifo"] or None, cpus=processors(asked["cpus"]), mlock=asked["mlock"],
            hold_cpu_dma_latency=asked["hold_cpu_dma_latency"],
        ),
        warmup_max=asked["warmup_max"], observations=Path(asked["recording"]) if asked["recording"] else None, seed=asked["seed"],
    )  # fmt: skip


def processors(text: str) -> tuple[int, ...]:
    """`2,3` or `2-5` as numbers. Raises UsageError."""
    found: list[int] = []
    for part in (p.strip() for p in text.split(",") if p.strip()):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"parameter cpus: {text!r} is no list of processors", why="Allowed: 2,3 or 2-5.")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(found))
