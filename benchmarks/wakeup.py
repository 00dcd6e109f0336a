"""Wake-up latency of robot-perf's loop beside cyclictest, in interleaved blocks, under the same options.

    python benchmarks/wakeup.py [--blocks 12] [--steps 3000] [--rate 1000] [--fifo PRIO] [--cpus LIST] [--json FILE]

Both lock their memory and hold /dev/cpu_dma_latency at 0 (cyclictest does by default), wait with
clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME) and are started anew in every block. Order: ABBA. The A/A spread is
cyclictest's odd blocks against its even ones: a difference inside it says nothing. `hybrid` and `spin` buy their latency
with processor time, so they are rows of their own with that price, and not part of the comparison.
Needs cyclictest (Debian: rt-tests).
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from robot_perf.specs import RealTime
from robot_perf.tasks.deadline import DeadlineRequest, prepare, run_deadline

VALUE = re.compile(r"^\s*\d+:\s*\d+:\s*(\d+)\s*$", re.MULTILINE)


def cyclictest(steps: int, rate: int, fifo: int | None, cpus: str | None) -> np.ndarray:
    """Wake-up latencies of one cyclictest process, ns."""
    command = ["cyclictest", "-q", "-v", "-N", "-m", "-t1", "-l", str(steps), "-i", str(1_000_000 // rate)]
    command += ["-p", str(fifo), "--policy=fifo"] if fifo else ["--policy=other"]
    command += [f"-a{cpus}"] if cpus else []
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    values = np.array([int(v) for v in VALUE.findall(text)], dtype=np.int64)
    if len(values) < steps * 0.9:
        raise SystemExit(f"cyclictest printed {len(values)} of {steps} values: {text[:300]}")
    return values


def ours(base: DeadlineRequest, wait: str) -> tuple[np.ndarray, float, dict[str, object]]:
    """Wake-up latencies of one worker, ns; the share of a core its loop took; what was effective."""
    run, _ = run_deadline(prepare(replace(base, wait=wait)))
    measured = run.measured
    waited = measured["wake_ns"] >= 0
    usage = run.conditions["usage"]
    return (
        measured["wake_ns"][waited] - measured["release_ns"][waited],
        usage["loop_thread_cpu_ns"] / usage["window_ns"],
        dict(run.conditions["real_time"]),
    )


def quantiles(values: np.ndarray) -> dict[str, float]:
    """Nearest-rank percentiles in µs."""
    pick = {
        f"p{q * 100:g}": float(np.quantile(values, q, method="inverted_cdf")) / 1000 for q in (0.5, 0.9, 0.99, 0.999)
    }
    return pick | {"max": float(values.max()) / 1000, "n": len(values)}


def main() -> None:
    """Runs the blocks and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, help="pairs of blocks")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--fifo", type=int)
    parser.add_argument("--cpus")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if shutil.which("cyclictest") is None:
        raise SystemExit("cyclictest is not installed (Debian and Ubuntu: apt install rt-tests)")
    cpus = tuple(int(c) for c in arguments.cpus.split(",")) if arguments.cpus else ()
    real_time = RealTime(fifo_priority=arguments.fifo, cpus=cpus, mlock=True, hold_cpu_dma_latency=True)
    theirs: list[np.ndarray] = []
    mine: list[np.ndarray] = []
    rows: dict[str, list[np.ndarray]] = {"hybrid": [], "spin": []}
    shares: dict[str, list[float]] = {"sleep": [], "hybrid": [], "spin": []}
    effective: dict[str, object] = {}
    waits = ("hybrid",) if arguments.fifo else ("hybrid", "spin")
    with tempfile.TemporaryDirectory() as folder:
        base = DeadlineRequest(
            policy="null",
            rate_hz=str(arguments.rate),
            steps=arguments.steps,
            real_time=real_time,
            output=Path(folder) / "run.parquet",
            force=True,
        )

        def block_of_ours() -> None:
            values, share, now = ours(base, "sleep")
            mine.append(values)
            shares["sleep"].append(share)
            effective.update(now)

        def block_of_theirs() -> None:
            theirs.append(cyclictest(arguments.steps, arguments.rate, arguments.fifo, arguments.cpus))

        for block in range(arguments.blocks):
            order = (block_of_theirs, block_of_ours) if block % 2 == 0 else (block_of_ours, block_of_theirs)
            for run in order:
                run()
        for wait in waits:
            for _ in range(2):
                values, share, _now = ours(base, wait)
                rows[wait].append(values)
                shares[wait].append(share)
    even, odd = np.concatenate(theirs[::2]), np.concatenate(theirs[1::2])
    result = {
        "machine": f"{platform.machine()} {platform.release()}",
        "command": f"--blocks {arguments.blocks} --steps {arguments.steps} --rate {arguments.rate}",
        "effective": effective,
        "cyclictest": quantiles(np.concatenate(theirs)),
        "cyclictest even blocks": quantiles(even),
        "cyclictest odd blocks": quantiles(odd),
        "robot-perf sleep": quantiles(np.concatenate(mine)) | {"core_share": float(np.mean(shares["sleep"]))},
    }
    for wait in waits:
        result[f"robot-perf {wait}"] = quantiles(np.concatenate(rows[wait])) | {
            "core_share": float(np.mean(shares[wait]))
        }
    print(
        f"{'wake-up latency, µs':24} {'p50':>8} {'p90':>8} {'p99':>8} {'p99.9':>8} {'max':>9} {'n':>8}  share of a core"
    )
    for name, row in result.items():
        if isinstance(row, dict) and "p50" in row:
            share = f"{row['core_share']:.1%}" if "core_share" in row else ""
            cells = " ".join(f"{row[k]:8.1f}" for k in ("p50", "p90", "p99", "p99.9"))
            print(f"{name:24} {cells} {row['max']:9.1f} {row['n']:8,}  {share}")
    a, b = result["cyclictest"], result["robot-perf sleep"]
    assert isinstance(a, dict)
    assert isinstance(b, dict)
    for q in ("p50", "p99"):
        ok = b[q] <= max(1.25 * a[q], a[q] + 3)
        print(
            f"{q}: ratio {b[q] / a[q]:.3f}, difference {b[q] - a[q]:+.1f} µs: {'within' if ok else 'OUTSIDE'} 1.25 times or 3 µs"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
