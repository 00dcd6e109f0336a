"""What ROS adds to a policy's step, in µs: the node beside the same policy, backend and rate from the command line.

    python benchmarks/ros_adds.py --policy mlp --backend onnxruntime --rates 50,200 --seconds 20 --rounds 3 --json reports/DEVICE/ros.json

Per rate and round, in shuffled order, each in processes of its own (--arms chooses):

    command   robot-perf deadline, observations prepared before the loop
    random    the policy node on the same observations: the node's process, its executor and the publish
    topics    the policy node fed by a stand-in robot over DDS: also the taking and converting of messages
    polled    the same with the loop in the only thread

All rows come from the same step function and the same step map. Figures are medians over the rounds with their range; where the
ranges overlap, that is said. --limit-s bounds the whole: a round that doesn't fit is left out, and named. The JSON is written
after every round. Exit code 0 whatever the verdicts: this measures, it doesn't judge; 1 when an arm could not be measured.
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

from ros_table import ARMS, FIGURES, adds_markdown, adds_summary, command_words

ROOT = Path(__file__).resolve().parents[1]
START_UP_S = 12.0  # of one arm, before one was seen: imports, load, capture, warm-up, saving


class NotMeasured(Exception):
    """An arm that made no Run, with its own last words."""


def main() -> int:
    """Measures all arms and prints what ROS adds."""
    asked = options()
    sys.path.insert(0, str(ROOT))  # a checkout that isn't installed
    os.environ |= {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_DOMAIN_ID": str(1 + os.getpid() % 100),
        "PYTHONPATH": os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p),
        "PYTHONUNBUFFERED": "1",
    }
    rates = [float(r) for r in asked.rates.split(",")]
    arms = [a for a in ARMS if a in asked.arms.split(",")]
    document: dict[str, Any] = {
        "schema": "robot-perf/ros-adds-1", "command": command_words(sys.argv), "policy": asked.policy, "backend": asked.backend, "device": asked.device,
        "seconds": asked.seconds, "date_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "conditions": {}, "left_out": [], "failed": [],
        "rates": {f"{rate:g}": {arm: [] for arm in arms} for rate in rates},
    }  # fmt: skip
    order, slowest = random.Random(asked.seed), asked.seconds + START_UP_S
    begun = time.monotonic()
    for turn in range(asked.rounds):
        for rate in rates:
            left = asked.limit_s - (time.monotonic() - begun)
            if left < slowest * len(arms):
                document["left_out"].append(f"round {turn + 1} at {rate:g} Hz: {left:.0f} s were left")
                continue
            lengths = []
            for arm in order.sample(arms, len(arms)):
                began = time.monotonic()
                one(asked, document, rate, arm)
                lengths.append(time.monotonic() - began)
                print(f"round {turn + 1}, {rate:g} Hz, {arm}: {lengths[-1]:.1f} s", file=sys.stderr, flush=True)
            slowest = max(lengths)
            write(asked, document)
    print("\n".join(adds_summary(document)))
    return 1 if document["failed"] else 0


def options() -> argparse.Namespace:
    """What was asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="mlp")
    parser.add_argument("--backend", default="onnxruntime")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rates", default="200,500")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {', '.join(ARMS)}")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="no new round once it would not fit")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--markdown", type=Path, default=None)
    asked = parser.parse_args()
    if unknown := set(asked.arms.split(",")) - set(ARMS):
        parser.error(f"--arms: {', '.join(sorted(unknown))} is none of {', '.join(ARMS)}")
    return asked


