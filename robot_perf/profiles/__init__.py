"""Importers: whatever tool wrote a profile, one kernel table and one API-call table, in ns.

The content decides which importer reads a file, never its name alone. A new importer is one module, one line here, one test.
"""

from __future__ import annotations

from pathlib import Path

from robot_perf.profiles.model import Profile
from robot_perf.profiles.sniff import open_profile

__all__ = ["IMPORTERS", "Profile", "load"]

# format -> (module, what a person knows it as)
IMPORTERS: dict[str, tuple[str, str]] = {
    "kineto": ("robot_perf.profiles.kineto.importer", "Kineto or Chrome trace (.json, .json.gz)"),
    "nsys-sqlite": ("robot_perf.profiles.nsys.sqlite", "Nsight Systems export (.sqlite, .sqlite.gz)"),
    "nsys-stats": ("robot_perf.profiles.nsys.stats", "nsys stats report (.csv, .txt)"),
    "ncu": ("robot_perf.profiles.ncu.importer", "Nsight Compute CSV, raw or details page"),
}


def load(path: Path, *, export: bool = False) -> Profile:
    """The Profile of a file. Reads it in bounded memory and never writes beside it.

    `export=True` lets a .nsys-rep or .ncu-rep be exported by the user's own nsys or ncu, into a temporary folder.
    Raises ProfileError: unreadable, unknown, cut, hostile, or larger than the stated limits.
    """
    return open_profile(path, IMPORTERS, export=export)
