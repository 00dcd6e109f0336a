"""Predict what Nsight Compute will count for the RMSNorm kernels, then count it, then say agree or disagree and why.

    python benchmarks/rmsnorm_ncu.py --out DIR [--limit-s 60]   writes DIR/rmsnorm_ncu_prediction.json, runs ncu, compares
    python benchmarks/rmsnorm_ncu.py --out DIR --read CSV   compares with a CSV that ncu wrote for the same launches

The prediction is on disk before ncu starts: bound side, memory and compute utilisation, one kernel per call, DRAM bytes. It comes
from the tensors' bytes, the device's SM count, L2 and clock, and a measured copy, not from an earlier profile. ncu empties the
caches before every launch and measures it alone, so that dependent launch is off. Every kernel of the one profiled call counts,
ours or not; an NVTX range says whose call it was. A figure that ncu doesn't give leaves the case open ("can't say").
Exit code: 0 measured, 1 no figures from ncu, 2 no GPU or no ncu here, or a GPU whose nominal bandwidth has to be given.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rmsnorm_ncu_prediction import compare, line, predict

from robot_perf.measure.kernel_bench.points import Point

CASES = (
    Point("rms_norm", 32768, 4096), Point("add_rms_norm", 32768, 4096), Point("rms_norm", 8192, 16384),
    Point("rms_norm", 2048, 65536), Point("rms_norm", 65536, 256), Point("rms_norm", 1, 4096), Point("add_rms_norm", 1, 65536),
)  # fmt: skip
METRICS = (
    "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed", "launch__registers_per_thread", "lts__t_sector_hit_rate.pct",
)  # fmt: skip
WARM_UP = 2  # calls of each case before the profiled one: they load modules and warm the TLB
PLACES = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")  # below /
RESERVE_S = 3.0  # of the limit, for reading and writing what ncu said
H200_GB_S = 4800.0


def device_facts(spec_gb_s: float | None) -> dict[str, Any]:
    """SM count, clock, L2 and the bandwidth of a 1 GiB copy, read from the device. Exits with 2 without a GPU or its nominal bandwidth."""
    import torch

    from robot_perf.measure.kernel_bench.timing import capture, replay_us
    from robot_perf.measure.watch.nvml import open_meter

    if not torch.cuda.is_available():
        print("no CUDA GPU", file=sys.stderr)
        raise SystemExit(2)
    found = torch.cuda.get_device_properties(0)
    if spec_gb_s is None and "H200" not in found.name:
        print(f"{found.name}: give its memory's nominal bandwidth with --spec-gb-s", file=sys.stderr)
        raise SystemExit(2)
    x = torch.ones(2**28, dtype=torch.float16, device="cuda")
    y = torch.empty_like(x)
    torch.neg(x, out=y)
    us = statistics.median(replay_us(capture([lambda: torch.neg(x, out=y)] * 8, 1), 8, 9))
    meter, why = open_meter("cuda:0")
    highest = None if meter is None else meter.identity().get("highest_sm_hz")
    if not highest:
        raise SystemExit(f"the SM clock can't be read ({why or 'not told'}): the prediction needs it")
    return {
        "name": found.name,
        "sm": found.multi_processor_count,
        "l2_bytes": found.L2_cache_size,
        "sm_hz": float(highest),
        "copy_bytes_s": 2 * x.nbytes / us * 1e6,
        "spec_bytes_s": (spec_gb_s or H200_GB_S) * 1e9,
    }


def launch() -> None:
    """What ncu runs: per case two calls unseen, then one between the profiler's start and stop."""
    import torch

    from robot_perf.kernels.rmsnorm import add_rms_norm, rms_norm

    torch.set_grad_enabled(False)
    for point in CASES:
        x = torch.randn(point.m, point.d, device="cuda").to(torch.bfloat16)
        r = torch.randn_like(x) if point.op == "add_rms_norm" else x
        w = torch.ones(point.d, device="cuda").to(torch.bfloat16)

        def call(point: Point = point, x: Any = x, r: Any = r, w: Any = w) -> None:
            if point.op == "rms_norm":
                rms_norm(x, w)
            else:
                add_rms_norm(x, r, w)
            torch.cuda.synchronize()

        for _ in range(WARM_UP):
            call()
        torch.cuda.profiler.start()
        with torch.cuda.nvtx.range(point.name):
            call()
        torch.cuda.profiler.stop()
        del x, r, call
        torch.cuda.empty_cache()


def find_ncu(named: str | None) -> str:
    """The ncu to run: the one that is named and no other. Exits with 2 and the reason where there is none."""
    if named is not None:
        found = shutil.which(named)
        if found is None:
            print(f"no ncu: {named} is no program; the prediction is written", file=sys.stderr)
            raise SystemExit(2)
        return found
    installed = (str(p) for pattern in PLACES for p in sorted(Path("/").glob(pattern), reverse=True))
    for place in (shutil.which("ncu"), *installed):
        if place and Path(place).is_file():
            return place
    print("no ncu: install Nsight Compute or name it with --ncu; the prediction is written", file=sys.stderr)
    raise SystemExit(2)


