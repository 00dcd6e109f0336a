"""The nsys and ncu command lines, each robot-safe, and what they cost (profiles.md section 14)."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass

from robot_perf.errors import UsageError

SECTIONS = ("SpeedOfLight", "SpeedOfLight_RooflineChart", "MemoryWorkloadAnalysis", "Occupancy", "LaunchStats")
# every nsys line: by default the end of the capture range ends the application, which on a robot is a fault
SAFE_NSYS = ("--capture-range-end=stop", "--kill=none")
EXPECTED_PASSES = 20  # ncu 2025.3 on an H200 for these sections; the full set takes nearly 40
FEW_METRICS = (
    "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One command: what it is for, its words, and where its stdout goes (None: the terminal)."""

    purpose: str
    words: tuple[str, ...]
    stdout: str | None = None

    @property
    def text(self) -> str:
        """The line for a shell, in the C locale."""
        return "LC_ALL=C " + shlex.join(self.words) + (f" > {shlex.quote(self.stdout)}" if self.stdout else "")


def nsys_lines(command: list[str], out: str, *, seconds: float | None = None) -> list[Line]:
    """One capture for timing (whole graphs) and one for attribution (graph nodes, OS calls), each with its export. Never one for both."""
    lines = []
    for purpose, traced, graph, name in (
        ("timing: whole graphs, least overhead", "cuda,nvtx", "graph", f"{out}-timing"),
        (
            "attribution: kernels inside graphs and OS calls, with significant overhead: not for timing",
            "cuda,nvtx,osrt",
            "node",
            f"{out}-attribution",
        ),
    ):
        limit = ("-d", f"{seconds:g}") if seconds is not None else ("-c", "cudaProfilerApi")
        words = (
            "nsys",
            "profile",
            "-t",
            traced,
            "--sample=none",
            "--cpuctxsw=none",
            f"--cuda-graph-trace={graph}",
            *limit,
            *SAFE_NSYS,
            "-o",
            name,
            "--",
            *command,
        )
        lines.append(Line(purpose, words))
        export = (
            "nsys",
            "export",
            "--type",
            "sqlite",
            "--lazy=false",
            "--force-overwrite=true",
            "-o",
            f"{name}.sqlite",
            f"{name}.nsys-rep",
        )
        lines.append(Line("export", export))
    return lines


def ncu_lines(command: list[str], out: str, *, pattern: str | None, skip: int | None, count: int | None) -> list[Line]:
    """The report of the sections, its raw CSV, and a run of five metrics for the loop's DRAM bytes. Raises UsageError without filter and count."""
    if not pattern or skip is None or not count:
        raise UsageError(
            "ncu needs a kernel filter and a count",
            why="It replays every launch it profiles, some 20 times: without them a policy runs for hours.",
            do="Add --kernels REGEX, and --trace TRACE (or --matching-launches M) with --skip-steps and --profile-steps.",
        )
    filtered = (
        "ncu", "--target-processes", "all", "--cache-control", "none", "--clock-control", "none", "--nvtx", "--nvtx-include", "policy_step/",
        "--kernel-name-base", "demangled", "-k", f"regex:{pattern}", "-s", str(skip), "-c", str(count),
    )  # fmt: skip
    sections = tuple(word for section in SECTIONS for word in ("--section", section))
    return [
        Line("counters of the sections", (*filtered, *sections, "-f", "-o", out, *command)),
        Line(
            "export",
            ("ncu", "--import", f"{out}.ncu-rep", "--csv", "--page", "raw", "--print-units", "base"),
            f"{out}.raw.csv",
        ),
        Line(
            "DRAM bytes nearest to the deployed cache state: few metrics, one or two passes",
            (*filtered, "--metrics", ",".join(FEW_METRICS), "--csv", "--print-units", "base", *command),
            f"{out}.few.csv",
        ),
    ]


NCU_COSTS = (
    f"about {EXPECTED_PASSES} passes for each profiled launch: the kernel is replayed, its memory saved and restored around every pass",
    "the first profiled kernel adds seconds of set-up; the process stalls meanwhile: never on a live robot",
    "kernels are serialised: ncu's durations are no latency of a step and are never added to wall times",
    "--cache-control none: each pass finds the kernel's own data warm; DRAM bytes are taken from the run of few metrics",
    "--clock-control none: the deployed clock; ncu's own default locks it (to base; to boost in 2026.1) and makes peaks wrong unless scaled",
    "ERR_NVGPUCTRPERM: counters need root, a container with SYS_ADMIN, or NVreg_RestrictProfilingToAdminUsers=0 set by the machine's owner",
)
NSYS_COSTS = (
    "two captures, never one for both: node tracing slows graphs down",
    "--capture-range-end=stop --kill=none: the application goes on when the range ends",
)


def refuse_on_a_robot() -> None:
    """Raises UsageError inside a ROS node or under a real-time priority: ncu stalls the process for seconds."""
    if "rclpy" in sys.modules or os.environ.get("ROBOT_PERF_IN_NODE"):
        raise UsageError(
            "profile --ncu is refused inside a ROS node",
            why="ncu stalls the process for seconds: never on a live robot.",
            do="Profile the policy alone: robot-perf profile POLICY --rate HZ --ncu.",
        )
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        raise UsageError(
            "profile --ncu is refused under a real-time priority",
            why="ncu stalls the process for seconds: never on a live robot.",
            do="Start it without SCHED_FIFO or SCHED_RR (chrt -o 0).",
        )
