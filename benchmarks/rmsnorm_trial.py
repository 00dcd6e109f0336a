"""Times candidate kernels at the shapes that missed the copy's speed, beside copies and a peer; what the table takes is decided after.

    python benchmarks/rmsnorm_trial.py --out DIR [--budget SECONDS] [--peer quack]
    python benchmarks/rmsnorm_trial.py --wide --out DIR …              the wide shapes again, with other launches
    python benchmarks/rmsnorm_trial.py --weightless --out DIR …        wide shapes, with their weight and without
    python benchmarks/rmsnorm_trial.py --compile-only [--chip 90]      no GPU: registers, stack and shared bytes of every candidate

Writes DIR/rmsnorm_trial.json after every point, and prints per point the copies, the peer and the candidates from fastest to slowest:
µs with the inputs and outputs rotating over four sets, and in brackets over one set (as large, but the same at every call). A
candidate is checked against FP64 in a poisoned output before it is timed. The kernels that wait for each other's stores are tried in
a process of their own first: one that hangs is left out, and the process that hangs is ended.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rmsnorm_trial_candidates import GUARDS, SHAPES, WIDE, candidates, weighty, wide
from rmsnorm_trial_peer import Peer
from rmsnorm_tune_candidates import compile_one, short, variant_of

SETS = 4
SMOKE_S = 60.0
WATCHDOG_S = 25.0  # beyond the budget: what was measured is on disk by then


Study = list[tuple[int, int, list[Any]]]  # (m, d, the launches to time there)


def studied(options: argparse.Namespace) -> Study:
    """The shapes and their launches, as the options choose them."""
    shapes = [
        (m, d) for m, d in (WIDE if options.weightless else SHAPES + GUARDS) if not options.only or d in options.only
    ]
    if options.wide:
        return [(m, d, wide(d)) for m, d in shapes if 16384 < d <= 65536]
    if options.weightless:
        return [(m, d, weighty(d)) for m, d in shapes]
    return [(m, d, candidates(m, d)) for m, d in shapes]


def tried_first(launches: list[Any]) -> list[Any]:
    """One launch of each way in which blocks wait for each other."""
    found = {}
    for launch in launches:
        if launch.remote:
            found.setdefault((launch.kernel, launch.ctas, launch.warps), launch)
    return list(found.values())


def way_of(launch: dict[str, Any], d: int, fused: bool) -> tuple[Any, ...]:
    """What must have run right once before the like of it is timed."""
    return d, fused, launch["kernel"], launch["ctas"], launch["warps"]


def smoke(shapes: Study) -> None:
    """Runs each of them once at a few hundred rows; one line of JSON per launch, as it ends."""
    from rmsnorm_tune_point import Point

    for m, d, launches in sorted(shapes, key=lambda shape: shape[1]):
        for fused in (False, True):
            point = Point(min(m, 600), d, fused, 1, least=1)
            for launch in tried_first(launches):
                try:
                    said = point.wrong(point.call(variant_of(launch, d, fused)))
                except Exception as error:  # noqa: BLE001 - a launch that fails is a result
                    said = f"{type(error).__name__}: {str(error)[:150]}"
                fields = asdict(launch)
                line = {"way": way_of(fields, d, fused), "launch": short(fields), "wrong": said}
                print(json.dumps(line), flush=True)


def tried(timeout_s: float) -> tuple[bool, list[dict[str, Any]]]:
    """(whether the smoke process ended in time, its lines)."""
    with subprocess.Popen(
        [sys.executable, __file__, "--smoke", *sys.argv[1:]], stdout=subprocess.PIPE, text=True
    ) as process:
        ended = True
        try:
            text, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            ended = False
            process.kill()
            text, _ = process.communicate()
    return ended, [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def copies(point: Any) -> dict[str, dict[str, Any]]:
    """Copies that move the op's bytes between the same tensors: one stream of reads and one of writes, and for the add two each."""
    import torch
    from rmsnorm_trial_copies import copy_kernel, pair_kernel
    from rmsnorm_tune_point import samplers_of

    ways = {
        "clone": lambda i: point.read[i].clone(),
        "copy_": lambda i: point.written[i].copy_(point.read[i]),
        "torch kernel": lambda i: torch.neg(point.read[i], out=point.written[i]),
    }
    for block, warps in ((1024, 4), (4096, 8), (8192, 8)):
        for hints in (("", ""), ("evict_last", ""), ("", "evict_first")):
            ways[f"Triton {block} {hints}"] = copy_kernel(point, block, warps, *hints)
    if point.fused:
        for hints in (("", ""), ("evict_last", ""), ("", "evict_first")):
            ways[f"two and two {hints}"] = pair_kernel(point, 4096, 8, *hints)
    for way in ways.values():
        way(0)
    torch.cuda.synchronize()
    return {name: samplers_of(point, way) for name, way in ways.items()}