def profile(folder: Path, ncu: str, limit_s: float) -> Path:
    """Runs ncu over `launch`, for `limit_s` at most; the CSV's path. Exits with 1 and ncu's words where it gives no figures."""
    program = [sys.executable, str(Path(__file__).resolve()), "--launch", "--out", str(folder)]
    command = [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off", "--clock-control", "none", "--nvtx",
        "--cache-control", "all", "--target-processes", "application-only", "--metrics", ",".join(METRICS), *program,
    ]  # fmt: skip
    environment = {**os.environ, "ROBOT_PERF_DEPENDENT_LAUNCH": "0", "LC_ALL": "C"}
    target = folder / "rmsnorm_ncu.csv"
    with (folder / "rmsnorm_ncu.log").open("w", encoding="utf-8") as log, target.open("w", encoding="utf-8") as out:
        # its own group: ncu's child must end with it
        process = subprocess.Popen(command, stdout=out, stderr=log, env=environment, start_new_session=True)
        code = None
        try:
            code = process.wait(max(0.0, limit_s))
        except subprocess.TimeoutExpired:
            pass
        finally:  # also when this program is interrupted: ncu and its child would go on
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    said = target.read_text(encoding="utf-8", errors="replace")
    if '"ID",' not in said:
        said += (folder / "rmsnorm_ncu.log").read_text(encoding="utf-8", errors="replace")
        words = [line for line in said.splitlines() if line.strip()][-8:]
        why = f"it was stopped after {max(0.0, limit_s):.0f} s" if code is None else f"it ended with code {code}"
        print("\n".join([f"ncu gave no figures: {why}. Its last words:", *words, *_advice(said)]), file=sys.stderr)
        raise SystemExit(1)
    return target


def _advice(said: str) -> list[str]:
    if "ERR_NVGPUCTRPERM" in said:
        return ["Counters are for administrators here: run as root, in a container with SYS_ADMIN, or have the machine's owner set "
                "NVreg_RestrictProfilingToAdminUsers=0."]  # fmt: skip
    if "No kernels were profiled" in said:
        return ["The program launched nothing between the profiler's start and stop: run it alone, with --launch."]
    return []


def read(path: Path) -> list[dict[str, Any]]:
    """One entry per case from the CSV, in order: our kernel's figures, and which kernels a call ran besides.

    Exits with 1 and the reason where the CSV doesn't hold one launch of ours per case.
    """
    from robot_perf.errors import RobotPerfError
    from robot_perf.profiles.model import rows
    from robot_perf.profiles.ncu.importer import read as read_csv

    wanted = (
        "dur_ns",
        "dram_read_bytes",
        "dram_write_bytes",
        "dram_pct",
        "mem_pct",
        "sm_pct",
        "registers",
        "l2_hit_pct",
    )
    try:
        kernels = read_csv(path.read_text(encoding="utf-8", errors="replace"), path.name).kernels
    except RobotPerfError as error:
        raise SystemExit(str(error)) from error
    found = [
        {"name": kernels.text("name", i), "call": kernels.text("nvtx", i), **row}
        for i, row in enumerate(rows(kernels, wanted))
    ]
    ours = [row for row in found if str(row["name"]).startswith("rms_norm_")]
    if len(ours) != len(CASES):
        raise SystemExit(
            f"{path}: {len(ours)} launches of our kernels where {len(CASES)} cases ran; the cases can't be told apart"
        )
    return [
        {
            "kernel": row["name"], **_beside(row, found), "us": None if row["dur_ns"] is None else row["dur_ns"] / 1000, "dram_pct": row["dram_pct"],
            "mem_pct": row["mem_pct"], "sm_pct": row["sm_pct"], "read_bytes": row["dram_read_bytes"],
            "write_bytes": row["dram_write_bytes"], "registers": row["registers"], "l2_hit_pct": row["l2_hit_pct"],
        }
        for row in ours
    ]  # fmt: skip


def _beside(row: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, Any]:
    """How many kernels the call of `row` ran, and the names of the others; of all calls, and None, where no range tells them apart."""
    if len(found) == len(CASES):
        return {"kernels_per_call": 1, "others": []}
    told = all(other["call"] for other in found)
    mine = [other for other in found if not told or other["call"] == row["call"]]
    others = sorted({str(other["name"]) for other in mine if not str(other["name"]).startswith("rms_norm_")})
    return {"kernels_per_call": len(mine) if told else None, "others": others}


def main() -> None:
    """Predicts, profiles, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--spec-gb-s", type=float, help=f"the memory's nominal bandwidth; {H200_GB_S:.0f} on an H200")
    parser.add_argument("--ncu", help="the ncu to run (default: the one on the path)")
    parser.add_argument(
        "--limit-s", type=float, default=60.0, help="end ncu so that the whole takes no longer than this"
    )
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        launch()
        return
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    written = options.out / "rmsnorm_ncu_prediction.json"
    if options.read:
        stored = json.loads(written.read_text(encoding="utf-8"))
        csv = options.read
    else:
        device = device_facts(options.spec_gb_s)
        stored = {"device": device, "predictions": [predict(point, device) for point in CASES]}
        written.write_text(json.dumps(stored, indent=1), encoding="utf-8")
        print(f"predictions written to {written}", flush=True)
        csv = profile(options.out, find_ncu(options.ncu), options.limit_s - RESERVE_S - (time.monotonic() - began))
    results = [compare(p, s) for p, s in zip(stored["predictions"], read(csv), strict=True)]
    (options.out / "rmsnorm_ncu.json").write_text(
        json.dumps({"device": stored["device"], "results": results}, indent=1), encoding="utf-8"
    )
    for result in results:
        print(line(result))
        for reason in result["reasons"]:
            print(f"    {reason}")


if __name__ == "__main__":
    main()
