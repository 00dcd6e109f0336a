"""Where should a Python node's control loop run? Four arrangements measured side by side, with publishing in the path.

    timer     the policy in a ROS timer (steady clock) of a single-threaded executor, observations in a callback
    thread    an own thread with the executor spinning beside it in the main thread
    polled    one thread: waits for the release, then executor.spin_once(0), then the step
    direct    an own thread that takes the newest message from the subscription itself; no executor at all

Each runs in a process of its own with a publisher of observations in another process at the same rate, in shuffled order over several
rounds. Printed: start latency (release to policy call) and response to publish (release to command published), ms, p50 to max.

    python benchmarks/ros_arrangements.py --rate 200 --seconds 20 --rounds 3 [--policy mlp] [--backend onnxruntime] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARRANGEMENTS = ("timer", "thread", "polled", "direct")


def main() -> None:
    """Runs the rounds and prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rate", type=float, default=100.0)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--policy", default="mlp")
    options.add_argument("--backend", default=None)
    options.add_argument("--device", default=None)
    options.add_argument("--json", type=Path, default=None)
    options.add_argument("--one", choices=ARRANGEMENTS, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.one:
        print(json.dumps(measure(asked)))
        return
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ARRANGEMENTS}
    order = random.Random(0)
    for _ in range(asked.rounds):
        for name in order.sample(ARRANGEMENTS, len(ARRANGEMENTS)):
            rows[name].append(in_process(name))
    report(asked, rows)


def in_process(name: str) -> dict[str, Any]:
    """One arrangement in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--one", name], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
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
    from robot_perf.backends import default_backend, load
    from robot_perf.measure.node.command import Command
    from robot_perf.measure.node.mailbox import LiveObservations
    from robot_perf.measure.node.mapping import default_mapping

    spec = policies.describe(asked.policy)
    runner = load(asked.backend or default_backend(spec), spec, {"device": asked.device} if asked.device else {})
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
        {"timer": run_timer, "thread": run_thread, "polled": run_polled, "direct": run_direct}[asked.one](
            asked, node, executor, subscription, inbox, step, period
        )
    finally:
        sender.kill()
        sender.wait()
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


def grid(asked: argparse.Namespace, period: int, step: Any, before: Any, until: float) -> None:
    """The library's absolute grid with skip, as `robot_perf.measure.loop` runs it."""
    from robot_perf.measure.clock import absolute_sleep

    stop = [False]
    wait = absolute_sleep(stop)
    origin, k = time.monotonic_ns() + period, 0
    while time.monotonic() < until:
        release = origin + k * period
        wait(release)
        before()
        end = step(release)
        k = max(k + 1, -((origin - end) // period))


def run_timer(asked: Any, node: Any, executor: Any, subscription: Any, inbox: Any, step: Any, period: int) -> None:
    """A steady ROS timer; rcl keeps an absolute grid of its own, whose phase `timer_releases` finds afterwards."""
    from rclpy.clock import Clock, ClockType

    settle(asked, executor, inbox)
    node.create_timer(period / 1e9, lambda: step(time.monotonic_ns()), clock=Clock(clock_type=ClockType.STEADY_TIME))
    until = time.monotonic() + asked.seconds + 1
    while time.monotonic() < until:
        executor.spin_once(timeout_sec=0.1)


def timer_releases(called: Any, period: int) -> Any:
    """The grid points of the calls. The grid's phase is that of the earliest calls (p1), so the timer's own latency is a lower bound."""
    import numpy as np

    angle = np.angle(np.exp(2j * np.pi * ((called - called[0]) % period) / period).mean()) / (2 * np.pi)
    middle = called[0] + round(angle * period)
    residual = (called - middle + period // 2) % period - period // 2
    phase = middle + int(np.percentile(residual, 1))
    releases = phase + np.floor((called - phase) / period + 0.05).astype(np.int64) * period
    return np.minimum(releases, called)


def run_thread(asked: Any, node: Any, executor: Any, subscription: Any, inbox: Any, step: Any, period: int) -> None:
    """The loop in a thread, the executor in the main one."""
    import threading

    settle(asked, executor, inbox)
    until = time.monotonic() + asked.seconds + 1
    loop = threading.Thread(target=grid, args=(asked, period, step, lambda: None, until))
    loop.start()
    while loop.is_alive():
        executor.spin_once(timeout_sec=0.1)


def run_polled(asked: Any, node: Any, executor: Any, subscription: Any, inbox: Any, step: Any, period: int) -> None:
    """One thread."""
    settle(asked, executor, inbox)
    grid(asked, period, step, lambda: executor.spin_once(timeout_sec=0), time.monotonic() + asked.seconds + 1)


def run_direct(asked: Any, node: Any, executor: Any, subscription: Any, inbox: Any, step: Any, period: int) -> None:
    """Takes from the subscription's own handle: what the executor does, without its wait set."""
    kind = subscription.msg_type

    def take() -> None:
        with subscription.handle:
            while (found := subscription.handle.take_message(kind, False)) is not None:
                inbox.put(found[0], time.monotonic_ns())

    until = time.monotonic() + 20
    while not inbox.received and time.monotonic() < until:
        take()
        time.sleep(0.01)
    grid(asked, period, step, take, time.monotonic() + asked.seconds + 1)


def settle(asked: Any, executor: Any, inbox: Any) -> None:
    """Until observations flow."""
    until = time.monotonic() + 20
    while not inbox.received and time.monotonic() < until:
        executor.spin_once(timeout_sec=0.1)


def report(asked: argparse.Namespace, rows: dict[str, list[dict[str, Any]]]) -> None:
    """The table and the conditions."""
    import numpy as np

    from robot_perf.measure.fingerprint import fingerprint
    from robot_perf.nodes import ros

    host = fingerprint()
    document: dict[str, Any] = {
        "command": " ".join(sys.argv), "rate_hz": asked.rate, "policy": asked.policy, "backend": asked.backend, "seconds": asked.seconds, "rounds": asked.rounds,
        "ros": ros.distribution(), "host": host, "arrangements": {},
    }  # fmt: skip
    print(
        f"{asked.policy} at {asked.rate:g} Hz, {asked.rounds} rounds of {asked.seconds:g} s each, order shuffled, observations from another process"
    )
    print(
        f"{host.get('cpu_model')}, {host['cpus']} processors, load {host.get('load_1min')}, kernel {host.get('kernel')}, {document['ros']}"
    )
    print(f"{'ms':<8}{'':<24}{'p50':>9}{'p90':>9}{'p99':>9}{'p99.9':>9}{'max':>9}   releases  executed")
    for name in ARRANGEMENTS:
        found: dict[str, Any] = {
            "releases": sum(r["releases"] for r in rows[name]),
            "executed": sum(len(r["start"]) for r in rows[name]),
        }
        for key, text in (("start", "start latency"), ("published", "response to publish")):
            values = np.concatenate([r[key] for r in rows[name]]) / 1e6
            figures = [
                float(v) for v in (*np.percentile(values, [50, 90, 99, 99.9], method="inverted_cdf"), values.max())
            ]
            found[key] = dict(zip(("p50", "p90", "p99", "p99.9", "max"), figures, strict=True))
            found[f"{key}_rounds"] = [
                [float(v) / 1e6 for v in (*np.percentile(r[key], [50, 99], method="inverted_cdf"), max(r[key]))]
                for r in rows[name]
            ]
            line = "".join(f"{v:>9.3f}" for v in figures)
            print(
                f"{name:<8}{text:<24}{line}"
                + (f"  {found['releases']:>9}{found['executed']:>10}" if key == "start" else "")
            )
        document["arrangements"][name] = found
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
