"""Predict what Nsight Compute will count for the RMSNorm kernels, then count it, then say agree or disagree and why.

    python benchmarks/rmsnorm_ncu.py --out DIR              writes DIR/rmsnorm_ncu_prediction.json, runs ncu, compares
    python benchmarks/rmsnorm_ncu.py --out DIR --read CSV   compares with a CSV that ncu wrote for the same launches

The prediction is on disk before ncu starts: bound side, memory and compute utilisation, one kernel per call, DRAM bytes. It comes
from the tensors' bytes, the device's SM count, L2 and clock, and a measured copy, not from an earlier profile. ncu empties the
caches before every launch and measures it alone, so that dependent launch is off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from robot_perf.measure.kernel_bench_points import Point, bytes_touched

CASES = (
    Point("rms_norm", 32768, 4096), Point("add_rms_norm", 32768, 4096), Point("rms_norm", 8192, 16384),
    Point("rms_norm", 2048, 65536), Point("rms_norm", 65536, 256), Point("rms_norm", 1, 4096), Point("add_rms_norm", 1, 65536),
)  # fmt: skip
METRICS = (
    "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed", "launch__registers_per_thread", "lts__t_sector_hit_rate.pct",
)  # fmt: skip
# Machine instructions per element and thread, from the disassembly of the row kernel: two conversions of a bf16x2 pair, a
# multiply and an add for the sum, two multiplies, half a pack, and a sixteenth each of the 16-byte loads and stores.
INSTRUCTIONS_PLAIN, INSTRUCTIONS_ADD = 6.0, 8.0
LAUNCHES = 3  # of each case; ncu's figures of the last are compared, the first ones load modules and warm the TLB


def predict(point: Point, device: dict[str, float]) -> dict[str, Any]:
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
    compute = issue_us / memory_us * 100
    return {
        "point": point.name,
        "bound": "memory",
        "why": f"{memory_us:.1f} µs of bandwidth against {issue_us:.1f} µs of issue slots",
        "dram_pct": [roof - 8, min(100.0, roof + 6)],
        "sm_pct": [0.5 * compute, min(95.0, 2 * compute + 5)],
        "kernels_per_call": 1,
        "read_bytes": [0.98 * reads, 1.05 * reads],
        "write_bytes": [max(0.0, 0.98 * (writes - device["l2_bytes"])), 1.05 * writes],
    }


def compare(prediction: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """The prediction beside ncu's figures: agree or disagree, with the reason."""
    reasons = []
    for name, label in (
        ("dram_pct", "DRAM %"),
        ("sm_pct", "compute %"),
        ("read_bytes", "DRAM bytes read"),
        ("write_bytes", "DRAM bytes written"),
    ):
        low, high = prediction[name]
        value = seen[name]
        if value is None:
            reasons.append(f"{label}: ncu gave no figure")
        elif not low <= value <= high:
            reasons.append(f"{label}: {value:.4g} is outside {low:.4g} to {high:.4g}")
    if seen["kernels_per_call"] != 1:
        reasons.append(f"{seen['kernels_per_call']} kernels per call")
    bound = (
        "memory"
        if (seen["dram_pct"] or 0) > max(40.0, seen["sm_pct"] or 0)
        else "compute"
        if (seen["sm_pct"] or 0) > 40
        else "latency"
    )
    if bound != prediction["bound"]:
        reasons.append(f"bound by {bound}, not {prediction['bound']}")
    return {
        "prediction": prediction,
        "seen": seen | {"bound": bound},
        "verdict": "agree" if not reasons else "disagree",
        "reasons": reasons,
    }


def device_facts(spec_gb_s: float) -> dict[str, float]:
    """SM count, clock, L2 and the bandwidth of a 1 GiB copy, read from the device."""
    import torch

    from robot_perf.measure.kernel_bench_timing import capture, replay_us

    found = torch.cuda.get_device_properties(0)
    x = torch.ones(2**28, dtype=torch.float16, device="cuda")
    torch.neg(x)
    us = statistics.median(replay_us(capture([lambda: torch.neg(x)] * 8, 1), 8, 9))
    clock = subprocess.run(
        ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "name": found.name,  # type: ignore[dict-item]
        "sm": found.multi_processor_count,
        "l2_bytes": found.L2_cache_size,
        "sm_hz": float(clock.stdout.split()[0]) * 1e6,
        "copy_bytes_s": 2 * x.nbytes / us * 1e6,
        "spec_bytes_s": spec_gb_s * 1e9,
    }


