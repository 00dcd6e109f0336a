"""The policy node's parameters: one table for the node, its launch file and the documentation. Imports nothing of weight."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robot_perf.errors import UsageError, did_you_mean

Value = float | int | bool | str

_KINDS = {"double": "a number", "integer": "a whole number", "bool": "true or false", "string": "a text"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One knob. `default` None: required. `unit` is empty for pure numbers; ranges include both ends."""

    name: str
    kind: str  # double | integer | bool | string
    default: Value | None
    description: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False  # may change while the node runs

    @property
    def allowed(self) -> str:
        """What is accepted, for messages and descriptors."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = _KINDS[self.kind]
        if self.minimum is not None and self.maximum is not None:
            words += f" from {self.minimum:g} to {self.maximum:g}"
        return f"{words} {self.unit}".rstrip()


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("rate", "double", None, "Control rate; the release grid is 1/rate.", "Hz", 0.01, 100_000.0),
    Parameter(
        "policy", "string", None, "Policy: a file (.onnx, .pt, .pt2, pipeline .yaml), a built-in, or module:callable."
    ),
    Parameter("backend", "string", "", "Backend by name; empty: the policy's own default."),
    Parameter("device", "string", "cpu", "Where the backend runs: cpu or cuda:N."),
    Parameter("threads", "integer", 0, "Threads of the backend; 0: its own default.", "", 0, 1024),
    Parameter("deadline_ms", "double", 0.0, "Deadline after each release; 0: the period.", "ms", 0.0, 1e6),
    Parameter(
        "steps", "integer", 0, "Releases in a block, each with its own verdict; 0: the plan.", "", 0, 200_000_000
    ),
    Parameter("miss_rate", "double", 1e-3, "Miss rate that is allowed.", "", 1e-9, 0.5),
    Parameter("confidence", "double", 0.95, "Confidence of the verdict.", "", 0.5, 0.999999),
    Parameter("assume_burst", "double", 0.0, "Misses per overrun assumed at least; 0: by the deadline.", "", 0.0, 1e6),
    Parameter("mapping", "string", "", "YAML that maps topics to inputs and the action to a command; empty: arrays."),
    Parameter(
        "observations",
        "string",
        "topics",
        "topics: from the mapping. random: seeded values; the command then goes to ~/action alone.",
        choices=("topics", "random"),
    ),
    Parameter(
        "stale_after_ms", "double", 0.0, "Age from which an observation is stale; 0: three periods.", "ms", 0.0, 1e6
    ),
    Parameter(
        "on_stale",
        "string",
        "hold",
        "What a stale or missing observation does: hold the last one, skip the call, or stop the node.",
        choices=("hold", "skip", "stop"),
    ),
    Parameter(
        "first_observation_s",
        "double",
        10.0,
        "How long activation waits for all topics before it warns.",
        "s",
        0.1,
        3600.0,
    ),
    Parameter(
        "place",
        "string",
        "thread",
        "Where the loop runs: its own thread, or polled by the only thread.",
        choices=("thread", "polled"),
    ),
    Parameter(
        "executor", "string", "single", "Executor of the topics and services.", choices=("single", "multi", "events")
    ),
    Parameter("wait", "string", "sleep", "How the loop waits for a release.", choices=("sleep", "hybrid", "spin")),
    Parameter("spin_margin_us", "double", 200.0, "Spinning part of the wait hybrid.", "us", 0.0, 1e5),
    Parameter("gc", "string", "freeze", "Garbage collector during the loop.", choices=("freeze", "off", "default")),
    Parameter("fifo", "integer", 0, "SCHED_FIFO priority of the loop thread; 0: off.", "", 0, 99),
    Parameter("cpus", "string", "", "Processors of the loop thread, such as 2,3; empty: all."),
    Parameter("mlock", "bool", False, "Lock the process's memory while active."),
    Parameter("hold_cpu_dma_latency", "bool", False, "Hold /dev/cpu_dma_latency at 0 while active."),
    Parameter("warmup_max", "integer", 2000, "Most calls of the warm-up in configure.", "", 3, 1_000_000),
    Parameter(
        "recording", "string", "", ".npz whose inputs warm the policy up and whose outputs it is checked against."
    ),
    Parameter("seed", "integer", 0, "Seed of random observations and built-in weights.", "", 0, 2**31 - 1),
    Parameter(
        "command_stamp",
        "string",
        "now",
        "Header stamp of the command: now, or that of the observation used.",
        choices=("now", "observation"),
    ),
    Parameter(
        "stamps_share_clock",
        "bool",
        False,
        "Header stamps come from this host's clock: only then is a header age computed.",
    ),
    Parameter("output_dir", "string", "runs", "Folder of the Runs, one file a block."),
    Parameter(
        "max_disk_mb", "double", 1000.0, "Room for this node's Runs; the oldest PASS goes first.", "MB", 1.0, 1e9
    ),
    Parameter("autostart", "bool", False, "Configure and activate by itself; else wait for a lifecycle manager."),
    Parameter("force_sim_verdict", "bool", False, "Judge under simulated time too; every Run then says so."),
    Parameter("statistics", "bool", False, "Publish /statistics where statistics_msgs is installed."),
    Parameter(
        "diagnostics.threshold.miss_ratio.warn",
        "double",
        1e-4,
        "Miss ratio of the window that warns.",
        "",
        0.0,
        1.0,
        dynamic=True,
    ),
    Parameter(
        "diagnostics.threshold.miss_ratio.error",
        "double",
        1e-2,
        "Miss ratio of the window that is an error.",
        "",
        0.0,
        1.0,
        dynamic=True,
    ),
    Parameter(
        "diagnostics.threshold.gap_periods.warn",
        "double",
        2.5,
        "Largest gap of the window that warns.",
        "periods",
        1.0,
        1e6,
        dynamic=True,
    ),
    Parameter(
        "diagnostics.threshold.gap_periods.error",
        "double",
        10.0,
        "Largest gap of the window that is an error.",
        "periods",
        1.0,
        1e6,
        dynamic=True,
    ),
    Parameter(
        "diagnostics.threshold.stale_ratio.warn",
        "double",
        1e-2,
        "Share of steps on a stale observation that warns.",
        "",
        0.0,
        1.0,
        dynamic=True,
    ),
    Parameter(
        "diagnostics.threshold.stale_ratio.error",
        "double",
        0.5,
        "Share of steps on a stale observation that is an error.",
        "",
        0.0,
        1.0,
        dynamic=True,
    ),
)

BY_NAME: Mapping[str, Parameter] = {p.name: p for p in PARAMETERS}


def checked(parameter: Parameter, value: Any) -> Value:
    """The value in the parameter's own type: `50` is accepted for a double. Raises UsageError with name, value and what is allowed."""
    good: Any = None
    if parameter.kind == "double" and isinstance(value, (int, float)) and not isinstance(value, bool):
        good = float(value)
    elif (
        (parameter.kind == "integer" and isinstance(value, int) and not isinstance(value, bool))
        or (parameter.kind == "bool" and isinstance(value, bool))
        or (parameter.kind == "string" and isinstance(value, str))
    ):
        good = value
    if good is None or not _inside(parameter, good):
        shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
        raise UsageError(
            f"parameter {parameter.name}: got {shown} ({type(value).__name__})", why=f"Allowed: {parameter.allowed}."
        )
    result: Value = good
    return result


