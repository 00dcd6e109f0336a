"""Options of the CPU backends, checked once: a misspelt or foreign option is an error, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.policies.asked import shown

# Understood by the loop or by every backend: `tolerance` is the truth gate's, `ort_library` travels with the policy.
COMMON = ("device", "threads", "tolerance", "ort_library")


def check(options: Mapping[str, Any], backend: str, own: tuple[str, ...]) -> None:
    """Raises UsageError for a device other than cpu and for an option that `backend` does not have there."""
    device = str(options.get("device") or "cpu")
    if device != "cpu":
        raise UsageError(
            f"backend {backend} runs on the CPU, not on {shown(device)}", do="Leave out --device or use --device cpu."
        )
    unknown = [k for k, v in options.items() if k not in (*COMMON, *own) and v is not None]
    if unknown:
        raise UsageError(
            f"backend {backend} has no option {shown(unknown[0])} on the CPU",
            why=f"It has: {', '.join(k for k in (*own, *COMMON) if k != 'tolerance')}.",
        )


def flag(options: Mapping[str, Any], name: str, default: bool) -> bool:
    """A yes or no. Raises UsageError for anything else."""
    value = options.get(name, default)
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if str(value).lower() not in words:
        raise UsageError(f"option {name}={shown(value)} is neither true nor false")
    return words[str(value).lower()]


def threads(options: Mapping[str, Any], name: str, *, least: int) -> int | None:
    """A number of threads; None where it was not given. Raises UsageError below `least` or above 4096."""
    value = options.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 4096:
        zero = "; 0 is the runtime's own choice" if least == 0 else ""
        raise UsageError(f"{name} {value!r} is not a number of threads", why=f"Allowed: {max(1, least)} to 4096{zero}.")
    return value
