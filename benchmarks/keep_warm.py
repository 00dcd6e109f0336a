"""What makes a spaced GPU call slower than a back-to-back one, and which cure helps: a hand-written loop, no robot-perf in it.

    python benchmarks/keep_warm.py [--rate 50] [--steps 90] [--device 0] [--seed 0] [-o FILE.json]

One CUDA graph holds an MLP actor (48-512-256-128-12) and both copies. Every variant runs the same graph at the same rate; they
differ in what happens in the idle time before the release, beside the loop, or in how the host waits. Three rounds, each in an
order of its own (seeded). Beside them: one suspect made worse on purpose (flushed L2, polluted processor caches) back to back,
and each part of the graph alone, spaced and back to back.

Prints the median wall time of a step (observation on the host to action on the host), how much of it passed until the launch
returned, the device's own share by CUDA events in a pass of its own (behind a gate, so that a slow host is not counted as the
device), processor time and mean power, with its conditions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from pathlib import Path

from keep_warm_actor import Actor, Power
from keep_warm_cures import NS, Variant, sleeper, variants

ROUNDS = 3


def paced(actor: Actor, variant: Variant, period: int, steps: int, power: Power, *, device: bool = False) -> dict:
    """One block of a variant. The first steps are warm-up."""
    walls, queued, filled, shares = [], [], [], []
    skip = 4
    with variant.around():
        release = time.monotonic_ns() + period
        energy, cpu, began = power.energy_j(), time.process_time_ns(), time.monotonic_ns()
        for k in range(steps + skip):
            variant.before(release)
            if device:
                shares.append(actor.device_us(k))
            else:
                wall, until_queued, until_filled = actor.step(k, variant.wait)
                walls.append(wall)
                queued.append(until_queued)
                filled.append(until_filled)
            variant.after()
            release += period
        elapsed = time.monotonic_ns() - began
        used, cpu = power.energy_j(), time.process_time_ns() - cpu
    actor.other.synchronize()
    return {
        "wall_us": walls[skip:],
        "queued_us": queued[skip:],
        "filled_us": filled[skip:],
        "device_us": shares[skip:],
        "cpu": cpu / elapsed,
        "watts": None if used is None or energy is None else (used - energy) / (elapsed / 1e9),
        "sm_mhz": power.sm_mhz(),
    }


def tight(actor: Actor, spoil, steps: int, measure) -> list:
    """Back to back, with one suspect made worse before each step, outside the timed part."""
    values = []
    for k in range(steps + 20):
        spoil()
        values.append(measure(k))
    return values[20:]


def suspects(actor: Actor) -> dict:
    """Back to back with cold caches: what they alone can cost."""

    def both() -> None:
        actor.pollute_cpu()
        actor.flush_l2()

    spoilers = {
        "nothing": lambda: None,
        "GPU L2 flushed": actor.flush_l2,
        "processor caches polluted": actor.pollute_cpu,
        "both": both,
    }
    found = {}
    for name, spoil in spoilers.items():
        count = 2000 if name == "nothing" else 60
        steps = tight(actor, spoil, count, lambda k: actor.step(k, actor.wait_default))
        wall, queued, filled = (statistics.median(column) for column in zip(*steps, strict=True))
        device = statistics.median(tight(actor, spoil, min(count, 300), actor.device_us))
        found[name] = {
            "wall_us": wall,
            "until_queued_us": queued,
            "until_filled_us": filled,
            "device_us": device,
            "n": count,
        }
        print(
            f"tight, {name:<28} wall {wall:7.1f} µs  until queued {queued:6.1f} (filled {filled:4.1f})  device {device:7.1f}"
        )
    return found


def parts(actor: Actor, period: int, steps: int) -> dict:
    """Each part of the graph alone: spaced, and back to back."""
    sleep, found = sleeper(), {}
    for name, graph in {**actor.parts, "the whole graph": actor.graph}.items():
        row: dict = {"n": steps}
        measures = {
            "wall_us": lambda k, graph=graph: actor.step(k, actor.wait_default, graph)[0],
            "device_us": lambda k, graph=graph: actor.device_us(k, graph),
            "events_us": lambda k, graph=graph: actor.device_us(k, graph, gated=False),
        }
        for what, measure in measures.items():
            values, release = [], time.monotonic_ns() + period
            for k in range(steps + 4):
                sleep(release)
                values.append(measure(k))
                release += period
            row[f"spaced_{what}"] = statistics.median(values[4:])
            row[f"tight_{what}"] = statistics.median([measure(k) for k in range(220)][20:])
        found[name] = row
        print(
            f"alone, {name:<24} wall {row['spaced_wall_us']:6.1f} spaced, {row['tight_wall_us']:5.1f} tight"
            f"   device {row['spaced_device_us']:6.1f} spaced, {row['tight_device_us']:5.1f} tight"
            f"   between events, host included {row['spaced_events_us']:6.1f} spaced, {row['tight_events_us']:5.1f} tight"
        )
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
        "rounds": ROUNDS,
        "seed": arguments.seed,
    }


def row_of(blocks: list[dict], device_us: list[float], base: float) -> dict:
    """The figures of a variant over its blocks."""
    watts = [b["watts"] for b in blocks if b["watts"] is not None]
    walls = [w for b in blocks for w in b["wall_us"]]
    p50 = statistics.median(walls)
    return {
        "p50_us": p50,
        "n": len(walls),
        "blocks_us": [statistics.median(b["wall_us"]) for b in blocks],
        "times_tight": p50 / base,
        "until_queued_us": statistics.median(w for b in blocks for w in b["queued_us"]),
        "until_filled_us": statistics.median(w for b in blocks for w in b["filled_us"]),
        "device_us": statistics.median(device_us),
        "cpu_share": statistics.mean(b["cpu"] for b in blocks),
        "watts": statistics.mean(watts) if watts else None,
        "sm_mhz": [b["sm_mhz"] for b in blocks],
    }


def printed(name: str, row: dict) -> str:
    """One line of the table."""
    blocks = ", ".join(f"{b:.0f}" for b in row["blocks_us"])
    watts = "no power" if row["watts"] is None else f"{row['watts']:.0f} W"
    return (
        f"{name:<48} p50 {row['p50_us']:6.1f} µs ({blocks})  {row['times_tight']:5.2f} × tight  until queued {row['until_queued_us']:5.1f}"
        f" (filled {row['until_filled_us']:4.1f})  device {row['device_us']:6.1f}  CPU {row['cpu_share'] * 100:5.1f} %  {watts}  SM {row['sm_mhz']}"
    )


def main() -> None:
    """Runs everything and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--steps", type=int, default=90, help="of each variant, over all rounds")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    actor, power = Actor(arguments.device), Power(arguments.device)
    period = round(NS / arguments.rate)
    each = max(10, arguments.steps // ROUNDS)
    facts = conditions(arguments)
    print(json.dumps(facts), flush=True)
    document: dict = {"conditions": facts, "tight": suspects(actor), "parts": parts(actor, period, each), "paced": {}}
    base = document["tight"]["nothing"]["wall_us"]
    todo = variants(actor, period / 1000)
    blocks: dict[str, list[dict]] = {name: [] for name in todo}
    order, names = random.Random(arguments.seed), list(todo)
    for _ in range(ROUNDS):
        order.shuffle(names)
        for name in names:
            blocks[name].append(paced(actor, todo[name], period, each, power))
    for name, variant in todo.items():
        device = paced(actor, variant, period, max(10, each // 2), power, device=True)["device_us"]
        document["paced"][name] = row_of(blocks[name], device, base)
        print(printed(name, document["paced"][name]), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
