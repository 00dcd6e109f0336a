"""Reads the same Kineto traces with robot-perf and with HolisticTraceAnalysis, interleaved, each in a process of its own.

    python benchmarks/profile_import.py TRACE.json… --hta-python /path/to/venv/bin/python [--rounds 5]
    python benchmarks/profile_import.py --make 235 TRACE.json        writes a synthetic trace of so many MB first
    python benchmarks/profile_import.py --make 235 --of REAL.json.gz TRACE.json        the same, of a real trace repeated in time

Wall time is that of the import alone (module imports excluded), peak memory is the process's VmHWM. HolisticTraceAnalysis is
not a dependency: install it in an environment of its own (pip install HolisticTraceAnalysis).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

OURS = """
import json, sys, time
from pathlib import Path
import robot_perf.profiles.kineto.importer
from robot_perf.profiles import load
begin, used = time.perf_counter(), time.process_time()
profile = load(Path(sys.argv[1]))
took, used = time.perf_counter() - begin, time.process_time() - used
peak = next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmHWM'))
print(json.dumps({"s": took, "cpu_s": used, "peak_mb": peak / 1024, "kernels": profile.kernel_count}))
"""
THEIRS = """
import json, sys, time, logging
logging.disable(logging.CRITICAL)
from hta.common.trace import parse_trace_file
begin, used = time.perf_counter(), time.process_time()
result = parse_trace_file(sys.argv[1])
took, used = time.perf_counter() - begin, time.process_time() - used
peak = next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmHWM'))
print(json.dumps({"s": took, "cpu_s": used, "peak_mb": peak / 1024, "kernels": None}))
"""


def main() -> int:
    """Prints one table per trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--hta-python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--make", type=float, help="MB of a synthetic trace to write first")
    parser.add_argument("--of", type=Path, help="with --make: the trace to repeat instead")
    arguments = parser.parse_args()
    if arguments.make and arguments.of:
        repeat(arguments.of, arguments.traces[0], arguments.make)
    elif arguments.make:
        make(arguments.traces[0], arguments.make)
    root = str(Path(__file__).resolve().parents[1])
    readers = {"robot-perf": (sys.executable, OURS, {**os.environ, "PYTHONPATH": root})}
    if arguments.hta_python:
        version = subprocess.run(
            [arguments.hta_python, "-c", "import importlib.metadata as m; print(m.version('HolisticTraceAnalysis'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        readers[f"HolisticTraceAnalysis {version}"] = (arguments.hta_python, THEIRS, dict(os.environ))
    print(
        f"# {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.2f}, {arguments.rounds} rounds, interleaved"
    )
    for trace in arguments.traces:
        compare(trace, readers, arguments.rounds)
    return 0


def compare(trace: Path, readers: dict[str, tuple[str, str, dict[str, str]]], rounds: int) -> None:
    """One round reads the trace once with each reader, in turn."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in readers}
    trace.read_bytes()[:1]  # the page cache holds it for both
    for _ in range(rounds):
        for name, (python, code, environment) in readers.items():
            done = subprocess.run(
                [python, "-c", code, str(trace)], capture_output=True, text=True, env=environment, check=True
            )
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"\n{trace.name}: {trace.stat().st_size / 1e6:.1f} MB")
    medians = {}
    size = trace.stat().st_size / 1e6
    for name, found in results.items():
        seconds, cpu, peaks = ([r[key] for r in found] for key in ("s", "cpu_s", "peak_mb"))
        medians[name] = (statistics.median(seconds), statistics.median(cpu))
        print(
            f"  {name:28} wall median {medians[name][0]:6.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), processor {medians[name][1]:6.2f} s ({min(cpu):.2f} to {max(cpu):.2f}),"
            f" peak {statistics.median(peaks):5.0f} MiB, {size / medians[name][1]:5.1f} MB per processor second"
        )
    if len(medians) == 2:
        ours, theirs = medians.values()
        print(
            f"  HolisticTraceAnalysis takes {theirs[0] / ours[0]:.1f} times as long (wall), {theirs[1] / ours[1]:.1f} times the processor time"
        )


def make(path: Path, megabytes: float) -> None:
    """A trace in Kineto's own layout: steps of operators, launches, flows and kernels, three decimals."""
    with path.open("w") as file:
        file.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "synthetic", "numSms": 132}],\n  "traceEvents": [\n'
        )
        number, at = 0, 4_871_234_567_000_000  # ns
        while file.tell() < megabytes * 1e6:
            number += 1
            at += 37_125
            rows = (
                ("cpu_op", f"aten::op{number % 40}", 7, 7, at, 21_500, f'"External id": {number}, "Record function id": 0, "Ev Idx": {number}'),
                ("cuda_runtime", "cudaLaunchKernel", 7, 7, at + 6_000, 5_250, f'"External id": {number}, "cbid": 211, "correlation": {number}'),
                ("kernel", f"void at::native::elementwise_kernel<{number % 60}, float>(int, float)", 0, 7, at + 13_000, 4_480, f'"External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 1.185185, "warps per SM": 4.740741, "grid": [128, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 7'),
            )  # fmt: skip
            for category, name, pid, tid, start, duration, extra in rows:
                file.write(
                    f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    "ts": {start // 1000}.{start % 1000:03d}, "dur": {duration // 1000}.{duration % 1000:03d},\n    "args": {{\n      {extra}\n    }}\n  }},\n'
                )
            for phase, pid in (("s", 7), ("f", 0)):
                file.write(
                    f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": 7, "ts": {(at + 6000) // 1000}.{(at + 6000) % 1000:03d},\n    "cat": "ac2g", "name": "ac2g"\n  }},\n'
                )
        file.write(
            '  {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 4871234568000.000}\n  ],\n  "traceName": "synthetic"\n}\n'
        )


def repeat(real: Path, path: Path, megabytes: float) -> None:
    """The events of a trace again and again, each time later and with new correlations; digits as they were."""
    raw = real.read_bytes()
    trace = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, parse_float=Decimal)
    events = trace.pop("traceEvents")
    stamps = [event["ts"] for event in events if "ts" in event]
    length = int(max(stamps) - min(stamps)) + 1_000_000
    correlations = max((event.get("args", {}).get("correlation", 0) for event in events), default=0) + 1
    with path.open("w") as file:
        file.write(json.dumps(trace, default=str)[:-1] + ', "traceEvents": [\n')
        number = 0
        while file.tell() < megabytes * 1e6:
            for event in events:
                later = {**event, "ts": event["ts"] + number * length} if "ts" in event else dict(event)
                if "correlation" in event.get("args", {}):
                    later["args"] = {
                        **event["args"],
                        "correlation": event["args"]["correlation"] + number * correlations,
                    }
                # a Decimal as a number: the quotes that default=str puts around it are taken off by their mark
                file.write(json.dumps(later, default=lambda d: f"@{d}@").replace('"@', "").replace('@"', "") + ",\n")
            number += 1
        file.write("{}]}\n")


if __name__ == "__main__":
    sys.exit(main())
