"""What the pieces of a device step cost the host here: queueing, waiting, marks, NVTX, and ONNX Runtime's ways to run.

    python benchmarks/queue_costs.py [--device cuda:0] [--steps 400] [--rate 200] [--only cuda,nvtx,step,onnxruntime] [-o FILE.json]

Each line is the median of a call, back to back and spaced at --rate. The decisions on pinned buffers, marks and waiting
(docs/decisions) rest on these numbers; a machine whose driver calls cost otherwise may want other options. A part whose
runtime is not installed is a line with the reason.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from robot_perf import backends, policies
from robot_perf.backends.gpu import cudart, nvtx
from robot_perf.backends.gpu.options import DeviceOptions, device_index
from robot_perf.errors import RobotPerfError
from robot_perf.policies.observations import open_observations
from robot_perf.specs import TensorSpec

Call = Callable[[], Any]
Rows = dict[str, dict[str, float]]


def median_us(call: Call, steps: int, period_ns: int, before: Call | None = None) -> float:
    """Median of a call in µs; `before` runs ahead of each one and is not timed."""
    found, release, now = [], time.monotonic_ns(), time.monotonic_ns
    for _ in range(steps + 20):
        if period_ns:
            release += period_ns
            time.sleep(max(0.0, (release - now()) / 1e9))
        if before is not None:
            before()
        start = now()
        call()
        found.append(now() - start)
    return statistics.median(found[20:]) / 1000


def both(rows: Rows, name: str, call: Call, arguments: argparse.Namespace, before: Call | None = None) -> None:
    """One line: back to back, and spaced."""
    period = round(1e9 / arguments.rate)
    rows[name] = {
        "tight_us": median_us(call, arguments.steps, 0, before),
        "spaced_us": median_us(call, max(40, arguments.steps // 4), period, before),
    }
    print(
        f"{name:<58} {rows[name]['tight_us']:9.2f} µs tight {rows[name]['spaced_us']:9.2f} µs at {arguments.rate:g} Hz",
        flush=True,
    )


def cuda(arguments: argparse.Namespace) -> Rows:
    """Driver calls through cuda-python on an idle stream; what was queued is waited for outside of the timed call."""
    rows: Rows = {}
    options = DeviceOptions(index=device_index(arguments.device))
    cudart.open_device(options)
    cu, memory, stream = cudart.runtime(), cudart.Memory(), cudart.Stream(options)
    array, host, _ = memory.pinned(TensorSpec("x", "float32", (1, 48)))
    place, marks = memory.device(array.nbytes), cudart.Marks(2)
    kind, observation = cu.cudaMemcpyKind.cudaMemcpyHostToDevice, np.ones((1, 48), np.float32)

    def copy() -> None:
        cu.cudaMemcpyAsync(place, host, array.nbytes, kind, stream.handle)

    def fill() -> None:
        array[...] = observation

    both(rows, "48 floats into pinned memory", fill, arguments)
    both(rows, "queue one copy of 192 bytes", copy, arguments, stream.wait)
    both(rows, "queue one event", lambda: marks.record(0, stream), arguments, stream.wait)
    both(rows, "wait for an idle stream", stream.wait, arguments)
    for sync in ("auto", "block", "spin"):
        own = cudart.Stream(DeviceOptions(index=options.index, sync=sync))

        def there_and_back(own: cudart.Stream = own) -> None:
            cu.cudaMemcpyAsync(place, host, array.nbytes, kind, own.handle)
            own.wait()

        both(rows, f"one copy queued and waited for, sync={sync}", there_and_back, arguments)
        own.close()
    for nodes in (1, 8):
        graph = cudart.Graph(stream, lambda nodes=nodes: [copy() for _ in range(nodes)])
        both(rows, f"launch a graph of {nodes} copies", graph.launch, arguments, stream.wait)
        graph.close()
    stream.wait()
    marks.close()
    memory.close()
    stream.close()
    return rows


def ranges(arguments: argparse.Namespace) -> Rows:
    """An NVTX range by the package itself; robot-perf makes none without a profiler, which costs nothing by construction."""
    import nvtx as package

    rows: Rows = {}

    def one() -> None:
        package.push_range("step")
        package.pop_range()

    both(rows, f"one NVTX range, profiler {'listening' if nvtx.listening() else 'absent'}", one, arguments)
    both(rows, "asking whether a profiler listens (once per loop)", nvtx.listening, arguments)
    return rows


def steps(arguments: argparse.Namespace) -> Rows:
    """The mlp step of each torch backend, with and without what is optional."""
    ways: list[tuple[str, dict[str, Any]]] = [
        ("eager", {}),
        ("eager", {"marks": True}),
        ("cuda_graph", {}),
        ("cuda_graph", {"marks": True}),
        ("cuda_graph", {"buffers": "mapped"}),
        ("cuda_graph", {"sync": "block"}),
        ("cuda_graph", {"sync": "spin"}),
    ]
    return _steps(ways, arguments)


def onnx(arguments: argparse.Namespace) -> Rows:
    """ONNX Runtime's step taken apart: queueing the copies, and the run with the wait at its end."""
    rows = _steps(
        [
            ("onnxruntime", o)
            for o in (
                {},
                {"cuda_graph": True},
                {"buffers": "mapped"},
                {"buffers": "mapped", "cuda_graph": True},
                {"precision": "tf32"},
            )
        ],
        arguments,
    )
    spec = policies.describe("mlp")
    runner: Any = backends.load("onnxruntime", spec, {"device": arguments.device})
    runner.step(open_observations(spec).at(0))
    work = runner.work
    both(rows, "onnxruntime: queue the copy in", lambda: work._buffers.upload(work.stream), arguments, work.wait)
    both(rows, "onnxruntime: run_with_iobinding, its own wait included", work._enqueue, arguments, work.wait)
    both(rows, "onnxruntime: queue the copy out", lambda: work._buffers.download(work.stream), arguments, work.wait)
    runner.close()
    return rows


def _steps(ways: list[tuple[str, dict[str, Any]]], arguments: argparse.Namespace) -> Rows:
    rows: Rows = {}
    spec = policies.describe("mlp")
    observation = open_observations(spec).at(0)
    for name, given in ways:
        runner: Any = backends.load(name, spec, {"device": arguments.device, **given})
        words = ",".join(f"{k}={v}" for k, v in given.items())
        both(
            rows,
            f"{name} step of mlp{f' [{words}]' if words else ''}",
            lambda runner=runner: runner.step(observation),
            arguments,
        )
        runner.close()
    return rows


PARTS = {"cuda": cuda, "nvtx": ranges, "step": steps, "onnxruntime": onnx}


def main() -> None:
    """Measures every part that can run here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    conditions = {"python": platform.python_version(), "kernel": platform.release(), "processor": platform.machine()}
    document: dict[str, Any] = {"conditions": conditions, "parts": {}}
    for name in arguments.only.split(","):
        try:
            document["parts"][name] = PARTS[name](arguments)
        except (RobotPerfError, ImportError) as error:
            document["parts"][name] = {"reason": " ".join(str(error).split())}
            print(f"{name}: not measured: {document['parts'][name]['reason']}")
    if arguments.output:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
