"""Which machine a bench ran on: the key under which its report is kept and merged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from robot_perf.errors import RobotPerfError
from robot_perf.measure.watch.nvml import Meter
from robot_perf.run.bench_report import Machine, Row

__all__ = ["UNNAMED", "default_device", "machine_of", "named_by", "slug"]

# Without NVML the name is not known before a backend has loaded; the processor's would put a GPU's figures under a CPU.
UNNAMED = "GPU of unknown name"

_RUNTIMES = ("torch", "onnxruntime", "onnxruntime-gpu", "tensorrt", "tensorrt-rtx", "numpy", "robot-perf")


def default_device() -> str:
    """cuda:0 where the operating system shows a CUDA device, else cpu."""
    from robot_perf.measure.machine.cuda_facts import has_cuda_device_file

    return "cuda:0" if has_cuda_device_file() else "cpu"


def machine_of(device: str, meter: Meter | None, reason: str, host: dict[str, Any]) -> Machine:
    """Name, power mode and clocks as far as they can be read. Nothing is switched."""
    identity = meter.identity() if meter is not None else {}
    on_gpu = device.startswith("cuda")
    other = None if on_gpu else host.get("cpu_model")
    name = identity.get("name") or host.get("device_tree_model") or other or (UNNAMED if on_gpu else "unknown machine")
    packages = host.get("packages") or {}
    software = {k: packages[k] for k in _RUNTIMES if k in packages}
    if identity.get("driver"):
        software["driver"] = identity["driver"]
    return Machine(
        device=str(name) if on_gpu or not host.get("cpu_model") else str(host["cpu_model"]),
        power_mode=_power_mode(identity),
        clocks=_clocks(identity, host),
        software=software,
        identity=identity,
        meter=meter.source if meter is not None else reason,
    )


def named_by(machine: Machine, rows: Sequence[Row]) -> Machine:
    """The machine with the name of its GPU from a backend that ran on it, where nothing else knew it."""
    if machine.device != UNNAMED:
        return machine
    names = {str(row.facts["device_name"]) for row in rows if row.facts.get("device_name")}
    return replace(machine, device=names.pop()) if len(names) == 1 else machine


def _power_mode(identity: dict[str, Any]) -> str | None:
    """A Jetson's nvpmodel mode; a discrete GPU's power limit."""
    if identity.get("power_limit_w"):
        return f"power limit {identity['power_limit_w']:g} W"
    if "rails" not in identity:
        return None
    from robot_perf.devices.detect import detect
    from robot_perf.measure.machine.cuda_facts import host_facts

    try:
        found = detect(host_facts())
    except RobotPerfError:
        return None  # a module that the table doesn't know: its mode has no name here
    return next((d.mode.name for d in found if d.mode is not None), None)


def _clocks(identity: dict[str, Any], host: dict[str, Any]) -> str | None:
    if identity.get("highest_sm_hz"):
        text = f"SM up to {identity['highest_sm_hz'] / 1e6:.0f} MHz"
        application = identity.get("application_sm_hz")
        return text + (f", application clock {application / 1e6:.0f} MHz" if application else "")
    governors = host.get("governors")
    if governors:
        highest = host.get("cpu_max_khz") or []
        return f"governor {'/'.join(governors)}" + (f", up to {max(highest) / 1000:.0f} MHz" if highest else "")
    return None


def slug(name: str) -> str:
    """A folder's name for a device: `NVIDIA H200` is nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "machine"