def launch() -> None:
    """What ncu runs: each case three times, alone on the device."""
    import torch

    from robot_perf.kernels.rmsnorm import add_rms_norm, rms_norm

    torch.set_grad_enabled(False)
    for point in CASES:
        x = torch.randn(point.m, point.d, device="cuda").to(torch.bfloat16)
        r = torch.randn_like(x) if point.op == "add_rms_norm" else x
        w = torch.ones(point.d, device="cuda").to(torch.bfloat16)
        for _ in range(LAUNCHES):
            if point.op == "rms_norm":
                rms_norm(x, w)
            else:
                add_rms_norm(x, r, w)
            torch.cuda.synchronize()
        del x, r


def profile(folder: Path) -> Path:
    """Runs ncu over `launch`; the CSV's path."""
    program = [sys.executable, __file__, "--launch", "--out", str(folder)]
    ncu = [
        "ncu",
        "--csv",
        "--page",
        "raw",
        "--clock-control",
        "none",
        "--kernel-name",
        "regex:^rms_norm_(row|split|loop)$",
        "--metrics",
        ",".join(METRICS),
    ]
    done = subprocess.run(
        [*ncu, *program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ROBOT_PERF_DEPENDENT_LAUNCH": "0"},
    )
    target = folder / "rmsnorm_ncu.csv"
    target.write_text(done.stdout + (done.stderr if done.returncode else ""), encoding="utf-8")
    return target


def read(path: Path) -> list[dict[str, Any]]:
    """One row per case from the CSV: the last of its launches."""
    from robot_perf.profiles.model import rows
    from robot_perf.profiles.ncu_csv import read as read_csv

    wanted = ("dur_ns", "dram_read_bytes", "dram_write_bytes", "dram_pct", "sm_pct", "registers", "l2_hit_pct")
    found = list(rows(read_csv(path.read_text(encoding="utf-8"), path.name).kernels, wanted))
    per_case = len(found) / (len(CASES) * LAUNCHES)
    out = []
    for index in range(len(CASES)):
        row = found[min(len(found) - 1, int((index + 1) * LAUNCHES * per_case) - 1)]
        out.append(
            {
                "us": row["dur_ns"] / 1000, "dram_pct": row["dram_pct"], "sm_pct": row["sm_pct"], "kernels_per_call": per_case,
                "read_bytes": row["dram_read_bytes"], "write_bytes": row["dram_write_bytes"], "registers": row["registers"],
                "l2_hit_pct": row["l2_hit_pct"],
            }
        )  # fmt: skip
    return out


def main() -> None:
    """Predicts, profiles, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--read", type=Path)
    parser.add_argument(
        "--spec-gb-s", type=float, default=4800.0, help="the memory's nominal bandwidth (default: H200)"
    )
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        launch()
        return
    written = options.out / "rmsnorm_ncu_prediction.json"
    if options.read:
        stored = json.loads(written.read_text(encoding="utf-8"))
    else:
        device = device_facts(options.spec_gb_s)
        stored = {"device": device, "predictions": [predict(point, device) for point in CASES]}
        written.write_text(json.dumps(stored, indent=1), encoding="utf-8")
        print(f"predictions written to {written}")
    seen = read(options.read or profile(options.out))
    results = [compare(p, s) for p, s in zip(stored["predictions"], seen, strict=True)]
    (options.out / "rmsnorm_ncu.json").write_text(
        json.dumps({"device": stored["device"], "results": results}, indent=1), encoding="utf-8"
    )
    for result in results:
        p, s = result["prediction"], result["seen"]
        print(f"{p['point']}: {result['verdict']}; predicted {p['bound']} ({p['why']}), DRAM {p['dram_pct'][0]:.0f} to {p['dram_pct'][1]:.0f} %, "
              f"compute {p['sm_pct'][0]:.0f} to {p['sm_pct'][1]:.0f} %; seen {s['bound']}, DRAM {s['dram_pct']:.0f} %, compute {s['sm_pct']:.0f} %, "
              f"{s['us']:.1f} µs, read {s['read_bytes'] / 1e6:.2f} MB, written {s['write_bytes'] / 1e6:.2f} MB, L2 hits {s['l2_hit_pct'] or 0:.0f} %")  # fmt: skip
        for reason in result["reasons"]:
            print(f"    {reason}")


if __name__ == "__main__":
    main()
