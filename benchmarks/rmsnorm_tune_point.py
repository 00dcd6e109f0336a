"""One shape and op of the RMSNorm tuner: inputs that leave the cache cold, the check against FP64, CUDA graphs and their times."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from rmsnorm_tune_candidates import variant_of

from robot_perf.kernels.rmsnorm_config import Launch
from robot_perf.kernels.rmsnorm_launch import Variant, float_bits, load
from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference
from robot_perf.measure.kernel_bench.timing import LEAD_CYCLES, LED


class Point:
    """Inputs and outputs of one shape and op, in as many sets as it takes to leave the cache cold."""

    def __init__(self, m: int, d: int, fused: bool, l2: int, least: int = 3, alone: bool = False) -> None:
        self.m, self.d, self.fused, self.alone = m, d, fused, alone
        many = 2 if fused else 1
        # at least `least` sets, however large: a cache that protects a part of what it read would serve it at the next call
        self.sets = max(least, min(64, math.ceil(3 * l2 / (m * d * 2 * many))))
        # x and residual of a set are one tensor, and so are y and s: a copy of the one to the other moves what the op moves
        self.read = [torch.randn(many * m, d, device="cuda", dtype=torch.bfloat16) for _ in range(self.sets)]
        self.written = [torch.empty_like(x) for x in self.read]
        self.x, self.y = [t[:m] for t in self.read], [t[:m] for t in self.written]
        self.r, self.s = ([t[m:] if fused else None for t in both] for both in (self.read, self.written))
        self.w = (1 + 0.1 * torch.randn(d, device="cuda")).to(torch.bfloat16)
        self.bytes = m * d * 2 * (4 if fused else 2) + d * 2
        self.calls = max(8, min(64, int(400e-6 / max(1e-6, self.bytes / 4e12))))
        rows = sorted({*range(min(m, 24)), *range(max(0, m - 24), m)})
        self.rows = torch.tensor(rows, device="cuda")
        wide = {"accumulate": torch.float64, "rounded": False}
        x = self.x[0][self.rows]
        if fused:
            self.truth = add_rms_norm_reference(x, self.r[0][self.rows], self.w, **wide)[0]
        else:
            self.truth = rms_norm_reference(x, self.w, **wide)

    def call(self, variant: Variant) -> Callable[[int], None]:
        """A function that queues the variant on set i."""
        got = load(variant, 0)
        unit, grid = 8, variant.launch.grid(self.m)
        stride = self.d // unit
        tail = (self.m, stride, stride, stride, stride, float_bits(1e-6), 0, *got.fixed)
        pointer = lambda t: 0 if t is None else t.data_ptr()  # noqa: E731

        def run(i: int) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            got.c_launch(
                grid, 1, 1, stream, got.function, 0, got.pdl, None, None, got.packed, None, None, None,
                pointer(self.x[i]), pointer(self.r[i]), self.w.data_ptr(), pointer(self.y[i]), pointer(self.s[i]), *tail,
            )  # fmt: skip

        return run

    def wrong(self, run: Callable[[int], None]) -> str:
        """What is wrong with the variant's output, from a poisoned buffer; empty if nothing."""
        self.y[0].fill_(float("nan"))
        run(0)
        torch.cuda.synchronize()
        if not torch.isfinite(self.y[0]).all():
            return "unwritten or not finite"
        if self.fused and not torch.equal(self.s[0], self.x[0] + self.r[0]):
            return "s is not x + r"
        y = self.y[0][self.rows].double()
        _, exponent = torch.frexp(self.truth.abs())
        ulp = ((y - self.truth).abs() / torch.exp2((exponent - 8).double())).max().item()
        return "" if ulp <= 0.51 else f"{ulp:.3f} ulp"


def graph_of(run: Callable[[int], None], calls: int, sets: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of calls that rotate over the sets."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            run(i % sets)
    return graph


def replay_us(graph: torch.cuda.CUDAGraph, calls: int, times: int) -> list[float]:
    """µs per call of each replay, queued while the GPU spins."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    torch.cuda._sleep(LEAD_CYCLES * -(-times // LED))
    graph.replay()
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1000 / calls for start, end in events]


Sampler = Callable[[int], list[float]]  # times -> µs per call of each replay


def measure(
    point: Point, launches: list[Launch], others: dict[str, dict[str, Sampler]] | None = None
) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """(entries of the launches, µs of `others`): checked, captured and timed in turn, in a rotating order.

    `us` rotates over all sets, `us_one_set` (where the point asks for it) stays with the first.
    """
    out: list[dict[str, Any]] = []
    ready: list[tuple[dict[str, Any], dict[str, Sampler]]] = []
    for launch in launches:
        entry, samplers = _ready(point, launch)
        out.append(entry)
        if samplers:
            ready.append((entry, samplers))
    beside: dict[str, dict[str, Any]] = {name: {} for name in others or {}}
    ready += [(beside[name], samplers) for name, samplers in (others or {}).items()]
    samples: dict[int, dict[str, list[float]]] = {id(entry): {k: [] for k in s} for entry, s in ready}
    for turn in range(3):
        shift = turn * len(ready) // 3
        order = ready[shift:] + ready[:shift]
        for entry, samplers in order if turn % 2 == 0 else reversed(order):
            for name, sampler in samplers.items():
                samples[id(entry)][name] += sampler(4)
    for entry, _ in ready:
        entry |= {name: round(statistics.median(v), 3) for name, v in samples[id(entry)].items() if v}
    return out, beside


def _ready(point: Point, launch: Launch) -> tuple[dict[str, Any], dict[str, Sampler]]:
    """(the entry of a launch, what samples it): nothing where it does not run or is wrong."""
    variant = variant_of(launch, point.d, point.fused)
    entry: dict[str, Any] = {"launch": asdict(launch), "error": ""}
    try:
        run = point.call(variant)
        entry["error"] = point.wrong(run)
    except Exception as caught:  # noqa: BLE001 - shown in the result
        entry["error"] = f"{type(caught).__name__}: {str(caught)[:150]}"
    if entry["error"]:
        return entry, {}
    got = load(variant, 0)
    entry |= {"registers": got.registers, "spills": got.spills, "grid": launch.grid(point.m)}
    return entry, samplers_of(point, run)


def samplers_of(point: Point, run: Callable[[int], None]) -> dict[str, Sampler]:
    """What times a function that queues one call on set i."""
    found = {"us": functools.partial(replay_us, graph_of(run, point.calls, point.sets), point.calls)}
    if point.alone:
        found["us_one_set"] = functools.partial(replay_us, graph_of(run, point.calls, 1), point.calls)
    return found
