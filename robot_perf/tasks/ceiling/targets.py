"""Which devices, in which power modes, a question is about: named ones, this machine, the user's numbers, or all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from robot_perf.devices import find, mode_of, modes_of, table, with_overrides
from robot_perf.devices.detect import detect
from robot_perf.devices.roof import parse_peaks
from robot_perf.errors import UsageError
from robot_perf.specs.device import DeviceSpec, PowerMode
from robot_perf.units import GB, MIB


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """What a person said about the device. Names exactly as in the table or its aliases, case apart."""

    on: Sequence[str] = ()
    power_mode: str | None = None
    bandwidth_gb_s: float | None = None
    peak: Sequence[str] = ()
    l2_mib: float | None = None

    @property
    def overridden(self) -> bool:
        """Whether the user gave numbers of their own."""
        return self.bandwidth_gb_s is not None or bool(self.peak) or self.l2_mib is not None


Target = tuple[DeviceSpec, PowerMode | None]


def all_targets(request: TargetRequest) -> list[Target]:
    """Every asked device in every asked power mode, the mode with most bandwidth first.

    Without a name: the user's own numbers where given, else all devices of the table, each in its highest mode.
    """
    if request.on or request.overridden:
        devices = [_given(find(name), request) for name in request.on] or [_given(None, request)]
        return [(d, m) for d in devices for m in _modes(d, request.power_mode)]
    if request.power_mode is not None:
        wanted = request.power_mode.lower()
        found = [(d, m) for d in table() for m in d.modes if m.name.lower() == wanted]
        if not found:
            raise UsageError(
                f"no device of the table has a power mode {request.power_mode!r}", do="Name one with --on."
            )
        return list(found)
    return [(d, modes_of(d)[0]) for d in table()]


def one_target(request: TargetRequest) -> Target:
    """The one asked device: named, made of the user's numbers, or this machine. Highest mode unless one is named."""
    if len(request.on) > 1:
        raise UsageError("--on names several devices", do="Name one.")
    if request.on:
        device = _given(find(request.on[0]), request)
    elif request.bandwidth_gb_s is not None and request.peak:
        device = _given(None, request)
    else:
        device, mode = this_machine()
        device = _given(device, request)
        if request.power_mode is None and mode is not None and device.modes:
            return device, mode
    return device, _modes(device, request.power_mode)[0]


def this_machine() -> Target:
    """The row of the table that this machine is, and its power mode where it is known. Raises UsageError otherwise."""
    from robot_perf.measure.machine.cuda_facts import host_facts

    found = detect(host_facts())
    first = found[0]
    if first.device is None:
        raise UsageError(
            f"this machine: {first.answer}", why="; ".join(first.evidence), do="Name one of them with --on."
        )
    return first.device, first.mode


def _given(device: DeviceSpec | None, request: TargetRequest) -> DeviceSpec:
    bandwidth = None if request.bandwidth_gb_s is None else request.bandwidth_gb_s * GB
    result = with_overrides(device, bandwidth_bytes_s=bandwidth, peaks=parse_peaks(request.peak))
    if request.l2_mib is None:
        return result
    if not 0 < request.l2_mib <= 1e6:
        raise UsageError(f"--l2-mib {request.l2_mib:g} is out of range", why="Above 0, at most 1e6 MiB.")
    return dataclasses.replace(result, l2_bytes=round(request.l2_mib * MIB))


def _modes(device: DeviceSpec, name: str | None) -> list[PowerMode | None]:
    return [mode_of(device, name)] if name is not None else modes_of(device)
