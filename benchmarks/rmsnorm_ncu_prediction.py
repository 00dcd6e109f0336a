"""What rmsnorm_ncu.py predicts of a launch, and how ncu's figures compare with it. No GPU is needed here."""

from __future__ import annotations

from typing import Any

from robot_perf.measure.kernel_bench.points import Point, bytes_touched

# Machine instructions per element and thread, from the disassembly of the row kernel: two conversions of a bf16x2 pair, a
# multiply and an add for the sum, two multiplies, half a pack, and a sixteenth each of the 16-byte loads and stores.
INSTRUCTIONS_PLAIN, INSTRUCTIONS_ADD = 6.0, 8.0
LAUNCH_US = 2.5  # of any launch: its start and end, while the memory isn't busy


def predict(point: Point, device: dict[str, Any]) -> dict[str, Any]:
    """What ncu should see for one launch of the point. Percentages are ranges."""
    size = bytes_touched(point)
    passes = 4 if point.op == "add_rms_norm" else 2
    item = size / (passes * point.m * point.d + point.d)
    writes = passes / 2 * point.m * point.d * item
    reads = size - writes
    memory_us = size / device["copy_bytes_s"] * 1e6
    each = INSTRUCTIONS_ADD if passes == 4 else INSTRUCTIONS_PLAIN
    issue_us = point.m * point.d * each / 32 / (4 * device["sm"] * device["sm_hz"]) * 1e6
    if size < device["copy_bytes_s"] * 2e-6:
        return {
            "point": point.name,
            "bound": "latency",
            "why": f"{size / 1e3:.1f} kB need {memory_us:.3f} µs of bandwidth; a launch takes over 1 µs",
            "dram_pct": [0, 12],
            "sm_pct": [0, 12],
            "kernels_per_call": 1,
            "read_bytes": [0.9 * reads, 1.3 * reads + 64_000],  # code, parameters and tables come from DRAM too
            "write_bytes": [0, 1.1 * writes + 64_000],  # what is written may still be in the L2 at the end
        }
    roof = device["copy_bytes_s"] / device["spec_bytes_s"] * 100
    least = reads + max(0.0, writes - device["l2_bytes"])  # what is written may still be in the L2 at the end
    busy_us = least / device["copy_bytes_s"] * 1e6
    compute = issue_us / memory_us * 100
    return {
        "point": point.name,
        "bound": "memory",
        "why": f"{memory_us:.1f} µs of bandwidth against {issue_us:.1f} µs of issue slots",
        "dram_pct": [roof * busy_us / (busy_us + LAUNCH_US) - 8, min(100.0, roof + 6)],
        "sm_pct": [0.5 * compute, min(95.0, 2 * compute + 5)],
        "kernels_per_call": 1,
        "read_bytes": [0.98 * reads, 1.05 * reads],
        "write_bytes": [0.98 * (least - reads), 1.05 * writes],
    }


def compare(prediction: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """The prediction beside ncu's figures: agree, disagree or can't say, with the reason."""
    reasons, missing = [], []
    for name, label in (
        ("dram_pct", "DRAM %"),
        ("sm_pct", "compute %"),
        ("read_bytes", "DRAM bytes read"),
        ("write_bytes", "DRAM bytes written"),
    ):
        low, high = prediction[name]
        value = seen[name]
        if value is None:
            missing.append(f"{label}: ncu gave no figure")
        elif not low <= value <= high:
            reasons.append(f"{label}: {value:.4g} is outside {low:.4g} to {high:.4g}")
    others = ", ".join(seen["others"])
    if seen["kernels_per_call"] is None:
        missing.append(f"other kernels ran in the profiled calls, and ncu doesn't say in whose: {others}")
    elif seen["kernels_per_call"] != 1:
        reasons.append(f"{seen['kernels_per_call']} kernels in the call: ours and {others}")
    bound = _bound(seen["dram_pct"], seen["sm_pct"])
    if bound not in (None, prediction["bound"]):
        reasons.append(f"bound by {bound}, not {prediction['bound']}")
    return {
        "prediction": prediction,
        "seen": seen | {"bound": bound},
        "verdict": "disagree" if reasons else "can't say" if missing else "agree",
        "reasons": reasons + missing,
    }


def _bound(dram_pct: float | None, sm_pct: float | None) -> str | None:
    if dram_pct is None or sm_pct is None:
        return None
    if dram_pct > max(40.0, sm_pct):
        return "memory"
    return "compute" if sm_pct > 40 else "latency"


def line(result: dict[str, Any]) -> str:
    """A result in words."""
    p, s = result["prediction"], result["seen"]

    def said(value: float | None, digits: int = 0) -> str:
        return "?" if value is None else f"{value:.{digits}f}"

    read_mb, written_mb = (None if s[k] is None else s[k] / 1e6 for k in ("read_bytes", "write_bytes"))
    return (
        f"{p['point']}: {result['verdict']}; predicted {p['bound']} ({p['why']}), DRAM {p['dram_pct'][0]:.0f} to "
        f"{p['dram_pct'][1]:.0f} %, compute {p['sm_pct'][0]:.0f} to {p['sm_pct'][1]:.0f} %; seen {s['bound'] or '?'}, DRAM "
        f"{said(s['dram_pct'])} %, compute {said(s['sm_pct'])} %, {said(s['us'], 1)} µs, read {said(read_mb, 2)} MB, written "
        f"{said(written_mb, 2)} MB, L2 hits {said(s['l2_hit_pct'])} %"
    )
