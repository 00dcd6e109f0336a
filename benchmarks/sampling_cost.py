"""Does reading a GPU's clocks, power and temperature disturb what is measured meanwhile?

    python benchmarks/sampling_cost.py [--policy mlp] [--backends eager,cuda_graph] [--blocks 6] [--block-s 0.4] [-o FILE.json]

First the duration of each call of NVML that `bench` and `deadline --soak` make. Then steps back to back, in blocks that take turns: `alone`;
`one look`, a reading by another process as the block begins, which is what `bench` does; `every 20 ms`. Printed per way: p50 of the
steps, of the first 100 ms of the blocks, and each block's p50; eager is bound by the processor, which is where a disturbance would show.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from pathlib import Path

from robot_perf import backends, policies
from robot_perf.measure.watch.nvml import open_meter
from robot_perf.policies.observations import open_observations

FIRST_NS = 100_000_000
WAYS = {"alone": -1.0, "one look": 0.0, "every 20 ms": 0.02}


def calls(meter, count: int = 20) -> dict[str, list[float]]:
    """ms of each reading."""
    took: dict[str, list[float]] = {"sample": [], "energy": []}
    for _ in range(count):
        for name, call in (("sample", meter.sample), ("energy", meter.energy_j)):
            begin = time.monotonic_ns()
            call()
            took[name].append((time.monotonic_ns() - begin) / 1e6)
        time.sleep(0.02)
    return took


def reader(device: str, block, pause, done) -> None:
    """Another process: reads as a block begins, or again and again. `block` counts them, -1 ends it; `pause` is -1 for no reading."""
    meter, reason = open_meter(device)
    if meter is None:
        raise SystemExit(reason)
    done.set()
    seen = 0
    while block.value >= 0:
        if pause.value >= 0 and (block.value != seen or pause.value > 0):
            meter.energy_j()
            meter.sample()
            seen = block.value
        time.sleep(max(pause.value, 0.005))


def block(step, observations, seconds: float) -> list[tuple[int, int]]:
    """(ns since the block began, ns of the step)."""
    found, begin, k = [], time.monotonic_ns(), 0
    while (start := time.monotonic_ns()) - begin < seconds * 1e9:
        step(observations.at(k))
        found.append((start - begin, time.monotonic_ns() - start))
        k += 1
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="mlp")
    parser.add_argument("--backends", default="eager,cuda_graph")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--block-s", type=float, default=0.4)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    meter, reason = open_meter(asked.device)
    if meter is None:
        raise SystemExit(reason)
    document = {"calls_ms": calls(meter), "siblings": _siblings(), "backends": {}}
    for name, took in document["calls_ms"].items():
        print(f"NVML {name}: median {statistics.median(took):.2f} ms, longest {max(took):.2f} ms, n {len(took)}")
    context = multiprocessing.get_context("spawn")
    number, pause, done = context.Value("l", 0, lock=False), context.Value("d", -1.0, lock=False), context.Event()
    process = context.Process(target=reader, args=(asked.device, number, pause, done))
    process.start()
    done.wait(30)
    count = 0
    for backend in asked.backends.split(","):
        runner = backends.load(backend, policies.describe(asked.policy), {"device": asked.device})
        observations = open_observations(runner.spec)
        block(runner.step, observations, 1.0)
        rows: dict[str, list[list[tuple[int, int]]]] = {way: [] for way in WAYS}
        for i in range(asked.blocks):
            for way in list(WAYS) if i % 2 == 0 else reversed(WAYS):
                count += 1
                number.value, pause.value = count, WAYS[way]
                rows[way].append(block(runner.step, observations, asked.block_s))
                pause.value = -1.0
                time.sleep(0.1)
        found = document["backends"][backend] = {way: _figures(blocks) for way, blocks in rows.items()}
        for way, figures in found.items():
            print(
                f"{backend:12} {way:12} p50 {figures['p50_us']:8.2f} µs, first 100 ms {figures['first_us']:8.2f}, blocks {figures['blocks_us']}"
            )
        runner.close()
    number.value = -1
    process.join(10)
    if asked.output:
        asked.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _figures(blocks: list[list[tuple[int, int]]]) -> dict[str, object]:
    every = [ns for b in blocks for _, ns in b]
    first = [ns for b in blocks for at, ns in b if at < FIRST_NS]
    return {
        "n": len(every),
        "p50_us": statistics.median(every) / 1e3,
        "first_us": statistics.median(first) / 1e3,
        "blocks_us": [round(statistics.median(ns for _, ns in b) / 1e3, 1) for b in blocks],
    }


def _siblings() -> str:
    """The hardware threads that share a core with processor 0, as Linux sees it."""
    place = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    return place.read_text(encoding="ascii").strip() if place.exists() else "unknown"


if __name__ == "__main__":
    main()
