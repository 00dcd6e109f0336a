"""What ROS adds to a policy's step, in µs: the node beside the same policy, backend and rate from the command line.

    python benchmarks/ros_adds.py --policy mlp --backend onnxruntime --rates 50,200 --seconds 20 --rounds 3 --json reports/DEVICE/ros.json

Per rate and round, in shuffled order, each in processes of its own:

    command line   robot-perf deadline, observations prepared before the loop
    node, random   the policy node on the same observations: the node's process, its executor and the publish
    node, topics   the policy node fed by a stand-in robot over DDS: also the taking and converting of messages
    polled, topics the same with the loop in the only thread

All rows come from the same step function and the same step map. Figures are medians over the rounds with their range; a difference
smaller than the ranges is noise. Exit code 0 whatever the verdicts: this measures, it doesn't judge.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARMS = ("command line", "node, random", "node, topics", "polled, topics")
FIGURES = ("p50", "p99", "max")


def main() -> None:
    """Measures all arms and prints what ROS adds."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--policy", default="mlp")
    options.add_argument("--backend", default="onnxruntime")
    options.add_argument("--device", default="cpu")
    options.add_argument("--rates", default="200,500")
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", type=Path, default=None)
    asked = options.parse_args()
    os.environ |= {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_DOMAIN_ID": str(1 + os.getpid() % 100),
        "PYTHONPATH": os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p),
    }
    order = random.Random(0)
    document: dict[str, Any] = {"command": " ".join(sys.argv), "rates": {}}
    for rate in (float(r) for r in asked.rates.split(",")):
        found: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
        for _ in range(asked.rounds):
            for arm in order.sample(ARMS, len(ARMS)):
                with tempfile.TemporaryDirectory() as folder:
                    run = (
                        command_line(asked, rate, Path(folder))
                        if arm == ARMS[0]
                        else node(asked, rate, arm, Path(folder))
                    )
                    document.setdefault("host", dict(run.conditions["host"]))
                    document.setdefault("ros", run.conditions.get("ros"))
                    found[arm].append(figures(run))
        document["rates"][f"{rate:g}"] = table(asked, rate, found)
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def command_line(asked: argparse.Namespace, rate: float, folder: Path) -> Any:
    """The Run of `robot-perf deadline`."""
    from robot_perf.run.parquet import load

    words = ["deadline", asked.policy, "--rate", f"{rate:g}", "--backend", asked.backend, "--device", asked.device]
    words += ["--steps", str(round(rate * asked.seconds)), "-o", str(folder / "cli.parquet"), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "robot_perf.cli", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if not (folder / "cli.parquet").is_file():
        sys.exit(
            f"robot-perf {' '.join(words)} made no Run (exit {done.returncode}):\n{done.stdout[-800:]}{done.stderr[-1500:]}"
        )
    return load(folder / "cli.parquet")


def node(asked: argparse.Namespace, rate: float, arm: str, folder: Path) -> Any:
    """The Run of the node's first block."""
    from robot_perf.run.parquet import load

    values = {
        "policy": asked.policy, "rate": rate, "backend": asked.backend, "device": asked.device, "steps": round(rate * asked.seconds), "autostart": "true",
        "observations": "random" if "random" in arm else "topics", "place": "polled" if "polled" in arm else "thread", "output_dir": folder / "runs",
    }  # fmt: skip
    log = folder / "node.log"
    robot = None
    with log.open("w") as out:
        process = start("policy_node", values, out)
        if "topics" in arm:
            wait_until(lambda: "configured:" in log.read_text(), 300, process, log)
            robot = start("observation_node", {"policy": asked.policy, "rate": rate, "wait_for": 1}, subprocess.DEVNULL)
        try:
            wait_until(lambda: bool(list((folder / "runs").glob("*b0000.parquet"))), asked.seconds + 300, process, log)
        finally:
            for begun in (process, robot):
                if begun is not None:
                    begun.send_signal(signal.SIGINT)
                    begun.wait(60)
    return load(next((folder / "runs").glob("*b0000.parquet")))


def start(module: str, values: dict[str, Any], out: Any) -> subprocess.Popen[bytes]:
    """A node."""
    words = [w for k, v in values.items() for w in ("-p", f"{k}:={v}")]
    return subprocess.Popen(
        [sys.executable, "-m", f"robot_perf.nodes.{module}", "--ros-args", *words], stdout=out, stderr=out
    )


def wait_until(look: Callable[[], bool], timeout_s: float, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits, or ends with the node's own words."""
    until = time.monotonic() + timeout_s
    while not look():
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"policy_node ended with {process.poll()}:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def figures(run: Any) -> dict[str, Any]:
    """p50, p99 and max of each part of a step, µs; misses of releases."""
    import numpy as np

    from robot_perf.analyze.verdict import judge

    c = run.measured
    parts = {
        "start latency": c["start_ns"] - c["release_ns"],
        "execution": c["end_ns"] - c["start_ns"],
        "response": c["end_ns"] - c["release_ns"],
    }
    if "published_ns" in c:
        parts["publish"] = c["published_ns"] - c["end_ns"]
        parts["release to published"] = c["published_ns"] - c["release_ns"]
    verdict = judge(run)
    percentiles = {
        k: [float(x) for x in (*np.percentile(v, [50, 99], method="inverted_cdf"), v.max())] for k, v in parts.items()
    }
    found = {k: dict(zip(FIGURES, (x / 1e3 for x in values), strict=True)) for k, values in percentiles.items()}
    return {**found, "misses": verdict.misses, "releases": verdict.releases, "status": verdict.status}


def table(asked: argparse.Namespace, rate: float, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Prints one rate; returns its numbers."""
    import statistics

    print(
        f"\n{asked.policy}, {asked.backend} on {asked.device}, {rate:g} Hz: {asked.rounds} rounds of {asked.seconds:g} s; median over rounds (range), µs"
    )
    print(f"{'':<16}{'':<22}" + "".join(f"{f:>26}" for f in FIGURES) + "   misses")
    result: dict[str, Any] = {}
    for arm, rounds in found.items():
        for part in ("start latency", "execution", "response", "publish", "release to published"):
            if part not in rounds[0]:
                continue
            cells = {}
            for f in FIGURES:
                values = [r[part][f] for r in rounds]
                cells[f] = {"median": statistics.median(values), "low": min(values), "high": max(values)}
            result.setdefault(arm, {})[part] = cells
            texts = "".join(f"{c['median']:>11.1f} ({c['low']:.1f}-{c['high']:.1f})".rjust(26) for c in cells.values())
            misses = (
                f"   {sum(r['misses'] for r in rounds)} of {sum(r['releases'] for r in rounds)}"
                if part == "response"
                else ""
            )
            print(f"{arm:<16}{part:<22}{texts}{misses}")
        result[arm]["misses"], result[arm]["releases"] = (
            sum(r["misses"] for r in rounds),
            sum(r["releases"] for r in rounds),
        )
    base = result[ARMS[0]]
    print("ROS adds, median of rounds minus the command line's, µs:")
    for arm in ARMS[1:]:
        adds = {f: result[arm]["response"][f]["median"] - base["response"][f]["median"] for f in FIGURES}
        out = {f: result[arm]["release to published"][f]["median"] - base["response"][f]["median"] for f in FIGURES}
        result[arm]["adds_us"] = {"response": adds, "release to published": out}
        words = ", ".join(f"{f} {adds[f]:+.1f}" for f in FIGURES)
        print(f"  {arm:<16} response {words}; with the publish " + ", ".join(f"{f} {out[f]:+.1f}" for f in FIGURES))
    return result


if __name__ == "__main__":
    main()
