"""What a Jetson says of itself in files: L4T release, nvpmodel's mode, whether clocks are pinned. Read, never switched.

Each function raises OSError or ValueError where there is nothing to read: the caller keeps the reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from robot_perf.devices.nvpmodel import parse_conf

__all__ = ["clocks_pinned", "l4t", "power_mode"]

_RELEASE = re.compile(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([0-9.]+)")


def l4t(root: Path) -> dict[str, Any]:
    """`{"release": 36, "revision": "4.3"}` from /etc/nv_tegra_release."""
    text = _text(root / "etc/nv_tegra_release")
    match = _RELEASE.search(text)
    if match is None:
        raise ValueError(f"no release in {text[:60]!r}")
    return {"release": int(match[1]), "revision": match[2]}


def power_mode(root: Path) -> dict[str, Any]:
    """nvpmodel's current mode, from its status file, and all modes that its configuration names."""
    found = re.search(r"pmode:(\d+)", _text(root / "var/lib/nvpmodel/status"))
    if found is None:
        raise ValueError("no pmode in nvpmodel's status")
    modes = {m.mode_id: m.name for m in parse_conf(_text(root / "etc/nvpmodel.conf"))}
    return {"id": int(found[1]), "name": modes.get(int(found[1])), "modes": {str(k): v for k, v in modes.items()}}


def clocks_pinned(root: Path) -> bool:
    """Whether every processor's lowest allowed clock is its highest: what jetson_clocks does."""
    folders = list((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"))
    if not folders:
        raise FileNotFoundError(2, "no cpu*/cpufreq: the kernel shows no frequency control")
    return all(_text(f / "scaling_min_freq") == _text(f / "scaling_max_freq") for f in folders)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip("\0 \n\t")