def one(asked: argparse.Namespace, document: dict[str, Any], rate: float, arm: str) -> None:
    """One arm once; what it needs of a Run goes into the document."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            run = command_line(asked, rate, folder) if arm == "command" else node(asked, rate, arm, folder)
        except NotMeasured as error:
            document["failed"].append(f"{arm} at {rate:g} Hz: {error}")
            print(document["failed"][-1], file=sys.stderr, flush=True)
            return
        conditions = document["conditions"]
        for key in ("host", "ros", "meter", "backend_facts", "version"):
            if run.conditions.get(key) is not None:
                conditions.setdefault(key, run.conditions[key])
        document["rates"][f"{rate:g}"][arm].append(figures(run))


def command_line(asked: argparse.Namespace, rate: float, folder: Path) -> Any:
    """The Run of `robot-perf deadline`."""
    from robot_perf.run.parquet import load

    words = ["deadline", asked.policy, "--rate", f"{rate:g}", "--backend", asked.backend, "--device", asked.device]
    words += ["--steps", str(round(rate * asked.seconds)), "-o", str(folder / "cli.parquet"), "--quiet"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "robot_perf.cli", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=asked.seconds + 120,
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured("robot-perf deadline did not end") from None
    if not (folder / "cli.parquet").is_file():
        raise NotMeasured(
            f"robot-perf {' '.join(words)} ended with {done.returncode}:\n{done.stdout[-800:]}{done.stderr[-1500:]}"
        )
    return load(folder / "cli.parquet")


def node(asked: argparse.Namespace, rate: float, arm: str, folder: Path) -> Any:
    """The Run of the node's first block."""
    from robot_perf.run.parquet import load

    values = {
        "policy": asked.policy, "rate": rate, "backend": asked.backend, "device": asked.device, "steps": round(rate * asked.seconds), "autostart": "true",
        "observations": "random" if arm == "random" else "topics", "place": "polled" if arm == "polled" else "thread", "output_dir": folder / "runs",
    }  # fmt: skip
    log = folder / "node.log"
    begun = []
    with log.open("w") as out:
        process = start("policy_node", values, out)
        begun.append(process)
        try:
            if arm != "random":
                # After the load: the stand-in's own start must not disturb the warm-up.
                wait_until(lambda: "configured:" in log.read_text(), 120, process, log)
                begun.append(start("observation_node", {"policy": asked.policy, "rate": rate, "wait_for": 1}, out))
            wait_until(lambda: any((folder / "runs").glob("*b0000.parquet")), asked.seconds + 120, process, log)
        finally:
            for each in reversed(begun):
                end(each)
    return load(next((folder / "runs").glob("*b0000.parquet")))


def start(module: str, values: dict[str, Any], out: Any) -> subprocess.Popen[bytes]:
    """A node."""
    words = [w for k, v in values.items() for w in ("-p", f"{k}:={v}")]
    return subprocess.Popen(
        [sys.executable, "-m", f"robot_perf.nodes.{module}", "--ros-args", *words], stdout=out, stderr=out
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks it to end; kills it when it doesn't."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until(look: Callable[[], bool], timeout_s: float, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits. Raises NotMeasured with the node's own words."""
    until = time.monotonic() + timeout_s
    while not look():
        code = process.poll()
        if code is not None or time.monotonic() > until:
            how = f"did not get there in {timeout_s:.0f} s" if code is None else f"ended with {code}"
            raise NotMeasured(f"policy_node {how}:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def figures(run: Any) -> dict[str, Any]:
    """p50, p99 and max of each part of a step, µs, over the steps that have it; misses of releases."""
    import numpy as np

    from robot_perf.analyze.verdict import judge

    c = run.measured
    parts = {
        "start latency": ("release_ns", "start_ns"),
        "execution": ("start_ns", "end_ns"),
        "response": ("release_ns", "end_ns"),
    }
    if "published_ns" in c:
        parts |= {"publish": ("end_ns", "published_ns"), "release to published": ("release_ns", "published_ns")}
        if (c["observation_ns"] > 0).any():
            parts["observation age"] = ("observation_ns", "start_ns")
    found: dict[str, Any] = {}
    for name, (begin, until) in parts.items():
        have = (c[begin] > 0) & (c[until] > 0)
        values = (c[until] - c[begin])[have] / 1e3
        cells = (*np.percentile(values, [50, 99], method="inverted_cdf"), values.max())
        found[name] = dict(zip(FIGURES, (round(float(x), 1) for x in cells), strict=True))
    verdict = judge(run)
    more = {"misses": verdict.misses, "releases": verdict.releases, "status": verdict.status, "reason": verdict.reason}
    return {**found, **more}


def write(asked: argparse.Namespace, document: dict[str, Any]) -> None:
    """What there is so far."""
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if asked.markdown:
        asked.markdown.parent.mkdir(parents=True, exist_ok=True)
        asked.markdown.write_text("\n".join(adds_markdown(document)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
