"""What the nodes tell: /diagnostics (REP-107) and systemd's watchdog."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LEVELS = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x03",
)  # bytes, not numbers: the setter takes an int and publishes a random byte


def hardware_id() -> str:
    """A constant, unique id of the device where it has one, else its model; never empty."""
    for path in (
        "/proc/device-tree/serial-number",
        "/sys/class/dmi/id/product_serial",
        "/proc/device-tree/model",
        "/sys/class/dmi/id/product_name",
    ):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace").strip("\0 \n")
        except OSError:
            continue
        if text and "not specified" not in text.lower():
            return text
    return os.uname().machine


def _ms(value: Any) -> str:
    return "" if value is None else f"{value / 1e6:.4f}"


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.0f}" if isinstance(value, float) else str(value)


def _percentile(figures: Mapping[str, Any] | None, key: str) -> str:
    return "" if figures is None else _ms(figures.get(key))


def lost_words(blocks: int) -> str:
    """What is missing where a step ran longer than a whole block: no verdict tells of it."""
    what = "1 block has" if blocks == 1 else f"{blocks} blocks have"
    return f"{what} no Run and no verdict since activation: a step ran longer than a block; its releases were missed"


def loop_values(
    live: Mapping[str, Any], facts: Mapping[str, Any], unrecorded: int, executor_ns: int | None, lost_blocks: int = 0
) -> dict[str, str]:
    """Keys and values of the control loop's status: one number a key, its unit in the key, empty where there is none.

    `unrecorded`: steps that no map recorded; `lost_blocks`: whole blocks without a Run.
    """
    window, total = live.get("window") or {}, live.get("since_activation") or {}
    period = window.get("period_mean_ns")
    values = {
        "rate asked (Hz)": f"{1e9 / live['period_ns']:.6g}",
        "rate achieved, window (Hz)": f"{1e9 / period:.6g}" if period else "0",
        "period mean, window (ms)": _ms(period),
        "deadline (ms)": _ms(live["deadline_ns"]),
        "steps": str(total.get("executed", 0)),
        "misses": str(total.get("misses", 0)),
        "skipped": str(total.get("skipped", 0)),
        "longest miss run": str(total.get("longest_miss_run", 0)),
        "misses, window": str(window.get("misses", 0)),
        "releases, window": str(window.get("releases", 0)),
    }
    for name, key in (
        ("response", "response"),
        ("wake-up latency", "wake"),
        ("release to published", "release_to_publish"),
        ("publish", "publish"),
        ("own work", "own"),
    ):
        for q in ("p50", "p99", "p99.9", "max"):
            values[f"{q} {name}, window (ms)"] = _percentile(window.get(key), q)
    values |= {
        "max response, since activation (ms)": _ms(total.get("max_response_ns")),
        "max gap, window (ms)": _ms(window.get("max_gap_ns")),
        "max gap, since activation (ms)": _ms(total.get("max_gap_ns")),
        "p50 observation age, window (ms)": _percentile(window.get("observation_age"), "p50"),
        "max observation age, window (ms)": _percentile(window.get("observation_age"), "max"),
        "max header age, window (ms)": _percentile(window.get("header_age"), "max"),
        "starved steps": str(total.get("starved", 0)),
        "stale steps": str(total.get("stale", 0)),
        "commands withheld (not finite)": str(total.get("withheld", 0)),
        "steps no map recorded": str(unrecorded),
        "blocks without a Run": str(lost_blocks),
        "executor spin_once, empty (ms)": _ms(executor_ns),
        "block steps": str(live["block"]["reached"]),
        "block length": str(live["block"]["steps"]),
        "backend": str(live["backend"]),
        "graph": "captured" if facts.get("captured") else "none",
        "compiles": str(facts.get("compiles", 0)),
        "device clock (MHz)": _text(live["device"]["clock_mhz"]),
        "throttled": _text(live["device"]["throttled"]),
    }
    return values


def status(level: int, name: str, message: str, values: Mapping[str, str], hardware: str) -> Any:
    """A DiagnosticStatus; all values are texts, which the message demands."""
    from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

    found = DiagnosticStatus(level=_LEVELS[level], name=name, message=message, hardware_id=hardware)
    found.values = [KeyValue(key=k, value=str(v)) for k, v in values.items()]
    return found


def notify_systemd(text: str) -> None:
    """A line such as WATCHDOG=1 to systemd, where this process is its service. Call it in the executor's thread."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)
