"""One device's bandwidth and dense peak, in one power mode, with what the user gave on top; never a default."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from robot_perf.devices.schema import DTYPES
from robot_perf.devices.table import OVERRIDE_HELP
from robot_perf.errors import UsageError, did_you_mean
from robot_perf.specs.device import DeviceSpec, PowerMode
from robot_perf.units import parse_flop_s

GIVEN = "given on the command line"
# Weight-only formats compute in bf16; where a chip has no bf16 path its fp16 rate is the peak of the same arithmetic.
FALLBACK_DTYPE = {"bf16": "fp16"}


def with_overrides(
    device: DeviceSpec | None, *, bandwidth_bytes_s: float | None = None, peaks: Mapping[str, float] | None = None
) -> DeviceSpec:
    """`device` (or a nameless one) with the user's own numbers in place of the table's, marked as such."""
    base = device if device is not None else DeviceSpec(name="as given")
    given: dict[str, str] = {}
    if bandwidth_bytes_s is not None:
        if not 1e3 <= bandwidth_bytes_s <= 1e16:
            raise UsageError(
                f"--bandwidth-gb-s {bandwidth_bytes_s / 1e9:g} is out of range", why="From 1e-6 to 1e7 GB/s (above 0)."
            )
        given["bandwidth_gb_s"] = GIVEN
        # the user's figure holds for the machine as it is now: no mode of the table may replace it
        base = dataclasses.replace(base, bandwidth_bytes_s=bandwidth_bytes_s, modes=())
    if peaks:
        given |= dict.fromkeys(peaks, GIVEN)
        base = dataclasses.replace(base, peaks=base.peaks | dict(peaks))
    derived = {k: v for k, v in base.derived.items() if k not in given}
    return dataclasses.replace(base, sources=base.sources | given, derived=derived)


def parse_peaks(items: Sequence[str]) -> dict[str, float]:
    """FLOP/s by dtype from options such as `bf16=989` (TFLOP/s, dense)."""
    peaks = {}
    for item in items:
        dtype, equals, value = item.partition("=")
        if not equals or dtype not in DTYPES:
            raise UsageError(f"--peak {item!r} is not DTYPE=TFLOP/s", why=f"Allowed dtypes: {', '.join(DTYPES)}.")
        peaks[dtype] = parse_flop_s(value)
    return peaks


def modes_of(device: DeviceSpec) -> list[PowerMode | None]:
    """The power modes of a device, most bandwidth and clock first; [None] for a device without modes."""
    ordered = sorted(device.modes, key=lambda m: (-m.bandwidth_bytes_s, -m.gpu_hz * (m.gpu_tpc or 1), m.mode_id))
    return list(ordered) or [None]


def mode_of(device: DeviceSpec, name: str) -> PowerMode:
    """The power mode of that name, case apart. Ids are refused: they mean different modes on different modules."""
    for mode in device.modes:
        if mode.name.lower() == name.strip().lower():
            return mode
    if not device.modes:
        raise UsageError(f"{device.name} has no power modes in the table", do="Leave --power-mode out.")
    modes = ", ".join(m.name for m in device.modes)
    hint = ""
    if name.lower().startswith(("maxn_super", "25w", "40w")) and device.flash == "standard":
        hint = f" For {name} flash the super configuration first (JetPack 6.2 or later), then name the Super row."
    raise UsageError(
        f"{device.name} has no power mode {name!r}",
        why=f"Its modes: {modes} (mode ids are not portable).{hint}",
        do=did_you_mean(name, [m.name for m in device.modes]),
    )


def bandwidth_of(device: DeviceSpec, mode: PowerMode | None = None) -> float:
    """Spec bandwidth in bytes/s. Raises UsageError where it is unknown."""
    if mode is not None:
        return mode.bandwidth_bytes_s
    if device.bandwidth_bytes_s is None:
        raise UsageError(f"{device.name}: bandwidth unknown: give --bandwidth-gb-s", do=OVERRIDE_HELP)
    return device.bandwidth_bytes_s


def peak_of(device: DeviceSpec, dtype: str, mode: PowerMode | None = None) -> float:
    """Dense FLOP/s at `dtype`, scaled to the mode's cap on GPU clock and TPCs. Raises UsageError where it is unknown.

    bf16 falls back to fp16 on chips without bf16 (D3: the arithmetic's precision), and to nothing else.
    """
    value = device.peaks.get(dtype)
    if value is None and dtype in FALLBACK_DTYPE:
        value = device.peaks.get(FALLBACK_DTYPE[dtype])
    if value is None:
        raise UsageError(f"{device.name}: {dtype} peak unknown: give --peak {dtype}=…", do=OVERRIDE_HELP)
    return value * clock_share(device, mode)


def clock_share(device: DeviceSpec, mode: PowerMode | None) -> float:
    """Share of the table's peak that the mode's GPU clock and TPC count leave; 1 without a mode.

    Peaks are quoted at the module's highest mode, so the share is against the highest clock and TPC count among its
    modes.
    """
    if mode is None or not device.modes:
        return 1.0
    share = mode.gpu_hz / max(m.gpu_hz for m in device.modes)
    tpcs = [m.gpu_tpc for m in device.modes]
    if mode.gpu_tpc is not None and all(tpcs):
        share *= mode.gpu_tpc / max(t for t in tpcs if t)
    return share
