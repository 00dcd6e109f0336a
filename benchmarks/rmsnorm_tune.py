"""Times every sensible launch of the RMSNorm kernels on this GPU: the evidence behind kernels/rmsnorm_config.py.

    python benchmarks/rmsnorm_tune.py --out DIR [--budget SECONDS]

Per shape and op (plain, fused add; BF16): candidates are compiled in parallel, checked against FP64 with a poisoned output,
captured in CUDA graphs whose inputs and outputs rotate over at least three times the L2 (at most 64 sets), and replayed in turn,
in a rotating order; the median counts. First structures (kernel, rows, warps, blocks per row), then the switches (dependent
launch, cache hints, weight load, packed registers) of the two best. Writes DIR/tune.json; prints the winners.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

import torch
import triton

from robot_perf.kernels.rmsnorm import add_rms_norm, rms_norm
from robot_perf.kernels.rmsnorm_config import Launch, device_facts
from robot_perf.kernels.rmsnorm_launch import Variant, compile_variant, float_bits, load
from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference

HEADLINE = [
    (1, 1024), (1, 4096), (1, 16384), (1, 65536), (16, 4096), (256, 4096), (4096, 4096), (32768, 4096), (65536, 256),
    (8192, 1000), (8192, 5120), (16384, 8192), (8192, 16384), (4096, 32768), (2048, 65536),
]  # fmt: skip
WIDTHS = [
    64,
    128,
    256,
    384,
    512,
    768,
    1000,
    1024,
    1536,
    2048,
    3072,
    4096,
    5120,
    7168,
    8192,
    11008,
    16384,
    32768,
    65536,
    131072,
]


@triton.jit
def nothing():
    """An empty kernel."""
    pass


def pow2(value: int) -> int:
    """The power of two at or above a number."""
    return 1 << max(0, value - 1).bit_length()


def structures(m: int, d: int) -> list[Launch]:
    """Launches that differ in how the row is laid over threads and blocks."""
    found = []
    block = pow2(d)
    base = {"pdl": 1, "policy": 0}
    if d <= 32768:
        for rows in (1, 2, 4, 8, 16, 32):
            if rows > max(1, m) or (rows > 1 and rows * block > 16384):
                continue
            for warps in (1, 2, 4, 8, 16, 32):
                each = rows * block / (32 * warps)
                if (8 <= each <= 64 or (warps == 1 and each < 8)) and not (each == 64 and rows > 1 and block < 2048):
                    found.append(
                        Launch("row", warps, block=block, rows=rows, weight_early=d < 32768, pack16=d == 32768, **base)
                    )
    if d >= 512 and d % 8 == 0 and (m <= 1024 or d >= 8192):
        for ctas in (1, 2, 4, 8, 16):
            for warps in (2, 4, 8, 16, 32):
                each = pow2(math.ceil(d / ctas)) / (32 * warps)
                if 8 <= each <= 32 and (ctas == 1 or d / ctas >= 1024) and (ctas < 16 or m <= 16):
                    found.append(Launch("split", warps, ctas=ctas, **base))
    if d >= 2048:
        found += loops(d, {**base, "policy": 1})
    return found


def loops(d: int, base: dict) -> list[Launch]:
    """Two-pass launches: chunks, warps, blocks per row, and a register cap that lets two blocks of 1024 threads share an SM."""
    found = []
    for ctas in (1, 2, 4, 8) if d > 16384 else (1,):
        for width, warps in itertools.product((2048, 4096, 8192, 16384), (4, 8, 16, 32)):
            if 8 <= width / (32 * warps) <= 16 and d / ctas >= max(width, 2048):
                found += [
                    Launch("loop", warps, block=width, ctas=ctas, registers=r, **base)
                    for r in ((0, 32) if warps == 32 else (0,))
                ]
    return found


def refined(report: Path, m: int, d: int, margin: float) -> list[Launch]:
    """The structures of an earlier report within `margin` of its best at this shape, in either op, and every two-pass one."""
    found = structures(m, d)
    keep = set()
    for point in json.loads(report.read_text())["points"]:
        if (point["m"], point["d"]) == (m, d):
            timed = [e for e in point["found"] if "us" in e]
            best = min(e["us"] for e in timed)
            keep |= {shape_of(Launch(**e["launch"])) for e in timed if e["us"] <= margin * best}
    return [x for x in found if not keep or shape_of(x) in keep or (x.kernel == "loop" and m > 16)]


def shape_of(launch: Launch) -> tuple:
    """What decides the order of a row's sum."""
    return launch.kernel, launch.warps, launch.block, launch.rows, launch.ctas


def switches(launch: Launch) -> list[Launch]:
    """The same structure with one switch changed."""
    if launch.kernel == "loop":
        return [replace(launch, pdl=0), replace(launch, policy=1), replace(launch, reverse=False)]
    changed = [replace(launch, pdl=0), replace(launch, pdl=2), replace(launch, policy=1), replace(launch, policy=2)]
    return [*changed, replace(launch, weight_early=not launch.weight_early)]


