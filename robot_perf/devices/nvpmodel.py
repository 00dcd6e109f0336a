"""What nvpmodel says about a Jetson's power mode: its query's text and /etc/nvpmodel.conf. Nothing here switches a
mode.

(JetPack 7.2, known issue 6236259: modes with a lowered EMC can crash on reboot. A tool that measures must leave modes
alone.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from robot_perf.specs.device import DeviceSpec, PowerMode

_QUERY = re.compile(r"^NV Power Mode:\s*(\S.*?)\s*$", re.MULTILINE)
_BLOCK = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")
_EMC = re.compile(r"^\s*EMC\s+MAX_FREQ\s+(-?\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ConfiguredMode:
    """One block of nvpmodel.conf. `emc_hz` None: no cap (-1 or 0 in the file), or no line about it."""

    mode_id: int
    name: str
    emc_hz: int | None


def parse_query(text: str) -> str | None:
    """The mode's name in the output of `nvpmodel -q`; None where it names none."""
    match = _QUERY.search(text)
    return match[1] if match else None


def parse_conf(text: str) -> tuple[ConfiguredMode, ...]:
    """The modes of an nvpmodel.conf, in file order."""
    heads = list(_BLOCK.finditer(text))
    modes = []
    for head, end in zip(heads, [h.start() for h in heads[1:]] + [len(text)], strict=False):
        body = text[head.end() : end]
        emc = _EMC.search(body)
        cap = int(emc[1]) if emc else 0
        modes.append(ConfiguredMode(int(head[1]), head[2], cap if cap > 0 else None))
    return tuple(modes)


def current_mode(device: DeviceSpec, query: str | None, conf: str | None) -> tuple[PowerMode | None, str]:
    """The table's mode that this board is in, and a sentence that says how sure that is.

    Names are compared, then the EMC cap that the board's own file states: where the two disagree no mode is returned.
    """
    name = parse_query(query) if query else None
    if not device.modes:
        return None, "the table holds no power modes for this module"
    if name is None:
        return None, f"power mode unknown (nvpmodel -q gave none): {bandwidth_range(device)}"
    mode = next((m for m in device.modes if m.name.lower() == name.lower()), None)
    if mode is None:
        known = ", ".join(m.name for m in device.modes)
        return None, f"power mode {name} is not in the table for {device.name} ({known}): {bandwidth_range(device)}"
    configured = next((c for c in parse_conf(conf or "") if c.name.lower() == name.lower()), None)
    if configured is not None and configured.emc_hz is not None and not _same_clock(configured.emc_hz, mode.emc_hz):
        by_file = emc_bandwidth(configured.emc_hz, mode.bus_bits) / 1e9
        return None, (
            f"power mode {name}: nvpmodel.conf caps EMC at {configured.emc_hz / 1e6:.0f} MHz, the table at "
            f"{mode.emc_hz / 1e6:.0f} MHz; by the file the bandwidth is {by_file:.1f} GB/s"
        )
    return mode, f"power mode {mode.name}"


def emc_bandwidth(emc_hz: float, bus_bits: int) -> float:
    """Bytes/s of LPDDR at an EMC clock: two transfers a clock over the bus (D9)."""
    return emc_hz * 2 * bus_bits / 8


def bandwidth_range(device: DeviceSpec) -> str:
    """The bandwidths of a module's modes, for a person: `68.3 to 102.4 GB/s by mode`."""
    values = sorted({m.bandwidth_bytes_s / 1e9 for m in device.modes})
    if not values:
        return "bandwidth by mode unknown"
    return f"{values[0]:g} GB/s in every mode" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g} GB/s by mode"


def _same_clock(a_hz: float, b_hz: float) -> bool:
    # 3199 and 3200 MHz are the same cap, rounded differently by guide and file
    return abs(a_hz - b_hz) <= 0.005 * b_hz