def without_weight(point: Any, launches: list[Any]) -> dict[str, dict[str, Any]]:
    """The launches with the table's hints as they are without a weight: what reading it costs."""
    from rmsnorm_tune_point import samplers_of

    ways = {
        f"no weight: {short(asdict(x))}": point.call(replace(variant_of(x, point.d, point.fused), weight=None))
        for x in launches
        if x.policy == 6
    }
    for way in ways.values():
        way(0)
    return {name: samplers_of(point, way) for name, way in ways.items()}


def study(
    m: int, d: int, fused: bool, launches: list[Any], peers: list[Peer], l2: int, *, weightless: bool
) -> dict[str, Any]:
    """One point: everything checked and timed in turn."""
    import torch
    from rmsnorm_tune_point import Point, measure

    point = Point(m, d, fused, l2, least=SETS, alone=(m, d) in SHAPES)
    others = copies(point) if weightless or (m, d) in SHAPES else {}
    if weightless:
        others |= without_weight(point, launches)
    for peer in peers:
        samplers = peer.samplers(m, d, fused)
        if samplers:
            others[peer.name] = samplers
    found, beside = measure(point, launches, others)
    entry = {
        "m": m,
        "d": d,
        "fused": fused,
        "bytes": point.bytes,
        "sets": point.sets,
        "calls": point.calls,
        "found": found,
        "beside": beside,
    }
    del point, others
    torch.cuda.empty_cache()
    return entry


def table(entry: dict[str, Any]) -> list[str]:
    """The lines of a point: what was beside, then the candidates, each from fastest to slowest."""

    def both(found: dict[str, Any]) -> str:
        one = f"({found['us_one_set']:7.2f})" if "us_one_set" in found else ""
        return f"{found['us']:8.2f} {one:9s}"

    op = "add" if entry["fused"] else "norm"
    lines = [f"{entry['m']} x {entry['d']} {op}, {entry['bytes'] / 1e6:.0f} MB, {entry['sets']} sets"]
    beside = {name: found for name, found in entry["beside"].items() if "us" in found}
    lines += [f"  {both(found)} {name}" for name, found in sorted(beside.items(), key=lambda pair: pair[1]["us"])]
    for e in sorted((e for e in entry["found"] if "us" in e), key=lambda e: e["us"]):
        size = f"{entry['bytes'] / e['us'] / 1e3:5.0f} GB/s {e['registers']:3d} regs {e['spills']} spills grid {e['grid']:6d}"
        lines.append(f"{both(e)} {size} {short(e['launch'])}")
    return lines + [f"  BAD {short(e['launch'])}: {e['error']}" for e in entry["found"] if e["error"]]


def show(entry: dict[str, Any], peers: list[str], target: Path) -> None:
    """Appends the point's table to a file, and prints the fastest two copies, the peers, the fastest five and what was wrong."""
    lines = table(entry)
    with target.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n\n")
    beside = [line for line in lines[1:] if line.startswith("  ") and "BAD" not in line and "GB/s" not in line]
    timed = [line for line in lines if "GB/s" in line]
    bad = [line for line in lines if "BAD" in line]
    named = [line for line in beside[2:] if any(line.endswith(f" {name}") for name in peers)]
    print("\n".join([lines[0], *beside[:2], *named, *timed[:5], *bad[:3]]), flush=True)


