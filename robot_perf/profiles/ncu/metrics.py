"""Which ncu metric fills which column: raw names, and (section, display name) of the details page (rules C4, C14 to C16)."""

from __future__ import annotations

from typing import NamedTuple

SOL, MEMORY, OCCUPANCY, LAUNCH, SCHEDULER = (
    "GPU Speed Of Light Throughput", "Memory Workload Analysis", "Occupancy", "Launch Statistics", "Scheduler Statistics",
)  # fmt: skip


class Metric(NamedTuple):
    """One column of the kernel table."""

    family: str
    raw: tuple[str, ...]
    details: tuple[tuple[str, str], ...] = ()


_ELAPSED, _ACTIVE = "avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active"

METRICS: dict[str, Metric] = {
    "dur_ns": Metric("time", ("gpu__time_duration.sum", "gpu__time_duration.avg"), ((SOL, "Duration"),)),
    "sm_pct": Metric(
        "pct",
        (f"sm__throughput.{_ELAPSED}",),
        ((SOL, "Compute (SM) Throughput"), (SOL, "Compute (SM) [%]"), (SOL, "SM [%]")),
    ),
    "mem_pct": Metric(
        "pct", (f"gpu__compute_memory_throughput.{_ELAPSED}",), ((SOL, "Memory Throughput"), (SOL, "Memory [%]"))
    ),
    "dram_pct": Metric(
        "pct", (f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}"), ((SOL, "DRAM Throughput"),)
    ),
    "l2_pct": Metric("pct", (f"lts__throughput.{_ELAPSED}",), ((SOL, "L2 Cache Throughput"),)),
    "l1_pct": Metric("pct", (f"l1tex__throughput.{_ACTIVE}",), ((SOL, "L1/TEX Cache Throughput"),)),
    "cycles": Metric("count", ("gpc__cycles_elapsed.max", "sm__cycles_elapsed.max"), ((SOL, "Elapsed Cycles"),)),
    "sm_hz": Metric(
        "hz", ("gpc__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second"), ((SOL, "SM Frequency"),)
    ),
    "waves": Metric("count", ("launch__waves_per_multiprocessor",), ((LAUNCH, "Waves Per SM"),)),
    "occ_theoretical_pct": Metric(
        "pct", ("sm__maximum_warps_per_active_cycle_pct",), ((OCCUPANCY, "Theoretical Occupancy"),)
    ),
    "occ_achieved_pct": Metric("pct", (f"sm__warps_active.{_ACTIVE}",), ((OCCUPANCY, "Achieved Occupancy"),)),
    "limit_sm": Metric("count", ("launch__occupancy_limit_blocks",), ((OCCUPANCY, "Block Limit SM"),)),
    "limit_registers": Metric("count", ("launch__occupancy_limit_registers",), ((OCCUPANCY, "Block Limit Registers"),)),
    "limit_shared": Metric("count", ("launch__occupancy_limit_shared_mem",), ((OCCUPANCY, "Block Limit Shared Mem"),)),
    "limit_warps": Metric("count", ("launch__occupancy_limit_warps",), ((OCCUPANCY, "Block Limit Warps"),)),
    "limit_barriers": Metric("count", ("launch__occupancy_limit_barriers",), ((OCCUPANCY, "Block Limit Barriers"),)),
    "dram_bytes_s": Metric("bytes", ("dram__bytes.sum.per_second",), ((MEMORY, "Memory Throughput"),)),
    "dram_read_bytes": Metric("bytes", ("dram__bytes_read.sum",)),
    "dram_write_bytes": Metric("bytes", ("dram__bytes_write.sum",)),
    "l2_hit_pct": Metric("pct", ("lts__t_sector_hit_rate.pct",), ((MEMORY, "L2 Hit Rate"),)),
    "l1_hit_pct": Metric("pct", ("l1tex__t_sector_hit_rate.pct",), ((MEMORY, "L1/TEX Hit Rate"),)),
    "mem_busy_pct": Metric("pct", (f"gpu__compute_memory_access_throughput.{_ELAPSED}",), ((MEMORY, "Mem Busy"),)),
    "max_bw_pct": Metric("pct", (f"gpu__compute_memory_request_throughput.{_ELAPSED}",), ((MEMORY, "Max Bandwidth"),)),
    "issue_active": Metric(
        "count", ("smsp__issue_active.avg.per_cycle_active",), ((SCHEDULER, "Issued Warp Per Scheduler"),)
    ),
    "tensor_pct": Metric(
        "pct", (f"sm__pipe_tensor_cycles_active.{_ACTIVE}", f"sm__inst_executed_pipe_tensor.{_ACTIVE}")
    ),
    "fma_pct": Metric("pct", (f"sm__pipe_fma_cycles_active.{_ACTIVE}", f"sm__inst_executed_pipe_fma.{_ACTIVE}")),
    "alu_pct": Metric("pct", (f"sm__pipe_alu_cycles_active.{_ACTIVE}", f"sm__inst_executed_pipe_alu.{_ACTIVE}")),
    "fp64_pct": Metric("pct", (f"sm__pipe_fp64_cycles_active.{_ACTIVE}", f"sm__inst_executed_pipe_fp64.{_ACTIVE}")),
    "passes": Metric("count", ("profiler__replayer_passes",)),
    "registers": Metric("count", ("launch__registers_per_thread",), ((LAUNCH, "Registers Per Thread"),)),
    "shared_bytes": Metric("bytes", ("launch__shared_mem_per_block",)),
    "sm_count": Metric("count", ("device__attribute_multiprocessor_count", "launch__sm_count"), ((LAUNCH, "# SMs"),)),
    "attr_memory_clock_khz": Metric("count", ("device__attribute_memory_clock_rate",)),
    "attr_bus_bits": Metric("count", ("device__attribute_fb_bus_width",)),
    "attr_l2_bytes": Metric("count", ("device__attribute_l2_cache_size",)),
    "attr_clock_khz": Metric("count", ("device__attribute_clock_rate",)),
}
DEVICE_NAME = "device__attribute_display_name"
STALL_PREFIX, STALL_SUFFIX = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
INTEGER_COLUMNS = frozenset({"dur_ns", "registers", "shared_bytes"})

BY_RAW: dict[str, str] = {raw: column for column, metric in METRICS.items() for raw in metric.raw}
BY_DETAILS: dict[tuple[str, str], str] = {key: column for column, metric in METRICS.items() for key in metric.details}

# what ncu's own Speed-Of-Light rule says, by words that 2024.1 to 2025.3 share
TOOL_VERDICTS = (
    ("grid is too small", "small grid"),
    ("greater than 80", "high throughput"),
    ("low compute throughput", "latency"),
    ("Memory is more heavily utilized", "memory"),
    ("Compute is more heavily utilized", "compute"),
    ("balanced", "balanced"),
)


def tool_verdict(text: str) -> str | None:
    """The class that ncu's own rule text names."""
    return next((verdict for words, verdict in TOOL_VERDICTS if words in text), None)