def compile_one(variant: Variant, chip: int) -> str:
    """Compiles a variant into Triton's cache on disk; the error, if any."""
    from triton.backends.compiler import GPUTarget

    try:
        compile_variant(variant, GPUTarget("cuda", chip, 32))
    except Exception as error:  # noqa: BLE001 - a candidate that does not compile is a result
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def variant_of(launch: Launch, d: int, fused: bool) -> Variant:
    """The BF16 variant of a launch."""
    return Variant(launch, d, "bf16", "bf16", True, fused)


class Point:
    """Inputs and outputs of one shape and op, in as many sets as it takes to leave the cache cold."""

    def __init__(self, m: int, d: int, fused: bool, l2: int) -> None:
        self.m, self.d, self.fused = m, d, fused
        inputs = m * d * 2 * (2 if fused else 1)
        self.sets = max(1, min(64, math.ceil(3 * l2 / inputs)))
        make = lambda: torch.randn(m, d, device="cuda", dtype=torch.bfloat16)  # noqa: E731
        self.x = [make() for _ in range(self.sets)]
        self.r = [make() for _ in range(self.sets)] if fused else [None] * self.sets
        self.w = (1 + 0.1 * torch.randn(d, device="cuda")).to(torch.bfloat16)
        self.y = [torch.empty_like(x) for x in self.x]
        self.s = [torch.empty_like(x) for x in self.x] if fused else [None] * self.sets
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
    """µs per call of each replay."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    graph.replay()
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1000 / calls for start, end in events]


def measure(point: Point, launches: list[Launch]) -> list[dict]:
    """Checks, captures and times launches in turn."""
    ready, out = [], []
    for launch in launches:
        variant = variant_of(launch, point.d, point.fused)
        try:
            run = point.call(variant)
            error = point.wrong(run)
        except Exception as caught:  # noqa: BLE001 - shown in the result
            error, run = f"{type(caught).__name__}: {str(caught)[:150]}", None
        entry = {"launch": asdict(launch), "error": error}
        out.append(entry)
        if not error and run is not None:
            got = load(variant, 0)
            entry |= {"registers": got.registers, "spills": got.spills}
            ready.append((entry, graph_of(run, point.calls, point.sets), []))
    for turn in range(3):
        order = ready[turn:] + ready[:turn]
        for _, graph, samples in order if turn % 2 == 0 else reversed(order):
            samples.extend(replay_us(graph, point.calls, 4))
    for entry, _, samples in ready:
        entry["us"] = statistics.median(samples)
    return out


def per_node() -> dict:
    """µs per graph node of a kernel that does nothing, and of the row kernel without work, by dependent-launch switch."""
    found = {}
    point = Point(1, 64, False, 1)
    for pdl in (0, 1, 2):
        run = point.call(variant_of(Launch("row", 1, block=64, pdl=pdl), 64, False))
        run(0)
        graph = graph_of(run, 256, 1)
        found[f"1x64 row pdl {pdl}"] = statistics.median(replay_us(graph, 256, 30))
    nothing[(1,)]()
    graph = graph_of(lambda i: nothing[(1,)](), 256, 1)
    found["empty Triton kernel"] = statistics.median(replay_us(graph, 256, 30))
    sink = torch.zeros(1, device="cuda")
    graph = graph_of(lambda i: sink.zero_(), 256, 1)
    found["memset or fill of 4 B"] = statistics.median(replay_us(graph, 256, 30))
    return found


def copies() -> dict:
    """µs and GB/s of memcpy nodes in a graph, by MB moved."""
    found = {}
    for mb in (8, 33, 67, 134, 268, 537, 1074):
        half = mb * 1_000_000 // 2 // 512 * 512
        sets = max(1, min(64, math.ceil(3 * device_facts(0).l2_bytes / half)))
        a = [torch.empty(half, dtype=torch.uint8, device="cuda").random_() for _ in range(sets)]
        b = [torch.empty_like(t) for t in a]
        graph = graph_of(lambda i, a=a, b=b: b[i].copy_(a[i]), 16, sets)
        us = statistics.median(replay_us(graph, 16, 10))
        found[mb] = {"us": us, "gb_s": 2 * half / us / 1e3}
    return found


def host_us() -> dict:
    """µs of host work to queue one eager call at 1 x 4096, allocation included."""
    x = torch.randn(1, 4096, device="cuda").to(torch.bfloat16)
    r, w = torch.randn_like(x), torch.randn(4096, device="cuda").to(torch.bfloat16)
    fused = torch.nn.functional.rms_norm
    calls = {
        "rms_norm": lambda: rms_norm(x, w, 1e-6),
        "F.rms_norm": lambda: fused(x, (4096,), w, 1e-6),
        "add_rms_norm": lambda: add_rms_norm(x, r, w, 1e-6),
        "add, F.rms_norm": lambda: fused(x + r, (4096,), w, 1e-6),
        "empty_like": lambda: torch.empty_like(x),
    }
    samples: dict = {name: [] for name in calls}
    with torch.no_grad():
        for _ in range(15):
            for name, call in calls.items():
                for _ in range(10):
                    call()
                torch.cuda.synchronize()
                start = time.perf_counter_ns()
                for _ in range(100):
                    call()
                samples[name].append((time.perf_counter_ns() - start) / 100 / 1000)
                torch.cuda.synchronize()
    return {name: statistics.median(values) for name, values in samples.items()}


def main() -> None:  # noqa: PLR0915
    """Tunes and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=240.0)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--only", choices=("headline", "all"), default="all")
    parser.add_argument("--refine", type=Path, help="an earlier tune.json: time only what came near its best")
    parser.add_argument("--least-width", type=int, default=0, help="only rows at least this wide")
    parser.add_argument("--margin", type=float, default=1.12)
    options = parser.parse_args()
    begin = time.monotonic()
    facts = device_facts(0)
    big = [(min(2**17, pow2(2**25 // d)), d) for d in WIDTHS]
    table = [(m, d) for d in WIDTHS for m in (1, 8, 64, 300, 1024)] + big

    @functools.cache
    def candidates(m: int, d: int) -> list[Launch]:
        return refined(options.refine, m, d, options.margin) if options.refine else structures(m, d)

    shapes = [*HEADLINE, *(s for s in table if s not in HEADLINE)] if options.only == "all" else HEADLINE
    shapes = [(m, d) for m, d in shapes if d >= options.least_width]
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "nodes": per_node(),
        "copies": copies(),
        "host": host_us(),
        "points": [],
    }
    print(json.dumps({k: report[k] for k in ("nodes", "copies", "host")}), flush=True)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        jobs = {}
        for m, d in shapes:
            for fused in (False, True):
                for launch in candidates(m, d):
                    variant = variant_of(launch, d, fused)
                    if variant not in jobs:
                        jobs[variant] = pool.submit(compile_one, variant, facts.capability)
        print(f"{len(jobs)} variants, {time.monotonic() - begin:.0f} s", flush=True)

        def study(m: int, d: int, second: bool) -> None:
            for fused in (False, True):
                first = candidates(m, d)
                for launch in first:
                    jobs[variant_of(launch, d, fused)].result()
                point = Point(m, d, fused, facts.l2_bytes)
                found = measure(point, first)
                good = sorted((e for e in found if "us" in e), key=lambda e: e["us"])
                if second and good:
                    best = [Launch(**e["launch"]) for e in good[:2]]
                    more = [change for launch in best for change in switches(launch)]
                    waits = [
                        pool.submit(compile_one, variant_of(launch, d, fused), facts.capability) for launch in more
                    ]
                    for wait in waits:
                        wait.result()
                    found += measure(point, [*best, *more])
                entry = {
                    "m": m,
                    "d": d,
                    "fused": fused,
                    "bytes": point.bytes,
                    "sets": point.sets,
                    "calls": point.calls,
                    "found": found,
                }
                report["points"].append(entry)
                good = sorted((e for e in found if "us" in e), key=lambda e: e["us"])
                bad = [e["error"] for e in found if e["error"]]
                top = "; ".join(f"{e['us']:.2f} {short(e['launch'])}" for e in good[:2])
                print(f"{m}x{d} {'add' if fused else 'norm'}: {top}{' BAD ' + str(bad[:2]) if bad else ''}", flush=True)
                del point

        for index, (m, d) in enumerate(shapes):
            if time.monotonic() - begin > options.budget:
                print(f"stopped at the budget after {index} of {len(shapes)} shapes")
                break
            study(m, d, index < len(HEADLINE))
            (options.out / "tune.json").write_text(json.dumps(report))
        pool.shutdown(wait=False, cancel_futures=True)
    print(f"{time.monotonic() - begin:.0f} s")


def short(launch: dict) -> str:
    """A launch in a few words."""
    where = {
        "row": f"r{launch['rows']}",
        "split": f"c{launch['ctas']}",
        "loop": f"c{launch['ctas']} b{launch['block']} m{launch['registers']}{'' if launch['reverse'] else ' forward'}",
    }
    parts = [
        launch["kernel"],
        f"w{launch['warps']}",
        where[launch["kernel"]],
        f"pdl{launch['pdl']} p{launch['policy']}",
    ]
    return " ".join([*parts, "" if launch["weight_early"] else "late", "k16" if launch["pack16"] else ""]).strip()


if __name__ == "__main__":
    main()
