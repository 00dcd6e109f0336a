"""robot-perf's step beside a hand-written minimal loop of the same graph, in one process, in interleaved blocks.

    python benchmarks/minimal_graph_loop.py [--backend cuda_graph|tensorrt|onnxruntime|stand-in] [--policy mlp] [--rates tight,200,50]
                                            [--blocks 6] [--steps 300] [--touch-mb 0] [-o FILE.json]

`minimal` is what one writes by hand: observation into pinned memory, replay of a captured graph with the copies in it (every
output comes to the host, as in the product), a wait for the stream; two clock readings around it and nothing else. `robot-perf` is the product's own
step as the loop calls it, with its truth checks and its row in the step map, over the same weights (or the same engine). The order
is forwards, then backwards; the figure is the median execution, and 1.05 times the minimal loop what robot-perf may take. `minimal again` is
the minimal loop made a second time: how far two equal loops lie apart in one process is how well the ratio can be known.
For onnxruntime (without its CUDA graph) `minimal` is the loop of its documentation: I/O binding of the host's arrays, which the runtime copies,
with the product's options of the provider that decide what is computed (use_tf32); `minimal, its defaults` is the same without them, `minimal, on a stream of ours`
computes on a stream made outside, as the product does.
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
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

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

Step = Callable[[int], int]  # step number -> execution, ns
Around = Callable[[], AbstractContextManager[object]]  # what a block of steps runs in: the stream of a torch loop


def minimal_torch(spec, observations) -> tuple[Step, Around]:
    """A captured torch graph of the built-in's own module.

    Its stream is made current around a block, not a step: the calls that do so would warm torch's code up right before the clock is read.
    """
    import torch

    from robot_perf.policies.builtin.torch_module import build

    net = build(spec.builtin, spec.seed).cuda()
    host_in = [torch.zeros(t.shape).pin_memory() for t in spec.inputs]
    dev_in = [torch.zeros(t.shape, device="cuda") for t in spec.inputs]
    host_out = [torch.zeros(t.shape).pin_memory() for t in spec.outputs]
    view, answer = host_in[0].numpy(), host_out[spec.action].numpy()
    stream = torch.cuda.Stream()

    def body() -> None:
        dev_in[0].copy_(host_in[0], non_blocking=True)
        outputs = net(*dev_in)
        for pair in spec.state:
            dev_in[pair.target].copy_(outputs[pair.source])
        for place, output in zip(host_out, outputs, strict=True):
            place.copy_(output, non_blocking=True)

    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(5):
            body()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            body()
    replay, wait, now, at = graph.replay, stream.synchronize, time.monotonic_ns, observations.reader()

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        view[...] = observation
        replay()
        wait()
        _ = answer[0, 0]
        return now() - start

    return step, lambda: torch.cuda.stream(stream)


def minimal_tensorrt(spec, observations, plan: bytes) -> tuple[Step, Around]:
    """The same engine, captured and replayed through cuda-python."""
    import ctypes

    import tensorrt as trt
    from cuda.bindings import runtime as cu

    def ok(result):
        if int(result[0]):
            raise RuntimeError(str(result[0]))
        return result[1] if len(result) > 1 else None

    logger = trt.Logger(trt.Logger.ERROR)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    stream = ok(cu.cudaStreamCreateWithFlags(cu.cudaStreamNonBlocking))
    place: dict[str, tuple[int, np.ndarray, int]] = {}
    for tensor in (*spec.inputs, *spec.outputs):
        array = np.zeros(tensor.shape, tensor.dtype)
        host = ok(cu.cudaHostAlloc(array.nbytes, cu.cudaHostAllocDefault))
        view = np.frombuffer((ctypes.c_byte * array.nbytes).from_address(int(host)), tensor.dtype).reshape(tensor.shape)
        view[...] = 0
        device = ok(cu.cudaMalloc(array.nbytes))
        ok(cu.cudaMemset(device, 0, array.nbytes))
        place[tensor.name] = (int(host), view, int(device))
        context.set_tensor_address(tensor.name, int(device))
    action, fed = spec.outputs[spec.action].name, spec.inputs[0].name
    to_host, to_device, between = (
        cu.cudaMemcpyKind.cudaMemcpyDeviceToHost,
        cu.cudaMemcpyKind.cudaMemcpyHostToDevice,
        cu.cudaMemcpyKind.cudaMemcpyDeviceToDevice,
    )

    def body() -> None:
        host, view, device = place[fed]
        ok(cu.cudaMemcpyAsync(device, host, view.nbytes, to_device, stream))
        if not context.execute_async_v3(int(stream)):
            raise RuntimeError("execute_async_v3 failed")
        for pair in spec.state:
            source, target = place[spec.outputs[pair.source].name], place[spec.inputs[pair.target].name]
            ok(cu.cudaMemcpyAsync(target[2], source[2], source[1].nbytes, between, stream))
        for output in spec.outputs:
            host, view, device = place[output.name]
            ok(cu.cudaMemcpyAsync(host, device, view.nbytes, to_host, stream))

    for _ in range(5):
        body()
    ok(cu.cudaStreamSynchronize(stream))
    ok(cu.cudaStreamBeginCapture(stream, cu.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal))
    body()
    graph = ok(cu.cudaStreamEndCapture(stream))
    executable = ok(cu.cudaGraphInstantiate(graph, 0))
    launch, wait, now, at = cu.cudaGraphLaunch, cu.cudaStreamSynchronize, time.monotonic_ns, observations.reader()
    view, answer = place[fed][1], place[action][1]
    kept = (runtime, engine, context)

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        view[...] = observation
        launch(executable, stream)
        wait(stream)
        _ = answer[0, 0], kept
        return now() - start

    return step, nullcontext


def minimal_onnxruntime(spec, observations, **options: str) -> tuple[Step, Around]:
    """A session of the same model on CUDA's provider with these options of it, inputs and outputs bound on the host."""
    import onnxruntime as ort

    from robot_perf.backends.shared.onnx_session import source_of

    if spec.state:
        raise SystemExit("--backend onnxruntime takes policies without state here")
    session = ort.InferenceSession(source_of(spec), providers=[("CUDAExecutionProvider", options)])
    binding = session.io_binding()
    for output in spec.outputs:
        binding.bind_output(output.name, "cpu")
    run, fed, action = session.run_with_iobinding, spec.inputs[0].name, spec.action
    now, at = time.monotonic_ns, observations.reader()

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        binding.bind_cpu_input(fed, observation)
        run(binding)
        answer = binding.copy_outputs_to_cpu()[action]
        _ = answer[0, 0]
        return now() - start

    return step, nullcontext


