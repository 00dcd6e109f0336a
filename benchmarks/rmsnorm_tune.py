"""Times every sensible launch of the RMSNorm kernels on this GPU: the evidence behind kernels/rmsnorm_config.py.

    python benchmarks/rmsnorm_tune.py --out DIR [--budget SECONDS]
    python benchmarks/rmsnorm_tune.py --out DIR --between TUNE.json     numbers of rows between those of the first report

Per shape and op (plain, fused add; BF16): candidates are compiled in parallel, checked against FP64 with a poisoned output,
captured in CUDA graphs whose inputs and outputs rotate over at least three times the L2 (at most 64 sets), and replayed in turn,
in a rotating order; the median counts. First structures (kernel, rows, warps, blocks per row), then the switches (dependent
launch, cache hints, weight load, packed registers) of the two best. Writes DIR/tune.json; prints the winners. `--between` takes
what came near the best at the same width, times it over one set too, which the cache holds, and tries no switches.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
import triton
from rmsnorm_tune_candidates import (
    BETWEEN,
    HEADLINE,
    NARROW,
    WIDTHS,
    at_this_width,
    compile_one,
    pow2,
    refined,
    short,
    structures,
    switches,
    variant_of,
)
from rmsnorm_tune_point import Point, graph_of, measure, replay_us

from robot_perf.kernels.rmsnorm import add_rms_norm, rms_norm
from robot_perf.kernels.rmsnorm_config import Launch, device_facts


@triton.jit
def nothing():
    """An empty kernel."""
    pass


def per_node() -> dict:
    """µs per graph node of a kernel that does nothing, and of the row kernel without work, by dependent-launch switch."""
    found = {}
    point = Point(1, 64, False, 1, least=1)
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
    parser.add_argument(
        "--between", type=Path, help="an earlier tune.json: other numbers of rows, what was good at the width"
    )
    parser.add_argument("--least-width", type=int, default=0, help="only rows at least this wide")
    parser.add_argument("--margin", type=float, default=1.12)
    options = parser.parse_args()
    begin = time.monotonic()
    facts = device_facts(0)
    big = [(min(2**17, pow2(2**25 // d)), d) for d in WIDTHS]
    table = [(m, d) for d in WIDTHS for m in (1, 8, 64, 300, 1024)] + big

    @functools.cache
    def candidates(m: int, d: int) -> list[Launch]:
        if options.between:
            return at_this_width(options.between, m, d, options.margin)
        return refined(options.refine, m, d, options.margin) if options.refine else structures(m, d)

    shapes = [*HEADLINE, *(s for s in table if s not in HEADLINE)] if options.only == "all" else HEADLINE
    if options.between:
        shapes = [*NARROW, *BETWEEN]
    shapes = [(m, d) for m, d in shapes if d >= options.least_width]
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "points": []}
    if not options.between:
        report |= {"nodes": per_node(), "copies": copies(), "host": host_us()}
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
                point = Point(m, d, fused, facts.l2_bytes, alone=options.between is not None)
                found, _ = measure(point, first)
                good = sorted((e for e in found if "us" in e), key=lambda e: e["us"])
                if second and good:
                    best = [Launch(**e["launch"]) for e in good[:2]]
                    more = [change for launch in best for change in switches(launch)]
                    waits = [
                        pool.submit(compile_one, variant_of(launch, d, fused), facts.capability) for launch in more
                    ]
                    for wait in waits:
                        wait.result()
                    found += measure(point, [*best, *more])[0]
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
            study(m, d, options.between is None and index < len(HEADLINE))
            (options.out / "tune.json").write_text(json.dumps(report))
        pool.shutdown(wait=False, cancel_futures=True)
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
