"""Facts of machines that never were: a healthy one, changes of it, and a folder that looks like a file system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

HEALTHY: dict[str, Any] = {
    "kernel": "6.8.0-rt", "preemption": "PREEMPT_RT", "machine": "x86_64", "clock_source": "tsc",
    "available_clock_sources": ["tsc", "hpet"], "governors": ["performance"], "isolated_cpus": "7", "cpus": 8,
    "cpu_model": "Example CPU", "memory_bytes": 16 * 10**9, "swap_used_bytes": 0, "transparent_hugepage": "madvise",
    "load_1min": 0.1, "virtualization": [], "limits": {"rtprio": 99, "rttime_us": "unlimited", "memlock_bytes": "unlimited"},
    "capabilities": [], "cpu_dma_latency_writable": True, "timer_slack_ns": 1, "rt_runtime_us": 950_000,
    "steal_share": 0.0, "throttle_count": 0, "hottest": {"zone": "cpu", "celsius": 45.0, "slows_at_celsius": 99.0},
    "clocks_pinned": True, "python": "CPython 3.11.2", "python_version": [3, 11], "packages": {"robot-perf": "0.1.0"},
    "installed": [], "triton": {"installed": False}, "lost_links": [], "os_release": {"ID": "debian", "PRETTY_NAME": "Debian GNU/Linux 12"},
    "unread": {"l4t": "FileNotFoundError: No such file or directory"},
}  # fmt: skip

ORIN: dict[str, Any] = {
    **HEALTHY,
    "machine": "aarch64",
    "l4t": {"release": 36, "revision": "4.3"},
    "python_version": [3, 10],
    "power_mode": {"id": 0, "name": "MAXN", "modes": {"0": "MAXN", "1": "15W"}},
}


def changed(base: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The healthy machine (or another) with some facts changed; None takes a fact away."""
    facts = {**(HEALTHY if base is None else base), **changes}
    return {key: value for key, value in facts.items() if value is not None}


def package(name: str, version: str, place: str = "/venv/site-packages", **more: Any) -> dict[str, Any]:
    """One installed package as `doctor_facts` lists it."""
    return {"name": name, "version": version, "place": place, **more}


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Files under `root`, with their folders."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