def _inside(parameter: Parameter, value: Any) -> bool:
    if parameter.choices:
        return value in parameter.choices
    if isinstance(value, (float, int)) and not isinstance(value, bool):
        low = parameter.minimum is None or value >= parameter.minimum
        high = parameter.maximum is None or value <= parameter.maximum
        return math.isfinite(value) and low and high
    return True


def from_text(parameter: Parameter, text: str) -> Value:
    """The value of a launch argument, which arrives as text. Raises UsageError as `checked` does."""
    value: Any = text
    try:
        if parameter.kind == "double":
            value = float(text)
        elif parameter.kind == "integer":
            value = int(text)
    except ValueError:
        value = text
    if parameter.kind == "bool":
        value = {"true": True, "false": False}.get(text.strip().lower(), text)
    return checked(parameter, value)


def missing(table: tuple[Parameter, ...], values: Mapping[str, Any], refused: Sequence[str] = ()) -> list[str]:
    """One sentence for every required parameter that was not given. `refused` are the sentences on those that were, wrongly."""
    return [
        f"parameter {p.name} is required and not set: {p.description} Allowed: {p.allowed}."
        for p in table
        if p.default is None
        and values.get(p.name) in (None, "")
        and not any(text.startswith(f"parameter {p.name}:") for text in refused)
    ]


def strangers(table: Sequence[Parameter], given: Sequence[str]) -> list[str]:
    """One sentence for every name that the table lacks: ROS ignores such a parameter, and the default stands in its place."""
    known = [p.name for p in table]
    return [
        " ".join(
            filter(None, (f"parameter {name} is none of this node's and changes nothing.", did_you_mean(name, known)))
        )
        for name in given
        if name not in known and not name.startswith("qos_overrides.")
    ]


def help_text(executable: str, table: Sequence[Parameter]) -> str:
    """What `EXECUTABLE --help` prints: how parameters are given, and all of them."""
    lines = [f"{executable} --ros-args -p NAME:=VALUE … (or --params-file FILE.yaml); docs/ros2.md", ""]
    for p in table:
        default = "required" if p.default is None else f"default {_written(p.default)}"
        lines.append(f"  {p.name}")
        lines += textwrap.wrap(
            f"{p.description} {p.allowed}; {default}".rstrip(), 74, initial_indent="      ", subsequent_indent="      "
        )
    return "\n".join(lines)


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, (int, float)) else value or "empty"


def problems(values: Mapping[str, Any]) -> list[str]:
    """One sentence for every pair of the policy node's parameters that doesn't fit together."""
    found = []
    fifo, wait = values.get("fifo", 0), values.get("wait")
    if fifo and wait == "spin":
        found.append(
            "parameter wait: spin under fifo can starve the whole machine; use sleep, or hybrid below 1000 us."
        )
    if fifo and wait == "hybrid" and values.get("spin_margin_us", 0.0) >= 1000:
        found.append("parameter spin_margin_us: under fifo it must stay below 1000 us.")
    for name in ("miss_ratio", "gap_periods", "stale_ratio"):
        pair = [values.get(f"diagnostics.threshold.{name}.{level}") for level in ("warn", "error")]
        if None not in pair and pair[0] > pair[1]:  # type: ignore[operator]
            found.append(f"parameter diagnostics.threshold.{name}.warn {pair[0]} lies above its .error {pair[1]}.")
    return found
