"""The environment fingerprint: what a reader must know of the host to believe or repeat a measurement.

Everything is read, nothing is changed. What can't be read is absent from the values and named, with the reason, in `unread`.
No host name, user name or environment variable is kept.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from robot_perf import __version__
from robot_perf.measure.machine import jetson_facts

PACKAGES = (
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "torch",
    "triton",
    "tensorrt",
    "tensorrt-rtx",
    "cuda-bindings",
    "nvidia-ml-py",
    "jetson-stats",
)


def fingerprint(root: Path = Path("/")) -> dict[str, Any]:
    """Facts about host, kernel, processor, interpreter and packages; `root` lets a test bring its own /proc and /sys."""
    unread: dict[str, str] = {}
    facts: dict[str, Any] = {}

    def fact(name: str, read: Callable[[], Any]) -> None:
        try:
            facts[name] = read()
        except (OSError, ValueError, IndexError, KeyError) as error:
            unread[name] = f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"

    cpu = root / "sys/devices/system/cpu"
    fact("kernel", platform.release)
    fact("kernel_version", lambda: os.uname().version)
    fact("preemption", lambda: _preemption(os.uname().version, root))
    fact("clock_source", lambda: _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"))
    fact("governors", lambda: _across(cpu, "cpufreq/scaling_governor"))
    fact("cpu_max_khz", lambda: [int(v) for v in _across(cpu, "cpufreq/scaling_max_freq")])
    fact("isolated_cpus", lambda: _text(cpu / "isolated"))
    fact("nohz_full_cpus", lambda: _text(cpu / "nohz_full"))
    fact("idle_driver", lambda: _text(cpu / "cpuidle/current_driver"))
    fact("cpu_model", lambda: _cpu_model(root))
    fact("cpus", os.cpu_count)
    fact("memory_bytes", lambda: _meminfo(root, "MemTotal"))
    fact("swap_used_bytes", lambda: _meminfo(root, "SwapTotal") - _meminfo(root, "SwapFree"))
    fact("transparent_hugepage", lambda: _selected(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")))
    fact("steal_ticks", lambda: int(_text(root / "proc/stat").splitlines()[0].split()[8]))
    fact("load_1min", lambda: float(_text(root / "proc/loadavg").split()[0]))
    fact("virtualization", lambda: virtualization(root))
    fact("device_tree_model", lambda: _text(root / "proc/device-tree/model").rstrip("\0"))
    fact("l4t", lambda: jetson_facts.l4t(root))
    fact("power_mode", lambda: jetson_facts.power_mode(root))
    fact("clocks_pinned", lambda: jetson_facts.clocks_pinned(root))
    facts["limits"] = {
        "rtprio": _limit("RLIMIT_RTPRIO"),
        "rttime_us": _limit("RLIMIT_RTTIME"),
        "memlock_bytes": _limit("RLIMIT_MEMLOCK"),
    }
    fact(
        "cpu_dma_latency_us",
        lambda: int.from_bytes((root / "dev/cpu_dma_latency").read_bytes()[:4], "little", signed=True),
    )
    facts["gc_thresholds"] = list(gc.get_threshold())
    facts["affinity"] = sorted(os.sched_getaffinity(0))
    facts["python"] = f"{platform.python_implementation()} {platform.python_version()}"
    facts["switch_interval_s"] = sys.getswitchinterval()
    facts["machine"] = platform.machine()
    facts["packages"] = {"robot-perf": __version__, **package_versions()}
    facts["unread"] = unread
    return facts


def package_versions() -> dict[str, str]:
    """Versions of the packages that matter, read from their metadata without importing them."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def virtualization(root: Path = Path("/")) -> list[str]:
    """What stands between this process and the hardware: container, virtual machine, WSL, gVisor; empty for bare metal."""
    found = []
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        found.append("container")
    version = _text(root / "proc/version").lower() if (root / "proc/version").exists() else ""
    if "microsoft" in version:
        found.append("WSL")
    if "gvisor" in version or "linux version 4.4.0 #1 smp sun jan 10" in version:  # what gVisor's kernel calls itself
        found.append("gVisor")
    if " hypervisor" in (_text(root / "proc/cpuinfo") if (root / "proc/cpuinfo").exists() else ""):
        found.append("virtual machine")
    return found


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()


def _across(cpu: Path, leaf: str) -> list[str]:
    values = sorted({_text(p) for p in cpu.glob(f"cpu[0-9]*/{leaf}")})
    if not values:
        raise FileNotFoundError(2, f"no cpu*/{leaf}: the kernel shows no frequency control")
    return values


def _preemption(version: str, root: Path) -> str:
    real_time = root / "sys/kernel/realtime"
    if real_time.exists() and _text(real_time) == "1":
        return "PREEMPT_RT"
    for word in ("PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT"):
        if word in version:
            return word
    return "none"


def _cpu_model(root: Path) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model", "Hardware")):
            return line.split(":", 1)[1].strip()
    raise KeyError("no model name in /proc/cpuinfo")


def _meminfo(root: Path, field: str) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def _selected(text: str) -> str:
    return text.split("[", 1)[1].split("]", 1)[0]


def _limit(name: str) -> int | str | None:
    number = getattr(resource, name, None)
    if number is None:
        return None
    soft = resource.getrlimit(number)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else int(soft)
