"""The thresholds of the rules, each with where it comes from. An option may replace those that are ours."""

from __future__ import annotations

from dataclasses import dataclass, fields

SOURCES: dict[str, str] = {
    "primary_share": "ours (profiles.md V3): the largest part of a step is its limit from here on",
    "listed_share": "ours (V3): smaller parts are not listed",
    "mixed_points": "ours (V3): two parts this near are named together",
    "unknown_idle": "V3: from here on the cause of idle time can't be answered",
    "min_steps": "V1: fewer steps and fewer operations than min_ops are too little data",
    "min_ops": "V1",
    "cold_share": "V2: a capture that is mostly loading shows loading",
    "sync_share": "V4: the host part is named sync when this much of it lies inside synchronising calls",
    "stage_share": "V4: one gap with this much of the idle time is a host stage",
    "stage_cover": "V4: a range names the stage when it covers this much of the gap",
    "short_queue_ns": "T8, T11: an operation that starts this soon after its call waited for nothing but the launch",
    "step_holds": "T6: ranges are steps when they hold this much of the linked device work",
    "warmup_factor": "T13: a first step longer than this many medians is warm-up",
    "small_copy_bytes": "V6: smaller copies are latency, not bandwidth",
    "short_kernel_ns": "S5, section 11: below this the launch gap matters more than the kernel",
    "short_kernel_share": "S5: share of kernel time",
    "blocked_ratio": "S5: mean over median of a launch call's duration",
    "host_ahead_share": "S5: share of launches that waited in the queue for longer than short_queue_ns",
    "sol_high_pct": "NVIDIA's Speed-Of-Light rule (ncu 2024.1): high throughput",
    "sol_low_pct": "NVIDIA's Speed-Of-Light rule: low utilisation of both",
    "sol_difference": "NVIDIA's Speed-Of-Light rule: one is more heavily utilised",
    "side_tolerance": "section 11: the part whose percentage is within this of mem is the one that limits",
    "dram_side_pct": "section 11: both above 80 and DRAM below this is compute",
    "occupancy_pct": "section 11: theoretical occupancy below this names its limiter",
    "occupancy_gap": "section 11: achieved this many points below theoretical",
    "done_fraction": "a kernel at this fraction of the probed bandwidth is done: only fewer bytes help",
    "closed_loop_slack": "ours: steps with less slack than this share of their distance follow each other back to back",
}


@dataclass(frozen=True)
class Thresholds:
    """Values of all thresholds; shares in percent unless named otherwise."""

    primary_share: float = 30.0
    listed_share: float = 10.0
    mixed_points: float = 5.0
    unknown_idle: float = 0.5
    min_steps: int = 3
    min_ops: int = 20
    cold_share: float = 0.5
    sync_share: float = 0.5
    stage_share: float = 0.5
    stage_cover: float = 0.9
    short_queue_ns: int = 20_000
    step_holds: float = 0.9
    warmup_factor: float = 3.0
    small_copy_bytes: int = 64 * 1024
    short_kernel_ns: int = 10_000
    short_kernel_share: float = 0.5
    blocked_ratio: float = 3.0
    host_ahead_share: float = 0.5
    sol_high_pct: float = 80.0
    sol_low_pct: float = 60.0
    sol_difference: float = 10.0
    side_tolerance: float = 0.5
    dram_side_pct: float = 60.0
    occupancy_pct: float = 80.0
    occupancy_gap: float = 10.0
    done_fraction: float = 0.90
    closed_loop_slack: float = 0.05


def documented() -> list[tuple[str, object, str]]:
    """(name, value, source) of every threshold, for documents and reports."""
    defaults = Thresholds()
    return [(f.name, getattr(defaults, f.name), SOURCES[f.name]) for f in fields(Thresholds)]
