"""Where should a Python node's control loop run? Four arrangements measured side by side, with publishing in the path.

    timer     the policy in a ROS timer (steady clock) of a single-threaded executor, observations in a callback
    thread    an own thread with the executor spinning beside it in the main thread
    polled    one thread: waits for the release, then executor.spin_once(0), then the step
    direct    an own thread that takes the newest message from the subscription itself; no executor at all

Each runs in a process of its own with a publisher of observations in another process at the same rate, in shuffled order over several
rounds; the policy is loaded and captured in the thread that runs it. Printed: start latency (release to policy call) and release to
published, µs, p50 to max. --limit-s bounds the whole: what doesn't fit is left out, and named.

    python benchmarks/ros_arrangements.py --rate 200 --seconds 20 --rounds 3 [--policy mlp] [--backend onnxruntime] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ros_places import RUNS, timer_releases
from ros_table import PLACES, arrangements_markdown, command_words

ROOT = Path(__file__).resolve().parents[1]
START_UP_S = 10.0  # of one arrangement, before one was seen


def main() -> int:
    """Runs the rounds and prints the table."""
    asked = options()
    sys.path.insert(0, str(ROOT))  # a checkout that isn't installed
    if asked.one:
        print(json.dumps(measure(asked)))
        return 0
    os.environ |= {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_DOMAIN_ID": str(1 + os.getpid() % 100),
        "PYTHONPATH": os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p),
    }
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in PLACES}
    failed: list[str] = []
    left_out: list[str] = []
    order, slowest = random.Random(0), asked.seconds + START_UP_S
    begun = time.monotonic()
    for turn in range(asked.rounds):
        left = asked.limit_s - (time.monotonic() - begun)
        if left < slowest * len(PLACES):
            left_out.append(f"round {turn + 1}: {left:.0f} s were left")
            continue
        lengths = []
        for name in order.sample(list(PLACES), len(PLACES)):
            began = time.monotonic()
            found = in_process(asked, name)
            lengths.append(time.monotonic() - began)
            print(f"round {turn + 1}, {name}: {lengths[-1]:.1f} s", file=sys.stderr, flush=True)
            if isinstance(found, str):
                failed.append(f"{name}: {found}")
                print(failed[-1], file=sys.stderr, flush=True)
            else:
                rows[name].append(found)
        slowest = max(lengths)
        document = described(asked, rows, left_out, failed)
        page = "\n".join(arrangements_markdown(document)) + "\n"
        for path, text in ((asked.json, json.dumps(document, indent=1) + "\n"), (asked.markdown, page)):
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if not any(rows.values()):
        print("nothing was measured:", *left_out, *failed, sep="\n", file=sys.stderr)
        return 1
    print("\n".join(arrangements_markdown(described(asked, rows, left_out, failed))))
    return 1 if failed else 0


def options() -> argparse.Namespace:
    """What was asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", default="mlp")
    parser.add_argument("--backend", default="onnxruntime")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="no new round once it would not fit")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--markdown", type=Path, default=None)
    parser.add_argument("--one", choices=tuple(PLACES), help=argparse.SUPPRESS)
    return parser.parse_args()