class StandIn:
    """A `Work` whose launch and wait do nothing, in the form that cuda-python's have: a call that returns a tuple with an error."""

    def __init__(self, spec) -> None:
        self.staged = [np.zeros(spec.inputs[i].shape, spec.inputs[i].dtype) for i in spec.fed]
        self.answers = [np.zeros(t.shape, t.dtype) for t in spec.outputs]
        self.launch, self.wait = self.call("launch"), self.call("wait")
        self.busy, self.device_ns, self.phases_ns = bool, int, int  # each a C call that answers nothing, falsely

    @staticmethod
    def queue() -> Callable[[], tuple[int]]:
        """A C call that returns (0,)."""
        return functools.partial(tuple, (0,))

    def call(self, name: str) -> Callable[[], None]:
        """The call as the product makes it: its error looked at."""
        queue = self.queue()

        def call() -> None:
            (error,) = queue()
            if error:
                raise RuntimeError(name)

        return call

    def close(self) -> None:
        """Holds nothing."""


def minimal_stand_in(spec, observations) -> tuple[Step, Around]:
    """By hand: the observation into its place, both calls, a look at the answer."""
    work = StandIn(spec)
    launch, wait, now, at = work.queue(), work.queue(), time.monotonic_ns, observations.reader()
    view, answer = work.staged[0], work.answers[spec.action]

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        view[...] = observation
        launch()
        wait()
        _ = answer[0, 0]
        return now() - start

    return step, nullcontext


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


def engine_plan(spec, facts) -> bytes:
    """The engine that the runner has just read or built: the kept one of this policy on the device of these facts."""
    from robot_perf.backends.trt import api, build

    found = build.engine_for(api.load("tensorrt"), spec, facts["precision"], facts, {})
    if found.facts["engine"] != "kept":
        raise SystemExit("the runner's engine was not kept: nothing to compare with")
    return found.plan


def by_hand(backend: str, runner, observations) -> list[tuple[str, tuple[Step, Around]]]:
    """`minimal`, `minimal again` and what else is held beside them."""
    spec, more = runner.spec, []
    if backend == "stand-in":
        make = functools.partial(minimal_stand_in, spec, observations)
    elif backend == "onnxruntime":
        make = functools.partial(minimal_onnxruntime, spec, observations, use_tf32="0")
        stream = Stream(DeviceOptions())
        ours = {"use_tf32": "0", "user_compute_stream": str(stream.address)}
        more = [
            ("minimal, its defaults", minimal_onnxruntime(spec, observations)),
            ("minimal, on a stream of ours", minimal_onnxruntime(spec, observations, **ours)),
        ]
    elif backend == "cuda_graph":
        make = functools.partial(minimal_torch, spec, observations)
    else:
        make = functools.partial(minimal_tensorrt, spec, observations, engine_plan(spec, runner.facts()))
    return [("minimal", make()), ("minimal again", make()), *more]


def main() -> None:
    """Measures and prints; exits 1 when robot-perf needs more than 1.05 times the minimal loop at any rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--backend", choices=("cuda_graph", "tensorrt", "onnxruntime", "stand-in"), default="cuda_graph"
    )
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
        runner = backends.load(arguments.backend, spec, {"device": "cuda:0"})
        facts = {k: v for k, v in runner.facts().items() if isinstance(v, (str, int, float, bool))}
    observations = open_observations(runner.spec)
    contestants = by_hand(arguments.backend, runner, observations)
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
