"""What `doctor` reads beyond the fingerprint: rights, limits, timers, Jetson state, installed packages. Changes nothing.

A fact that can't be read is absent, with the reason under `unread`: a check without its facts says "can't answer".
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from robot_perf.measure.machine.doctor_triton import triton_facts
from robot_perf.measure.machine.fingerprint import fingerprint

__all__ = ["doctor_facts", "installed_packages"]

_LINKS = ("kernels", "nodes", "configs")
_PACKAGES = ("numpy", "pyarrow", "onnxruntime", "onnxruntime-gpu", "torch", "tensorrt", "triton")
_CAPABILITIES = {"sys_nice": 23, "ipc_lock": 14}
_CUDA = re.compile(r"^cuda\b[^=]*=\s*'([0-9.]+)'", re.MULTILINE)


def doctor_facts(
    root: Path = Path("/"),
    *,
    package: Path | None = None,
    paths: Sequence[str] | None = None,
    python: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """The fingerprint and the extras, plain JSON. `root`, `package` (ours), `paths` and `python` let a test bring its own."""
    facts = fingerprint(root)
    unread: dict[str, str] = facts["unread"]

    def fact(name: str, read: Callable[[], Any]) -> None:
        try:
            facts[name] = read()
        except (OSError, ValueError, IndexError, KeyError) as error:
            unread[name] = f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"

    fact("os_release", lambda: _os_release(root))
    fact("capabilities", lambda: _capabilities(_text(root / "proc/self/status")))
    fact("cpu_dma_latency_writable", lambda: _writable(root / "dev/cpu_dma_latency"))
    fact("timer_slack_ns", lambda: int(_text(root / "proc/self/timerslack_ns")))
    fact("rt_runtime_us", lambda: int(_text(root / "proc/sys/kernel/sched_rt_runtime_us")))
    fact(
        "available_clock_sources",
        lambda: _text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource").split(),
    )
    fact("steal_share", lambda: _steal_share(_text(root / "proc/stat")))
    fact("throttle_count", lambda: _throttle_count(root))
    fact("hottest", lambda: _hottest(root / "sys/class/thermal"))
    facts["python_version"] = list(python or sys.version_info[:2])
    facts["installed"] = installed_packages(paths)
    fact("triton", lambda: triton_facts(facts["installed"], facts.get("l4t")))
    ours = package or Path(__file__).resolve().parents[2]
    facts["lost_links"] = [name for name in _LINKS if not (ours / name).is_dir()]
    return facts


def installed_packages(paths: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Every installation of the packages that matter along the import path, the one that is imported first.

    Read from metadata, without importing them. `cuda` is the CUDA release that a torch was built for, None for none.
    """
    found: list[dict[str, Any]] = []
    for distribution in metadata.distributions(path=list(paths) if paths is not None else sys.path):
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name not in _PACKAGES:
            continue
        place = str(distribution.locate_file(""))
        row: dict[str, Any] = {"name": name, "version": distribution.version, "place": place}
        if name == "torch":
            row["cuda"] = _torch_cuda(Path(place) / "torch" / "version.py")
        if row not in found:
            found.append(row)
    return found


def _torch_cuda(path: Path) -> str | None:
    match = _CUDA.search(_text(path)) if path.is_file() else None
    return match[1] if match else None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip("\0 \n\t")


def _os_release(root: Path) -> Mapping[str, str]:
    pairs = (line.split("=", 1) for line in _text(root / "etc/os-release").splitlines() if "=" in line)
    return {key: value.strip("\"'") for key, value in pairs if key in ("ID", "VERSION_ID", "PRETTY_NAME")}


def _capabilities(status: str) -> list[str]:
    mask = next(int(line.split()[1], 16) for line in [*status.splitlines(), "CapEff: 0"] if line.startswith("CapEff:"))
    return [name for name, bit in _CAPABILITIES.items() if mask >> bit & 1]


def _writable(path: Path) -> bool:
    path.stat()  # absent is "can't answer", not "not writable"
    return os.access(path, os.W_OK)


def _steal_share(stat: str) -> float:
    """Share of the time since boot in which the hypervisor ran someone else although this machine had work."""
    ticks = [int(v) for v in stat.splitlines()[0].split()[1:9]]
    return ticks[7] / max(1, sum(ticks))


def _throttle_count(root: Path) -> int:
    files = list((root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    if not files:
        raise FileNotFoundError(2, "no cpu*/thermal_throttle: the kernel counts no throttling")
    return max(int(_text(f)) for f in files)


def _hottest(thermal: Path) -> dict[str, Any]:
    """The zone with the least room below the temperature at which it slows the machine down."""
    zones = []
    for zone in sorted(thermal.glob("thermal_zone*")):
        trips = [
            int(_text(t.with_name(t.name.replace("_type", "_temp"))))
            for t in zone.glob("trip_point_*_type")
            if _text(t) == "passive"
        ]
        limits = [t for t in trips if t > 0]
        if limits:
            now = int(_text(zone / "temp"))
            zones.append({"zone": _text(zone / "type"), "celsius": now / 1000, "slows_at_celsius": min(limits) / 1000})
    if not zones:
        raise FileNotFoundError(2, "no thermal zone with a passive trip point")
    return min(zones, key=lambda z: z["slows_at_celsius"] - z["celsius"])
