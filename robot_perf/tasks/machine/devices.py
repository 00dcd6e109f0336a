"""`robot-perf devices`: the table, one row of it, which row this machine is, and what a probe of it reaches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from robot_perf.devices import find, matches, table
from robot_perf.devices.detect import Detection, detect
from robot_perf.devices.nvpmodel import bandwidth_range
from robot_perf.errors import UsageError, unknown
from robot_perf.specs import from_json, to_json
from robot_perf.specs.device import DeviceSpec, ProbeReport

SCHEMA = "robot-perf/devices-1"


def list_devices(device_class: str | None = None) -> list[DeviceSpec]:
    """The rows of the table, all or of one class. Raises UsageError for a class that has none."""
    rows = [d for d in table() if device_class in (None, d.device_class)]
    if not rows:
        raise unknown("device class", str(device_class), dict.fromkeys(d.device_class for d in table()))
    return rows


def show_device(name: str) -> DeviceSpec:
    """The row of that exact name or alias. Raises UsageError, with the nearest names, for another."""
    return find(name)


def detect_devices() -> tuple[Detection, ...]:
    """What this machine is. Raises UsageError, asking for the numbers, where its device is not in the table."""
    from robot_perf.measure.machine.cuda_facts import host_facts

    return detect(host_facts())


def run_probe(device: str | None, seconds: float) -> ProbeReport:
    """Probes `cpu` or `cuda:N`; without a name the first GPU that torch sees, else the processor."""
    from robot_perf.measure.machine.cuda_facts import cuda_gpus
    from robot_perf.measure.probe.probes import probe

    chosen = device if device is not None else "cuda:0" if cuda_gpus() else "cpu"
    return probe(chosen, seconds=seconds)


def read_probe(path: Path) -> ProbeReport:
    """A probe report that `devices probe` saved. Raises UsageError for another file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("schema") != "robot-perf/probe-1":
            raise UsageError(f"{path}: not a probe report", why=f"Its schema is {data.get('schema')!r}.")
        return from_json(ProbeReport, data)
    except OSError as error:
        raise UsageError(f"{path}: can't be read", detail=str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: not a probe report", detail=str(error)) from error


def spec_of(probe: ProbeReport) -> DeviceSpec | None:
    """The row of the table that a probe's device is, by name and memory; None where it is in none."""
    if probe.table_name is not None:
        return find(probe.table_name)
    rows = matches(probe.device, probe.memory_bytes)
    return rows[0] if len(rows) == 1 else None


def device_document(device: DeviceSpec) -> dict[str, Any]:
    """One row as JSON: bytes/s, FLOP/s, bytes; null is unknown."""
    return {"schema": SCHEMA, **to_json(device)}


def detection_document(found: tuple[Detection, ...]) -> dict[str, Any]:
    """What was found, the first device's name on top; `device` null where the evidence leaves several candidates."""
    items = [
        {
            "answer": d.answer,
            "device": d.device.name if d.device else None,
            "candidates": [c.name for c in d.candidates],
            "evidence": list(d.evidence),
            "power_mode": d.mode.name if d.mode else None,
            "power_mode_note": d.mode_note,
            "bandwidth_bytes_s": _bandwidth(d),
            "bandwidth_range": bandwidth_range(d.device) if d.device and d.device.modes and not d.mode else None,
        }
        for d in found
    ]
    return {"schema": SCHEMA, "device": items[0]["device"], "devices": items}


def probe_document(probe: ProbeReport) -> dict[str, Any]:
    """A probe beside the table's spec; each reading keeps its own column and its share of spec."""
    device = spec_of(probe)
    readings = []
    for reading, item in zip(probe.readings, to_json(probe)["readings"], strict=True):
        spec = spec_value(device, reading.kind, reading.dtype)
        readings.append(item | {"spec": spec, "share_of_spec": None if spec is None else reading.median / spec})
    return {**to_json(probe), "table_name": device.name if device else None, "readings": readings}


def spec_value(device: DeviceSpec | None, kind: str, dtype: str) -> float | None:
    """The vendor's figure that a reading stands beside: bandwidth for a bandwidth, the dense peak of its dtype for a
    product.
    """
    if device is None:
        return None
    return device.peaks.get(dtype) if kind == "matmul" else device.bandwidth_bytes_s


def _bandwidth(d: Detection) -> float | None:
    if d.mode is not None:
        return d.mode.bandwidth_bytes_s
    return d.device.bandwidth_bytes_s if d.device and not d.device.modes else None
