"""Devices: the table of what hardware allows, exact look-up in it, and which of its rows this machine is.

Data lives in configs/devices/*.yaml; a new device is one row there.
"""

from __future__ import annotations

from robot_perf.devices.roof import FALLBACK_DTYPE, bandwidth_of, mode_of, modes_of, peak_of, with_overrides
from robot_perf.devices.table import find, matches, names, normalise, table

__all__ = [
    "FALLBACK_DTYPE",
    "bandwidth_of",
    "find",
    "matches",
    "mode_of",
    "modes_of",
    "names",
    "normalise",
    "peak_of",
    "table",
    "with_overrides",
]
