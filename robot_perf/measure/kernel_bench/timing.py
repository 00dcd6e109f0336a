"""CUDA graphs of kernel calls, and their times: warm and cold cache, host work, nodes, gaps. Needs torch and a CUDA GPU.

Times are µs per call: a graph of many calls is replayed between two events and divided. A graph leaves the host out; the gap to
the first kernel is spread over the calls. Nothing synchronises between the start event and the work, and the GPU begins when the
host is done with queueing (an idle GPU would let host time in).
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from robot_perf.backends.gpu.capture import uncollected
from robot_perf.measure.kernel_bench.points import Point, bytes_touched

__all__ = [
    "Flush",
    "calls_per_graph",
    "capture",
    "graph_nodes",
    "host_us",
    "idle_gaps",
    "kernels_of_one_call",
    "middle",
    "replay_us",
    "warm_up",
]

Graph = Any
DEVICE = "cuda"
GRAPH_US = 400.0  # a graph holds enough calls to last about this long, 8 to 64
FLUSH_L2 = 3  # a flush reads this many times the L2
LEAD_CYCLES = 1_000_000  # half a millisecond on an H200, for every LED replays: a busy host takes less to queue them
LED = 4


def calls_per_graph(point: Point) -> int:
    """How many calls of a point a graph holds."""
    return max(8, min(64, int(GRAPH_US / max(1.0, bytes_touched(point) / 4e6))))


def capture(calls: Sequence[Callable[[], Any]], keep: int) -> Graph:
    """A CUDA graph of the calls in order. The last `keep` results stay alive while capturing, so that outputs rotate too."""
    import torch

    held: deque[Any] = deque(maxlen=max(1, keep))
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with uncollected(), torch.cuda.graph(graph):
        for call in calls:
            held.append(call())
    graph.instantiate()
    return graph


def replay_us(graph: Graph, calls: int, times: int) -> list[float]:
    """µs per call of `times` replays, one unmeasured replay first.

    The GPU spins first, for longer than the host takes to queue them: at a graph of 50 µs it would catch up, and the host's time be
    measured.
    """
    import torch

    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    torch.cuda._sleep(LEAD_CYCLES * -(-times // LED))
    graph.replay()
    for start, end in marks:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1000 / calls for start, end in marks]


def warm_up(seconds: float) -> None:
    """Keeps the GPU busy."""
    import torch

    x = torch.ones(2**26, device=DEVICE)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(100):
            torch.neg(x)
        torch.cuda.synchronize()


def host_us(many: Sequence[Callable[[], Any]], calls: int, times: int) -> list[list[float]]:
    """µs of host time to queue one call of each of `many`, output allocation included, the GPU idle at the start of every sample.

    They take turns: a processor that is slow for a while is slow for all of them.
    """
    import torch

    samples: list[list[float]] = [[] for _ in many]
    for _ in range(times):
        for call, mine in zip(many, samples, strict=True):
            call()
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(calls):
                call()
            mine.append((time.perf_counter_ns() - start) / calls / 1000)
    torch.cuda.synchronize()
    return samples


class Flush:
    """Reads a buffer of three times the L2, so that the call after it finds nothing of its own in the cache.

    A read leaves no dirty lines behind; zeroing the buffer would, and their write-back would compete with the call.
    """

    def __init__(self, l2_bytes: int) -> None:
        import torch

        self._buffer = torch.ones(FLUSH_L2 * l2_bytes // 4, dtype=torch.float32, device=DEVICE)
        self._out = torch.empty((), dtype=torch.float32, device=DEVICE)

    def __call__(self) -> None:
        """Queues the read."""
        import torch

        torch.sum(self._buffer, dim=0, out=self._out)


def graph_nodes(graph: Graph) -> dict[str, int] | None:
    """Nodes of a captured graph by kind (kernel, memcpy, memset, …); None where cuda-python is absent."""
    try:
        from cuda.bindings import runtime
    except ImportError:
        return None
    raw = runtime.cudaGraph_t(init_value=graph.raw_cuda_graph())
    try:
        _, _, count = runtime.cudaGraphGetNodes(raw)
        status, nodes, count = runtime.cudaGraphGetNodes(raw, count)
        kinds = [runtime.cudaGraphNodeGetType(node)[1].name for node in nodes[:count]]
    except (TypeError, ValueError, AttributeError):  # cuda-python changed this call's shape between its major versions
        return None
    if int(status) != 0:
        return None
    found: dict[str, int] = {}
    for kind in kinds:
        short = kind.removeprefix("cudaGraphNodeType").lower()
        found[short] = found.get(short, 0) + 1
    return found


def kernels_of_one_call(call: Callable[[], Any]) -> tuple[list[str], list[str]]:
    """(names of the kernels, names of the torch operations) of one eager call, from torch's profiler."""
    import torch

    call()
    torch.cuda.synchronize()
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as seen:
        call()
        torch.cuda.synchronize()
    kernels: list[str] = []
    operations: list[str] = []
    for event in seen.profiler.kineto_results.events():
        on_gpu = event.device_type() == torch.autograd.DeviceType.CUDA
        (kernels if on_gpu else operations).append(event.name())
    return kernels, operations


def idle_gaps(graph: Graph) -> tuple[list[float], list[float]]:
    """(gaps between consecutive kernels, kernel durations) of one replay in µs, from torch's profiler; negative = overlap.

    The profiler's own tracing lengthens gaps; the graph's µs per call is the number to trust.
    """
    import torch

    graph.replay()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        graph.replay()
        torch.cuda.synchronize()
    spans = sorted(
        (e.start_ns(), e.start_ns() + e.duration_ns())
        for e in seen.profiler.kineto_results.events()
        if e.device_type() == torch.autograd.DeviceType.CUDA and e.duration_ns() > 0
    )
    gaps = [(b[0] - a[1]) / 1000 for a, b in itertools.pairwise(spans)]
    return gaps, [(end - start) / 1000 for start, end in spans]


def middle(values: Sequence[float]) -> float | None:
    """The upper of the two in the middle where their number is even; None of none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
