"""robot-perf's step beside a hand-written minimal loop of the same graph, in one process, in interleaved blocks.

    python benchmarks/minimal_graph_loop.py [--backend cuda_graph|tensorrt|eager|compile|onnxruntime|stand-in] [--device cuda:0|cpu]
                                            [--policy mlp] [--rates tight,200,50] [--blocks 6] [--steps 300] [--touch-mb 0] [-o FILE.json]

`minimal` is what one writes by hand: observation into pinned memory, replay of a captured graph with the copies in it (every
output comes to the host, as in the product), a wait for the stream; two clock readings around it and nothing else. `robot-perf` is the product's own
step as the loop calls it, with its truth checks and its row in the step map, over the same weights (or the same engine). The order
is forwards, then backwards; the figure is the median execution, and 1.05 times the minimal loop what robot-perf may take. `minimal again` is
the minimal loop made a second time: how far two equal loops lie apart in one process is how well the ratio can be known.
For onnxruntime (without its CUDA graph) `minimal` is the loop of its documentation: I/O binding of the host's arrays, which the runtime copies,
with the product's options of the provider that decide what is computed (use_tf32); `minimal, its defaults` is the same without them, `minimal, on a stream of ours`
computes on a stream made outside, as the product does; the two that are `bound` also have device memory of ours, as the product has, and differ in who copies the answers.
On a device it takes policies without state only.
For eager and compile it is the module called as it is, with `no_grad` around a block, the observation moved to the device and the action alone
back; for onnxruntime on the CPU `session.run` with the product's settings.
`stand-in` needs no GPU: launch and wait are calls that do nothing, so that only the frames around them are compared; `--touch-mb` is touched
before each step, which leaves the processor's caches as cold as a control loop's.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import statistics
import time
from contextlib import nullcontext
from pathlib import Path

import hand_written
import hand_written_onnx
import hand_written_torch
import numpy as np
from hand_written import Around, StandIn, Step

from robot_perf import backends, policies
from robot_perf.backends.gpu.cudart import Stream
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.runner import QueuedRunner
from robot_perf.measure.clock import MonotonicClock
from robot_perf.measure.recorder import Recorder, host_noise
from robot_perf.measure.step import OutputWatch, make_step
from robot_perf.policies.observations import open_observations
from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.stepmap import StepMap, Word
from robot_perf.specs import LoopSpec, to_json


def product(spec, runner, observations, rows: int) -> tuple[Step, Around]:
    """The product's step, recorder and truth checks included, as its loop calls it."""
    path = Path("/dev/shm") / f"minimal-{time.monotonic_ns()}.map"
    loop = LoopSpec(period_ns=0, deadline_ns=0, steps=rows)
    stepmap = StepMap.create(path, {"loop": to_json(loop), "policy": {}}, STEP_COLUMNS, rows)
    path.unlink()
    recorder, clock = Recorder(stepmap, host_noise([0])), MonotonicClock()
    step = make_step(runner, observations, recorder, clock, OutputWatch(spec.action, spec.outputs[spec.action]))
    now = time.monotonic_ns

    def one(k: int) -> int:
        release = now()
        start, end = step(k, release, release)
        recorder.own(0)
        if stepmap[Word.COMMITTED] >= rows:
            raise RuntimeError("the step map is full")
        return end - start

    return one, nullcontext


def by_hand(backend: str, device: str, runner, observations) -> list[tuple[str, tuple[Step, Around]]]:
    """`minimal`, `minimal again` and what else is held beside them."""
    spec, more = runner.spec, []
    if backend == "stand-in":
        make = functools.partial(hand_written.minimal_stand_in, spec, observations)
    elif backend == "tensorrt":
        make = functools.partial(
            hand_written.minimal_tensorrt, spec, observations, hand_written.engine_plan(spec, runner.facts())
        )
    elif backend == "onnxruntime":
        if device == "cpu":
            make = functools.partial(hand_written_onnx.on_cpu, spec, observations)
        else:
            make = functools.partial(hand_written_onnx.documented, spec, observations, use_tf32="0")
            stream = Stream(DeviceOptions())
            ours = {"use_tf32": "0", "user_compute_stream": str(stream.address)}
            more = [
                ("minimal, its defaults", hand_written_onnx.documented(spec, observations)),
                ("minimal, on a stream of ours", hand_written_onnx.documented(spec, observations, **ours)),
                ("bound, answers copied by us", hand_written_onnx.bound(spec, observations, download=True)),
                ("bound, answers copied by the session", hand_written_onnx.bound(spec, observations, download=False)),
            ]
    elif backend == "cuda_graph":
        make = functools.partial(hand_written_torch.captured, spec, observations)
    else:
        make = functools.partial(hand_written_torch.plain, spec, observations, device, compiled=backend == "compile")
    return [("minimal", make()), ("minimal again", make()), *more]