def in_process(asked: argparse.Namespace, name: str) -> dict[str, Any] | str:
    """One arrangement in a fresh interpreter, or why it gave nothing."""
    words = [sys.executable, __file__, *sys.argv[1:], "--one", name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=asked.seconds + 120)
    except subprocess.TimeoutExpired:
        return "did not end"
    if done.returncode:
        return f"ended with {done.returncode}:\n{done.stderr[-2000:]}"
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def measure(asked: argparse.Namespace) -> dict[str, Any]:  # noqa: PLR0915 - one arrangement from import to shutdown
    """Stamps of one arrangement: per executed release (release, start, published)."""
    import numpy as np
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import qos_profile_sensor_data
    from std_msgs.msg import Float32MultiArray, Float64MultiArray

    from robot_perf import policies
    from robot_perf.backends import load
    from robot_perf.measure.node.command import Command
    from robot_perf.measure.node.mailbox import LiveObservations
    from robot_perf.measure.node.mapping import default_mapping
    from robot_perf.measure.node.thread import OnlyThread, OwnThread

    place = OwnThread() if asked.one == "thread" else OnlyThread()
    runner = place.call(lambda: load(asked.backend, policies.describe(asked.policy), {"device": asked.device}))
    mapping = default_mapping(runner.spec)
    period = round(1e9 / asked.rate)
    live = LiveObservations(runner.spec, mapping, 10**12)
    at, inbox = live.reader(), live.inboxes[0]
    command = Command(mapping.command, runner.spec)
    rclpy.init()
    node = rclpy.create_node("arrangement")
    publisher = node.create_publisher(Float64MultiArray, "arrangement/action", 1)
    message = Float64MultiArray()
    message.data = command.values
    profile = qos_profile_sensor_data
    profile.depth = 1
    taken = asked.one == "direct"
    subscription = node.create_subscription(
        Float32MultiArray,
        "arrangement/observation",
        (lambda _m: None) if taken else (lambda m: inbox.put(m, time.monotonic_ns())),
        profile,
    )
    executor = SingleThreadedExecutor()
    if not taken:
        executor.add_node(node)
    sender = start_sender(asked, runner.spec.inputs[runner.spec.fed[0]].shape)
    stamps = np.zeros((int(asked.rate * (asked.seconds + 5)) + 100, 3), np.int64)
    count = [0]
    action = runner.spec.action

    def step(release: int) -> int:
        observation = at(count[0])
        start = time.monotonic_ns()
        outputs = runner.step(observation)
        command.fill(outputs[action])
        publisher.publish(message)
        end = time.monotonic_ns()
        stamps[count[0]] = release, start, end
        count[0] += 1
        return end

    try:
        RUNS[asked.one](asked, node, executor, subscription, inbox, step, period, place)
    finally:
        stop(sender)
    facts = place.call(lambda: dict(runner.facts()))
    place.call(runner.close)
    place.close()
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()
    used = stamps[int(asked.rate) : count[0]]  # the first second is warm-up
    if asked.one == "timer":
        used[:, 0] = timer_releases(used[:, 0], period)
    releases = round((used[-1, 0] - used[0, 0]) / period) + 1
    return {
        "start": (used[:, 1] - used[:, 0]).tolist(),
        "published": (used[:, 2] - used[:, 0]).tolist(),
        "releases": int(releases),
        "received": inbox.received,
        "facts": facts,
    }


def start_sender(asked: argparse.Namespace, shape: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Observations from another process."""
    size = 1
    for n in shape:
        size *= n
    words = [
        "-p",
        f"rate:={asked.rate}",
        "-p",
        f"size:={size}",
        "-p",
        "topic:=arrangement/observation",
        "-p",
        "wait_for:=1",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "robot_perf.nodes.observation_node", "--ros-args", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def stop(sender: subprocess.Popen[bytes]) -> None:
    """Asks the stand-in to end, so that it leaves no shared memory behind."""
    sender.send_signal(signal.SIGINT)
    try:
        sender.wait(10)
    except subprocess.TimeoutExpired:
        sender.kill()
        sender.wait()


def described(
    asked: argparse.Namespace, rows: dict[str, list[dict[str, Any]]], left_out: list[str], failed: list[str]
) -> dict[str, Any]:
    """The document: pooled percentiles of each arrangement, µs, and the conditions."""
    import numpy as np

    from robot_perf import __version__
    from robot_perf.measure.machine.fingerprint import fingerprint
    from robot_perf.nodes import ros

    arrangements: dict[str, Any] = {}
    for name, rounds in rows.items():
        if not rounds:
            continue
        found: dict[str, Any] = {
            "releases": sum(r["releases"] for r in rounds),
            "executed": sum(len(r["start"]) for r in rounds),
            "received": sum(r["received"] for r in rounds),
        }
        for key in ("start", "published"):
            values = np.concatenate([r[key] for r in rounds]) / 1e3
            cells = (*np.percentile(values, [50, 90, 99, 99.9], method="inverted_cdf"), values.max())
            names = ("p50", "p90", "p99", "p99.9", "max")
            found[key] = {n: round(float(v), 1) for n, v in zip(names, cells, strict=True)}
            for figure, q in (("p50", 50), ("p99", 99)):
                each = [np.percentile(r[key], q, method="inverted_cdf") / 1e3 for r in rounds]
                found[key][f"{figure}_rounds"] = [round(float(v), 1) for v in each]
        arrangements[name] = found
    done = max(len(rounds) for rounds in rows.values())
    facts = next((r["facts"] for rounds in rows.values() for r in rounds), {})
    return {
        "schema": "robot-perf/ros-arrangements-1", "command": command_words(sys.argv), "rate_hz": asked.rate, "policy": asked.policy,
        "backend": asked.backend, "device": asked.device, "seconds": asked.seconds, "rounds": f"{done} round" + "s" * (done != 1),
        "date_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "left_out": left_out, "failed": failed, "arrangements": arrangements,
        "conditions": {"host": fingerprint(), "ros": ros.distribution(), "backend_facts": facts, "version": __version__},
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
