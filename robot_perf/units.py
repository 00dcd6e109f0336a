"""People's units. Inside the program there are only integer nanoseconds and bytes.

Rates and periods are exact: `83.3` Hz is the rational 833/10, and its period is rounded once, to a whole nanosecond.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction

from robot_perf.errors import UsageError

__all__ = [
    "GB",
    "GIB",
    "MIB",
    "MS",
    "NS_PER_S",
    "US",
    "format_bandwidth",
    "format_bound",
    "format_bytes",
    "format_count",
    "format_duration",
    "format_flop_s",
    "format_ms",
    "format_probability",
    "format_us",
    "parse_bandwidth",
    "parse_bytes",
    "parse_duration_ns",
    "parse_flop_s",
    "period_ns",
]

US = 1_000
MS = 1_000_000
NS_PER_S = 1_000_000_000
GB = 10**9
GIB = 2**30
MIB = 2**20

_DURATION = re.compile(r"^\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ns|us|µs|ms|s|m|min|h)?\s*$")
_SCALE_NS = {
    "ns": 1,
    "us": US,
    "µs": US,
    "ms": MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
}


def period_ns(rate_hz: Fraction | float | str) -> int:
    """Period of a rate in whole ns, rounded to nearest. Raises UsageError unless 0 < rate <= 1e6 Hz."""
    try:
        rate = Fraction(str(rate_hz)) if isinstance(rate_hz, float) else Fraction(rate_hz)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise UsageError(
            f"rate {rate_hz!r} is not a number of Hz", do="Give a rate such as --rate 50 or --rate 83.3."
        ) from error
    if not 0 < rate <= 1_000_000:
        raise UsageError(f"rate {rate_hz} Hz is out of range", why="Allowed: above 0, at most 1,000,000 Hz.")
    return round(NS_PER_S / rate)


def parse_duration_ns(text: str, *, default_unit: str = "s") -> int:
    """Nanoseconds of a duration such as `90`, `1.5s`, `250ms`, `30m`. A bare number is in `default_unit`."""
    match = _DURATION.match(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a duration", do="Write a number and one of ns, us, ms, s, m, h: for example 90s or 30m."
        )
    return round(Fraction(match[1]) * _SCALE_NS[match[2] or default_unit])


def format_us(ns: float) -> str:
    """Microseconds with three significant digits or whole, without the unit."""
    return _significant(ns / US)


def format_ms(ns: float) -> str:
    """Milliseconds with two decimals at least, without the unit."""
    value = ns / MS
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.4f}"


def format_duration(ns: float) -> str:
    """A duration in the largest unit that keeps it above one: `1 min 0 s`, `59.9 s`, `4.10 ms`, `31.0 µs`."""
    if ns < 0:
        return f"-{format_duration(-ns)}"
    seconds = ns / NS_PER_S
    if round(seconds) >= 3600:
        return f"{round(seconds / 60) // 60} h {round(seconds / 60) % 60} min"
    if round(seconds, 1) >= 60:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if ns >= MS:
        return f"{ns / MS:.2f} ms"
    return f"{ns / US:.1f} µs" if ns >= US else f"{ns:.0f} ns"


def format_bytes(count: float) -> str:
    """Bytes in decimal and, from 1 MB on, binary units: `16.06 GB (14.96 GiB)`."""
    if count < 1_000_000:
        return f"{count / 1000:.1f} kB" if count >= 1000 else f"{count:.0f} B"
    if count < GB:
        return f"{count / 1e6:.2f} MB ({count / MIB:.2f} MiB)"
    return f"{count / GB:.2f} GB ({count / GIB:.2f} GiB)"


def format_count(count: int) -> str:
    """A whole number with thousands separators."""
    return f"{count:,}"


def format_probability(value: float, digits: int = 3) -> str:
    """A probability in plain decimals with `digits` significant ones; never in scientific notation above 1e-9."""
    if value == 0:
        return "0"
    text = f"{value:.12f}"
    leading = len(text.split(".")[1]) - len(text.split(".")[1].lstrip("0"))
    return f"{value:.{min(12, leading + digits)}f}".rstrip("0").rstrip(".")


def format_bound(bound: float, allowed: float, *, upper: bool) -> str:
    """A bound on a probability, rounded away from what it claims: an upper one up, a lower one down.

    Three significant digits, or more where three would make it look equal to the allowed rate that it isn't.
    """
    if not bound:
        return "0"
    exact, rounding = Decimal(bound), ROUND_CEILING if upper else ROUND_FLOOR
    for digits in range(3, 12):
        rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding)
        if bound == allowed or float(rounded) != allowed:
            break
    return f"{rounded:f}".rstrip("0").rstrip(".") if "." in f"{rounded:f}" else f"{rounded:f}"


def _significant(value: float, digits: int = 3) -> str:
    if value == 0:
        return "0"
    magnitude = len(str(int(abs(value))))
    if magnitude >= digits:
        return f"{value:,.0f}"
    if abs(value) < 1:
        return f"{value:.{digits - 1}f}"
    return f"{value:.{digits - magnitude}f}"


_MEASURE = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*$")
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": GB, "TB": 10**12, "KiB": 2**10, "MiB": MIB, "GiB": GIB, "TiB": 2**40}
_OPS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


def parse_bytes(text: str) -> float:
    """Bytes of a size such as `16 GB` or `14.96 GiB`. The unit is required: a bare number could mean either."""
    match = _MEASURE.match(text)
    if match is None or match[2] not in _BYTES:
        raise UsageError(
            f"{text!r} is not a size",
            do="Write a number and one of " + ", ".join(_BYTES) + " (1 GB = 1e9 B, 1 GiB = 2^30 B).",
        )
    return float(match[1]) * _BYTES[match[2]]


def parse_bandwidth(text: str) -> float:
    """Bytes per second of a bandwidth such as `204.8 GB/s` or `3.35 TB/s`: decimal units only, as vendors print."""
    match = _MEASURE.match(text)
    unit = match[2].removesuffix("/s") if match is not None else ""
    if match is None or not match[2].endswith("/s") or unit not in _BYTES or "i" in unit:
        raise UsageError(
            f"{text!r} is not a bandwidth", do="Write a number and MB/s, GB/s or TB/s (decimal: 1 GB/s = 1e9 B/s)."
        )
    return float(match[1]) * _BYTES[unit]


def parse_flop_s(text: str) -> float:
    """Dense operations per second of a rate such as `989`, `989T` or `989 TFLOP/s` (a bare number is in TFLOP/s).

    Raises UsageError for a rate that calls itself sparse: a 2:4-sparse figure bounds no dense arithmetic.
    """
    if "sparse" in text.lower():
        raise UsageError(
            f"{text!r} is a sparse rate",
            why="A 2:4-sparse figure is no peak of dense arithmetic.",
            do="Give the dense one.",
        )
    match = _MEASURE.match(text)
    unit = re.sub(r"(FLOP/s|FLOPS|OP/s|OPS)$", "", match[2], flags=re.IGNORECASE) if match is not None else ""
    if match is None or unit not in _OPS:
        raise UsageError(f"{text!r} is not a rate", do="Write TFLOP/s, for example bf16=989 or bf16=989TFLOP/s.")
    value = float(match[1]) * (_OPS[unit] if match[2] else 10**12)
    if not 1 <= value < 1e18:
        raise UsageError(
            f"{text!r} is out of range",
            why="From 1 to 1e18 FLOP/s; a bare number is in TFLOP/s.",
            do="Write 989.",
        )
    return value


def format_flop_s(value: float) -> str:
    """Operations per second in the largest unit that keeps it above one: `989 TFLOP/s`, `3.4 TFLOP/s`, `62 GFLOP/s`."""
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}FLOP/s"
    return f"{value:.4g} FLOP/s"


def format_bandwidth(bytes_s: float) -> str:
    """Bandwidth in decimal units: `204.8 GB/s`, `3.35 TB/s`."""
    return f"{bytes_s / 1e12:.4g} TB/s" if bytes_s >= 1e12 else f"{bytes_s / 1e9:.4g} GB/s"