def block(contestant: tuple[Step, Around], steps: int, period: int, touched: np.ndarray) -> list[int]:
    """One block; a fifth more steps before it are warm-up. `touched` is written before each step."""
    clock, found = MonotonicClock("sleep"), []
    skip = max(5, steps // 5)
    step, around = contestant
    with around():
        release = time.monotonic_ns() + period
        for k in range(steps + skip):
            if period:
                clock.wait(release)
                release += period
            if touched.size:
                np.add(touched, 1, out=touched)
            found.append(step(k))
    return found[skip:]


def main() -> None:
    """Measures and prints; exits 1 when robot-perf needs more than 1.05 times the minimal loop at any rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--backend",
        choices=("cuda_graph", "tensorrt", "eager", "compile", "onnxruntime", "stand-in"),
        default="cuda_graph",
    )
    parser.add_argument("--device", default="cuda:0", help="cpu for eager, compile and onnxruntime")
    parser.add_argument("--policy", default="mlp")
    parser.add_argument("--rates", default="tight,200,50")
    parser.add_argument(
        "--steps", type=int, default=300, help="of a block back to back; a block at a rate lasts a second"
    )
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--touch-mb", type=int, default=0, help="memory written before each step")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    spec = policies.describe(arguments.policy)
    if arguments.backend == "stand-in":
        runner, facts = QueuedRunner(spec, StandIn(spec)), {}
    else:
        runner = backends.load(arguments.backend, spec, {"device": arguments.device})
        facts = {k: v for k, v in runner.facts().items() if isinstance(v, (str, int, float, bool))}
    observations = open_observations(runner.spec)
    contestants = by_hand(arguments.backend, arguments.device, runner, observations)
    contestants.insert(1, ("robot-perf", product(runner.spec, runner, observations, 200_000)))
    touched = np.zeros(arguments.touch_mb * 2**20 // 8)
    document = {
        "conditions": {
            "policy": spec.name,
            "touch_mb": arguments.touch_mb,
            "kernel": platform.release(),
            "facts": facts,
        },
        "rates": {},
    }
    print(json.dumps(document["conditions"]))
    worst = 0.0
    for rate in arguments.rates.split(","):
        period = 0 if rate == "tight" else round(1e9 / float(rate))
        steps = arguments.steps if not period else max(20, round(1e9 / period))
        values: dict[str, list[list[int]]] = {name: [] for name, _ in contestants}
        for i in range(arguments.blocks):
            for name, contestant in contestants if i % 2 == 0 else reversed(contestants):
                values[name].append(block(contestant, steps, period, touched))
        medians = {name: [statistics.median(b) / 1000 for b in blocks] for name, blocks in values.items()}
        p50 = {name: statistics.median([v for b in blocks for v in b]) / 1000 for name, blocks in values.items()}
        ratio = p50["robot-perf"] / p50["minimal"]
        worst = max(worst, ratio)
        again_ratio = p50["minimal again"] / p50["minimal"]
        document["rates"][rate] = {
            "p50_us": p50,
            "ratio": ratio,
            "ratio_again": again_ratio,
            "blocks_us": medians,
            "steps": steps,
        }
        others = "".join(f", {name} {p50[name]:.2f} µs" for name, _ in contestants[3:])
        spread = {name: f"{min(m):.1f}–{max(m):.1f}" for name, m in medians.items()}
        print(
            f"{arguments.backend} {spec.name} {rate:>6}: minimal {p50['minimal']:.2f} µs (blocks {spread['minimal']}),"
            f" robot-perf {p50['robot-perf']:.2f} µs (blocks {spread['robot-perf']}), ratio {ratio:.3f}; minimal again {again_ratio:.3f}{others}"
        )
    runner.close()
    if arguments.output:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(1 if worst > 1.05 else 0)


if __name__ == "__main__":
    main()
