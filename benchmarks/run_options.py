"""What a RunOptions costs each run of ONNX Runtime with bound inputs and outputs.

    python benchmarks/run_options.py [--device cpu|cuda:0] [--policy mlp] [--preset tiny] [--blocks 6] [--steps 1000] [-o FILE.json]

Four ways in turn, in one process, over one session: no options; an empty RunOptions; one that asks for no wait at the end of the run
(`gpu_graph_id` missing, as in the one before); and the latter with `gpu_graph_id`, which is what robot-perf gives. On the CPU no run waits for
anything, so that the difference is the call's own. Printed: the median of each block, µs, and of all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

from robot_perf import policies
from robot_perf.backends.gpu import ort_session
from robot_perf.backends.shared.onnx_session import source_of


def options_of(*entries: str) -> ort.RunOptions:
    """With these entries, each "1"."""
    made = ort.RunOptions()
    for entry in entries:
        made.add_run_config_entry(entry, "1")
    return made


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--policy", default="mlp")
    parser.add_argument("--preset")
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--steps", type=int, default=1000, help="of a block, after a tenth more that are warm-up")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    spec = policies.describe(arguments.policy, preset=arguments.preset)
    on_cpu = arguments.device == "cpu"
    if not on_cpu:
        ort_session.preload()
    session = ort.InferenceSession(source_of(spec), providers=[f"{'CPU' if on_cpu else 'CUDA'}ExecutionProvider"])
    binding, held = session.io_binding(), []
    for bind, tensors in ((binding.bind_input, spec.inputs), (binding.bind_output, spec.outputs)):
        for tensor in tensors:
            held.append(
                ort.OrtValue.ortvalue_from_numpy(np.zeros(tensor.shape, tensor.dtype), *arguments.device.split(":")[:1])
            )
            value = held[-1]
            bind(tensor.name, value.device_name(), 0, np.dtype(tensor.dtype).type, tensor.shape, value.data_ptr())
    wait, graph = "disable_synchronize_execution_providers", "gpu_graph_id"
    ways = {
        "none": (),
        "empty": (options_of(),),
        wait: (options_of(wait),),
        f"{wait}, {graph}": (options_of(wait, graph),),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    run, now, skip = session.run_with_iobinding, time.perf_counter_ns, arguments.steps // 10
    for k in range(arguments.blocks):
        for name in ways if k % 2 == 0 else reversed(ways):
            given, took = ways[name], []
            for _ in range(arguments.steps + skip):
                start = now()
                run(binding, *given)
                took.append(now() - start)
            binding.synchronize_outputs()
            found[name].append(statistics.median(took[skip:]) / 1000)
    for name, medians in found.items():
        print(f"{statistics.median(medians):8.2f} µs  {name:58}  {' '.join(f'{m:.2f}' for m in medians)}")
    if arguments.output:
        document = {
            "onnxruntime": ort.__version__,
            "policy": spec.name,
            "device": arguments.device,
            "steps": arguments.steps,
            "us": found,
        }
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