def trial(options: argparse.Namespace) -> None:
    """Compiles, tries, times, writes."""
    began = time.monotonic()
    report: dict[str, Any] = {"command": " ".join(sys.argv), "points": [], "sets": SETS}
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "rmsnorm_trial.json"

    def late() -> None:
        print(
            f"stopped by the watchdog {WATCHDOG_S:.0f} s after the budget; {target} has what was measured", flush=True
        )
        os._exit(3)

    watchdog = threading.Timer(options.budget + WATCHDOG_S, late)
    watchdog.daemon = True
    watchdog.start()
    shapes = studied(options)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        first = [variant_of(x, d, f) for _, d, all_ in shapes for x in tried_first(all_) for f in (False, True)]
        rest = [variant_of(x, d, f) for _, d, all_ in shapes for f in (False, True) for x in all_]
        jobs = {variant: pool.submit(compile_one, variant, 90) for variant in dict.fromkeys([*first, *rest])}
        print(f"{len(jobs)} variants to compile", flush=True)
        import torch

        from robot_perf.kernels.rmsnorm_config import device_facts

        facts = device_facts(0)
        report |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        peers = [Peer(name) for name in options.peer]
        for peer in peers:
            print(f"{peer.name}: {peer.reason or 'here'}", flush=True)
        for variant in first:
            jobs[variant].result()
        print(f"tried-first variants compiled, {time.monotonic() - began:.0f} s", flush=True)
        ended, lines = tried(SMOKE_S)
        bad = [line for line in lines if line["wrong"]]
        passed = {tuple(line["way"]) for line in lines} - {tuple(line["way"]) for line in bad}
        report["smoke"] = {"ended": ended, "ran": len(lines), "wrong": bad}
        said = "ended" if ended else "DID NOT END"
        print(f"smoke: {said}, {len(lines)} ran, {time.monotonic() - began:.0f} s, wrong: {bad}", flush=True)
        for m, d, every in shapes:
            for fused in (False, True):
                if time.monotonic() - began > options.budget:
                    report.setdefault("not_reached", []).append([m, d, fused])
                    continue
                launches = [x for x in every if not tried_first([x]) or way_of(asdict(x), d, fused) in passed]
                for launch in launches:
                    jobs[variant_of(launch, d, fused)].result()
                entry = study(m, d, fused, launches, peers, facts.l2_bytes, weightless=options.weightless)
                report["points"].append(entry)
                target.write_text(json.dumps(report), encoding="utf-8")
                show(entry, options.peer, options.out / "rmsnorm_trial.txt")
                print(f"-- {time.monotonic() - began:.0f} s", flush=True)
        pool.shutdown(wait=False, cancel_futures=True)
    for peer in peers:
        peer.process.close()
    report["wall_s"] = round(time.monotonic() - began, 1)
    target.write_text(json.dumps(report), encoding="utf-8")
    print(f"{report['wall_s']} s; not reached: {report.get('not_reached', 'none')}")
    watchdog.cancel()


def compile_only(shapes: Study, chip: int) -> None:
    """Registers, stack and shared bytes of every candidate, from the compiler alone."""
    from rmsnorm_trial_copies import resources

    for _, d, launches in shapes:
        for launch in launches:
            for fused in (False, True):
                print(
                    d,
                    "add" if fused else "norm",
                    short(asdict(launch)),
                    resources(variant_of(launch, d, fused), chip),
                    flush=True,
                )


def main() -> None:
    """Chooses the mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--budget", type=float, default=140.0, help="start no further point after this many seconds")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--peer", action="append", default=[], help="a provider of `kernels bench rmsnorm`; repeatable")
    parser.add_argument("--only", type=int, action="append", help="only this width; repeatable")
    parser.add_argument(
        "--wide", action="store_true", help="the second round of launches, for rows above 16384 elements"
    )
    parser.add_argument("--weightless", action="store_true", help="wide rows, each launch without a weight, too")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--chip", type=int, default=90)
    parser.add_argument("--smoke", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.smoke:
        smoke(studied(options))
    elif options.compile_only:
        compile_only(studied(options), options.chip)
    else:
        trial(options)


if __name__ == "__main__":
    main()
