"""Where a policy runs, as people write it."""

from __future__ import annotations

from robot_perf.errors import UsageError


def parse_device(text: str, *, option: str = "--device") -> str:
    """`cpu` or `cuda:N`; `cuda` alone is cuda:0. Raises UsageError, which names `option`."""
    if text == "cpu" or (text.startswith("cuda:") and text[5:].isdecimal()):
        return text
    if text == "cuda":
        return "cuda:0"
    raise UsageError(f"{option} {text!r} is unknown", why="Allowed: cpu, cuda:0, cuda:1, …")
