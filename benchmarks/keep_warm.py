"""What makes a spaced GPU call slower than a back-to-back one, and which cure helps: a hand-written loop, no robot-perf in it.

    python benchmarks/keep_warm.py [--rate 50] [--steps 100] [--device 0] [-o FILE.json]

One CUDA graph holds an MLP actor (48-512-256-128-12) and both copies. Every variant runs the same graph at the same rate; they
differ in what happens in the idle time before the release, in how the host waits, or in one suspect made worse on purpose
(flushed L2, polluted processor cache) back to back. Variants are interleaved: forwards, then backwards. Prints the median wall
time of a step (observation on the host to action on the host), the device's own share by CUDA events in a pass of its own, the
processor time of the loop and the mean power, with its conditions.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import time
from pathlib import Path

from keep_warm_actor import Actor, Power

NS = 1_000_000_000


def sleeper():
    """clock_nanosleep to an absolute CLOCK_MONOTONIC time."""
    call = ctypes.CDLL(None).clock_nanosleep

    class Timespec(ctypes.Structure):
        _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))

    def sleep(until: int) -> None:
        target = Timespec(*divmod(until, NS))
        while time.monotonic_ns() < until:
            call(1, 1, ctypes.byref(target), None)

    return sleep


def spin(until: int) -> None:
    """Busy-waits until `until`."""
    now = time.monotonic_ns
    while now() < until:
        pass


def cures(actor: Actor, sleep) -> dict:
    """name -> what the loop does before a release; it returns when the release has come."""

    def at(lead_us: float, act, then):
        def before(release: int, _period: int) -> None:
            sleep(release - int(lead_us * 1000))
            act()
            then(release)

        return before

    def nothing() -> None:
        return None

    def whole_period(release: int, _period: int) -> None:
        spin(release)

    def heartbeat(act, every_us: float):
        def before(release: int, _period: int) -> None:
            beat = time.monotonic_ns()
            while beat + int(every_us * 1000) < release - 150_000:
                beat += int(every_us * 1000)
                sleep(beat)
                act()
            sleep(release)

        return before

    def again_and_again(lead_us: float):
        def before(release: int, _period: int) -> None:
            sleep(release - int(lead_us * 1000))
            begin, took = time.monotonic_ns(), 0
            while begin + 2 * took < release:
                actor.rehearse()
                end = time.monotonic_ns()
                begin, took = end, end - begin
            spin(release)

        return before

    def touch() -> None:
        with actor.torch.cuda.stream(actor.stream):
            for p in actor.net.parameters():
                p.sum()

    found = {"sleep": at(0, nothing, sleep)}
    found |= {f"spin {us} µs before": at(us, nothing, spin) for us in (100, 500, 2000)}
    found["spin the whole period"] = whole_period
    found |= {f"tiny kernel {us} µs before": at(us, actor.nudge, sleep) for us in (100, 300, 1000, 3000)}
    found["tiny kernel every 1 ms"] = heartbeat(actor.nudge, 1000)
    found["touch the weights 300 µs before"] = at(300, touch, sleep)
    found |= {f"rehearse {us} µs before": at(us, actor.rehearse, sleep) for us in (300, 600, 1000)}
    found["rehearse 300 µs before, then spin"] = at(300, actor.rehearse, spin)
    found |= {f"rehearse again and again from {us} µs before": again_and_again(us) for us in (500, 900)}
    found["rehearse every 1 ms"] = heartbeat(actor.rehearse, 1000)
    return found


def paced(actor: Actor, before, wait, period: int, steps: int, power: Power, *, device_pass: bool) -> dict:
    """One block of a paced variant. The first tenth is warm-up."""
    walls, shares = [], []
    skip = max(3, steps // 10)
    release = time.monotonic_ns() + period
    energy, cpu, began = power.energy_mj(), time.process_time_ns(), time.monotonic_ns()
    for k in range(steps + skip):
        before(release, period)
        if device_pass:
            shares.append(actor.device_us(k))
        else:
            start = time.monotonic_ns()
            actor.launch(k)
            wait()
            _ = float(actor.view_out[0, 0])
            walls.append((time.monotonic_ns() - start) / 1000)
        release += period
    elapsed = time.monotonic_ns() - began
    used = power.energy_mj()
    return {
        "wall_us": walls[skip:],
        "device_us": shares[skip:],
        "cpu": (time.process_time_ns() - cpu) / elapsed,
        "watts": None if used is None or energy is None else (used - energy) / (elapsed / 1e6),
        "sm_mhz": power.sm_mhz(),
    }


def tight(actor: Actor, spoil, steps: int, *, device_pass: bool) -> list[float]:
    """Back to back, with one suspect made worse before each step, outside the timed part."""
    values = []
    for k in range(steps + 20):
        spoil()
        if device_pass:
            values.append(actor.device_us(k))
            continue
        start = time.monotonic_ns()
        actor.launch(k)
        actor.wait_default()
        _ = float(actor.view_out[0, 0])
        values.append((time.monotonic_ns() - start) / 1000)
    return values[20:]


def spoilers(actor: Actor) -> dict:
    """name -> what is made cold before a back-to-back step."""

    def nothing() -> None:
        return None

    def flush_l2() -> None:
        with actor.torch.cuda.stream(actor.stream):
            actor.flush.zero_()
        actor.stream.synchronize()

    def pollute_cpu() -> None:
        actor.host_junk[::64] += 1

    def both() -> None:
        pollute_cpu()
        flush_l2()

    return {
        "nothing": nothing,
        "GPU L2 flushed": flush_l2,
        "processor caches polluted": pollute_cpu,
        "both": both,
    }


def empty_step(actor: Actor, period: int, steps: int, sleep) -> dict[str, float]:
    """An empty kernel and a wait, spaced and back to back: what driver, channel and wake-up of the host cost without a network."""
    found = {}
    for name, gap in (("back to back", 0), ("spaced", period)):
        walls = []
        release = time.monotonic_ns() + gap
        for _ in range(steps):
            if gap:
                sleep(release)
                release += gap
            start = time.monotonic_ns()
            actor.nudge()
            actor.stream.synchronize()
            walls.append((time.monotonic_ns() - start) / 1000)
        found[name] = statistics.median(walls[steps // 10 :])
    return found


def conditions(arguments: argparse.Namespace) -> dict:
    """What a reader must know."""
    import torch

    driver = Path("/sys/devices/system/cpu/cpuidle/current_driver")
    props = torch.cuda.get_device_properties(arguments.device)
    return {
        "gpu": props.name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "idle driver": driver.read_text().strip() if driver.exists() else "none",
        "rate_hz": arguments.rate,
        "steps": arguments.steps,
    }


def main() -> None:
    """Runs everything and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--steps", type=int, default=100, help="of each variant, over both passes")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    actor, sleep, power = Actor(arguments.device), sleeper(), Power(arguments.device)
    period = round(NS / arguments.rate)
    facts = conditions(arguments)
    print(json.dumps(facts))
    document: dict = {"conditions": facts, "paced": {}, "tight": {}}
    base = statistics.median(tight(actor, lambda: None, 2000, device_pass=False))
    for name, spoil in spoilers(actor).items():
        count = 2000 if name == "nothing" else 100
        wall = statistics.median(tight(actor, spoil, count, device_pass=False))
        device = statistics.median(tight(actor, spoil, count, device_pass=True))
        document["tight"][name] = {"wall_us": wall, "device_us": device}
        print(f"tight, {name:<28} wall {wall:7.1f} µs  device {device:7.1f} µs  {wall / base:5.2f} × tight")
    document["empty_kernel_us"] = empty_step(actor, period, max(20, arguments.steps // 2), sleep)
    print("an empty kernel and a wait:", {k: round(v, 1) for k, v in document["empty_kernel_us"].items()}, "µs")
    variants = {name: (before, actor.wait_default) for name, before in cures(actor, sleep).items()}
    slept = variants["sleep"][0]
    variants |= {"sleep, blocking wait": (slept, actor.wait_block), "sleep, polling wait": (slept, actor.wait_poll)}
    blocks: dict[str, list[dict]] = {name: [] for name in variants}
    for names in (list(variants), list(reversed(variants))):
        for name in names:
            before, wait = variants[name]
            half = max(10, arguments.steps // 2)
            blocks[name].append(paced(actor, before, wait, period, half, power, device_pass=False))
    for name, pair in blocks.items():
        before, wait = variants[name]
        device = paced(actor, before, wait, period, max(10, arguments.steps // 4), power, device_pass=True)["device_us"]
        medians = [statistics.median(b["wall_us"]) for b in pair]
        p50 = statistics.median([w for b in pair for w in b["wall_us"]])
        watts = [b["watts"] for b in pair if b["watts"] is not None]
        row = {
            "p50_us": p50,
            "blocks_us": medians,
            "times_tight": p50 / base,
            "device_us": statistics.median(device),
            "cpu_share": statistics.mean(b["cpu"] for b in pair),
            "watts": statistics.mean(watts) if watts else None,
            "sm_mhz": [b["sm_mhz"] for b in pair],
        }
        document["paced"][name] = row
        print(
            f"{name:<46} p50 {p50:7.1f} µs ({medians[0]:.0f}, {medians[1]:.0f})  {row['times_tight']:5.2f} × tight  device {row['device_us']:6.1f} µs"
            f"  CPU {row['cpu_share'] * 100:5.1f} %  {'no power' if row['watts'] is None else format(row['watts'], '.1f') + ' W'}  SM {row['sm_mhz']}"
        )
    if arguments.output:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
